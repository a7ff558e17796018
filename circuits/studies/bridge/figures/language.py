"""The paper's experiment on a language model, drawn from what it stored."""

from contextlib import suppress
from functools import partial
from statistics import fmean

from matplotlib.figure import Figure

from circuits.studies.bridge.llm.lab import BridgeLanguageLab
from circuits.tuning.keeper import Missing
from probes.figures import dot_rows, shared_legend
from trained.errors import BadInput

SUBSETS = {
    "S1": "right before and after",
    "S2": "wrong before, right after",
    "S3": "wrong after, though\nboth hops are right",
}
SERIES = {
    "true": "both single hops taught",
    "permuted": "null: bridges of hop 1 permuted",
    "second": "null: only hop 2 taught",
    "other object": "null: another row's object",
    "other subject": "null: another row's subject",
}


def omitted(lab: BridgeLanguageLab) -> Figure:
    """Change of p(object) where the first relation is left out (Figure 8).

    Fine-tuning on single hops, by what becomes of the two-hop question; faint dots are
    bridges. The paper prints no values: it says that the object becomes likelier where
    the question is right afterwards, and only slightly where it stays wrong.
    """
    own = {subset: lab.grouped(lab.dp, subset) for subset in SUBSETS}
    own = {subset: rows for subset, rows in own.items() if rows}
    if not own:
        raise BadInput("no two-hop question was right, nor wrong with both hops right")
    names = [
        f"{SUBSETS[subset]}\n({sum(map(len, rows))} rows, {len(rows)} bridges)"
        for subset, rows in own.items()
    ]
    found: dict[str, list[list[float]]] = {}
    for of, label in SERIES.items():
        with suppress(Missing):
            # Nulls are measured where there are rows enough to judge.
            several = (lab.grouped(partial(lab.dp, of=of), subset) for subset in own)
            found[label] = [[fmean(rows) for rows in bridges] for bridges in several]
    figure = Figure((8.4, 1.6 + 1.2 * len(names)), layout="constrained")
    ax = dot_rows(names, found, ax=figure.add_subplot())
    ax.axvline(0, color="grey", linewidth=0.8)
    ax.set_xlabel("change of p(object), after minus before fine-tuning", fontsize=11)
    ax.set_title("The two-hop prompt without its first relation", fontsize=12)
    shared_legend(figure, ncols=3)
    how = lab.settings
    taught = f"{how.bridges} bridges; {how.epochs} epochs, rate {how.lr:g}"
    figure.set_label(f"{lab.origin}; {taught}, trained: {how.layers}")
    return figure

"""The paper's experiments on language models, drawn from what they stored."""

from contextlib import suppress

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from circuits.claims import NotTested
from circuits.interventions.head_matrices import Circuit
from circuits.studies.symbols.llm.claims import MATRICES
from circuits.studies.symbols.llm.finetune import Start
from circuits.studies.symbols.llm.lab import SymbolsLanguageLab
from circuits.studies.symbols.llm.perplexity import Scalars
from circuits.tuning.keeper import Missing
from probes.figures import OKABE_ITO, dot_rows, heatmap, limits_of, shared_legend
from probes.measurement import Measurement
from trained.errors import BadInput

from .curves import line, plain

SCALARS: dict[str, Scalars] = {
    "plain": "none",
    "with $aI$ and $bI$": "ab",
    "null: random rotations\nin place of $I$": "abQ",
}
RATIOS = (60.46 / 64.00, 16.40 / 16.83)
"""Of the paper's perplexities, WikiText-2 and WikiText-103 (Figure 6)."""

STARTS: dict[Start, str] = {
    "pretrained": "pretrained",
    "frozen": "null: readout alone trained",
    "embeddings": "null: embeddings pretrained,\nblocks re-initialised",
    "shuffled": "null: labels shuffled",
    "reinitialised": "re-initialised",
}
FIGURE_7 = {"pretrained": {32: 0.25}, "reinitialised": {4096: 0.61}}
FIGURE_23 = {
    "small": {8: 0.21, 16: 0.004, 32: 0.004, 128: 0.02},
    "medium": {8: 1.03, 16: 0.55, 32: 0.31, 128: 0.27},
    "large": {8: 0.93, 16: 0.57, 32: 0.07, 128: 0.01},
}
"""Test errors of the paper's GPT-2, by training strings."""


def perplexity(lab: SymbolsLanguageLab) -> Figure:
    """Perplexity of GPT-2 from scratch, with identity scalings a and b (Figure 6).

    The least on held-out text. The paper: 64.00 without and 60.46 with them on
    WikiText-2, 16.83 and 16.40 on WikiText-103; crosses are these ratios.
    """
    found = [lab.perplexities(scalars) for scalars in SCALARS.values()]
    ratios = [lab.perplexity_ratio(scalars) for scalars in list(SCALARS.values())[1:]]
    figure = Figure((10, 3), layout="constrained")
    left, right = figure.subplots(1, 2)
    names = list(SCALARS)
    dot_rows(names, {"": found}, ax=left)
    left.set_xlabel("perplexity", fontsize=11)
    left.set_title("GPT-2 from scratch, least on held-out text", fontsize=12)
    dot_rows(names[1:], {"": ratios}, ax=right, paper={names[1]: RATIOS})
    right.axvline(1, color="grey", linewidth=0.8)
    right.set_xlabel("perplexity over that of plain", fontsize=11)
    right.set_title("the same over plain, seed by seed", fontsize=12)
    shared_legend(figure)
    own = lab.settings.perplexity
    size = own.config or f"{own.n_layers} layers, d = {own.d_model}"
    trained = f"{size}, {own.steps} steps, {len(found[0])} seeds"
    figure.set_label(f"GPT-2 from scratch; preset {lab.preset}; {trained}")
    return figure


def finetune(lab: SymbolsLanguageLab) -> Figure:
    """Test error of a fine-tuned model against training strings (Figures 7, 23).

    The paper: a pretrained GPT-2 needs far fewer strings of a template task than the
    same one re-initialised (left, crosses: its numbers); sizes in no order (middle).
    """
    own = lab.settings.finetune
    if not own.n:
        raise BadInput("nothing was fine-tuned: confirm with --preset cpu")
    figure = Figure((14, 4.4), layout="constrained")
    left, middle, right = figure.subplots(1, 3, width_ratios=(1.15, 1, 1))
    sizes: dict[Start, tuple[int, ...]] = {
        "pretrained": own.n,
        "reinitialised": (*own.n, *own.many),
    }
    for colour, (start, several) in zip(OKABE_ITO, sizes.items(), strict=False):
        errors = [lab.tuned_errors(start, n) for n in several]
        words = STARTS[start]
        line(left, several, errors, words, colour)
        told = FIGURE_7[start]
        crosses = left.plot(list(told), list(told.values()), "x", color=colour)
        crosses[0].set(label=f"paper, {words}", markersize=8, markeredgewidth=2)
        if start == "pretrained":
            line(middle, several, errors, words, colour)
    for colour, (size, told) in zip(OKABE_ITO[2:], FIGURE_23.items(), strict=False):
        points = (list(told), list(told.values()))
        middle.plot(*points, "x:", color=colour, label=f"paper, GPT-2 {size}")
    ticks = {left: {*sizes["reinitialised"], 4096}, middle: {8, 16, 32, 128, *own.n}}
    for ax, places in ticks.items():
        _over_strings(ax, sorted(places))
    left.set_title(f"{own.task.replace('_', '/')}, two starts (Figure 7)", fontsize=12)
    middle.set_title("pretrained, by size (Figure 23)", fontsize=12)
    _nulls(lab, own.n[-1], right)
    shared_legend(figure)
    trained = f"{own.steps} steps, rates {', '.join(f'{lr:g}' for lr in own.lrs)}"
    seeds = f"{len(lab.tuning_seeds)} seeds fine-tune"
    figure.set_label(f"{lab.origin}; {seeds}; {trained}")
    return figure


def _over_strings(ax: Axes, places: list[int]) -> None:
    ax.axhline(1, color="grey", linewidth=0.8, label="answering 0 throughout")
    ax.axhline(0.5, color="grey", linewidth=0.8, linestyle=":", label="n compared here")
    ax.set_xscale("log", base=2)
    ax.set_xticks(places, [str(n) for n in places])
    ax.minorticks_off()
    ax.set_ylim(0, None)
    plain(ax, "training strings n", "squared error on unseen symbols")


def _nulls(lab: SymbolsLanguageLab, n: int, ax: Axes) -> None:
    rows = {words: lab.tuned_errors(start, n) for start, words in STARTS.items()}
    rows["null: before any step"] = lab.untuned_errors(n)
    dot_rows(list(rows), {"": list(rows.values())}, ax=ax)
    ax.axvline(1, color="grey", linewidth=0.8)
    ax.axvline(0.5, color="grey", linewidth=0.8, linestyle=":")
    ax.set_xlim(0, None)
    ax.set_xlabel("squared error on unseen symbols", fontsize=11)
    ax.set_title(f"all starts and nulls, n = {n}", fontsize=12)


def diagonals(lab: SymbolsLanguageLab) -> Figure:
    """Diagonals of W_Q W_K^T and W_V W_O^T, head by head (Figure 7, right).

    The mean diagonal entry over the root mean square of the others. The paper: several
    heads of a pretrained model have diagonals stronger than their other weights (above
    1). The null multiplies the factors of different heads of a layer.
    """
    found = {"ov": _strengths(lab, "ov")}
    with suppress(Missing, NotTested):
        # Scores of a family that normalises queries and keys are no such map.
        found = {"qk": _strengths(lab, "qk"), **found}
    figure = Figure((6 * len(found), 8), layout="constrained")
    grid = figure.subplots(2, len(found), squeeze=False, height_ratios=(1.4, 1))
    limits = limits_of(torch.stack([own for own, _ in found.values()]))
    for (above, below), (circuit, (own, null)) in zip(
        grid.T, found.items(), strict=True
    ):
        matrix = f"${MATRICES[circuit]}$"
        shown = Measurement(own, ("layer", "head"), name="diagonal over the rest")
        heatmap(shown, above, limits=limits).set_title(matrix, fontsize=12)
        for values, colour, label in (
            (null[0], "0.6", "null: factors of mismatched heads"),
            (own, OKABE_ITO[0], "own"),
        ):
            layers = torch.arange(len(values)).repeat_interleave(values.shape[1])
            below.scatter(layers, values.flatten(), s=12, color=colour, label=label)
        below.axhline(
            1, color="grey", linewidth=0.8, linestyle=":", label="as the rest"
        )
        plain(below, "layer", "diagonal over the rest")
        shares = [float((values > 1).double().mean()) for values in (own, null)]
        said = "above 1: {:.0%} of heads, null {:.0%}".format(*shares)
        below.set_title(f"{matrix}, {said}", fontsize=12)
    shared_legend(figure)
    figure.set_label(f"{lab.origin} (pairings of the null); weights alone")
    return figure


def _strengths(lab: SymbolsLanguageLab, circuit: Circuit) -> tuple[Tensor, Tensor]:
    """Of every head, and with mismatched factors, a pairing for each seed."""
    null = [lab.strengths(circuit, seed) for seed in lab.seeds]
    return lab.strengths(circuit), torch.stack(null)

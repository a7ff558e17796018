"""The paper's experiment on a language model, drawn from what it stored."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from circuits.claims import NotTested
from circuits.studies.analogy.llm.lab import AnalogyLanguageLab
from probes.figures import dot_rows, shared_legend

from .words import CURRICULA

LESSONS = {
    "before": "before any lesson",
    "A": "null: categories alone (A)",
    "permuted": "null: joint, wrong aspects",
    "joint": CURRICULA["joint"],
    "SA": CURRICULA["SA"],
    "AS": "similarity last (AS)",
}
REPLAYED = {"replay": "AS, categories replayed"}
INVENTED = {
    "A invented": "null: A, invented names",
    "joint invented": "joint, invented names",
}
Printed = Mapping[str, float | Sequence[float]]
TRANSFER: Printed = {
    "joint": (0.73, 0.85, 0.84),
    "SA": (0.86, 0.72, 0.75),
    "AS": (0.53, 0.33, 0.34),
}
"""Of Llama 3 1B, Qwen 2.5 1.5B (Table 2) and Qwen 3 8B (Table 3)."""
RAW: Printed = {
    "joint": (0.8174, 0.8488),
    "SA": (0.7990, 0.7971),
    "AS": (0.6431, 0.7455),
}
"""Of the first two."""
SPARSE: Printed = {"joint": 0.3785, "SA": 0.3757, "AS": 0.2704}
"""Of the third."""
OWN, SHIFTED = "a fact's two subjects", "null: wrong pairs"


def transfer(lab: AnalogyLanguageLab) -> Figure:
    """Retention, transfer and similarity after each order of lessons (Tables 2 and 3).

    Crosses: the paper's Llama 3 1B and Qwen 2.5 1.5B, and Qwen 3 8B, of which it prints
    the sparse cosine. It says that joint training and SA carry the category over to the
    second subject, that AS does so less, and that AS leaves the two least alike.
    """
    own = lab.settings
    lessons = {**LESSONS, **(REPLAYED if own.replay else {})}
    lessons |= INVENTED if own.invented else {}

    def cosines(of: str, which: str = "own") -> list[list[float]]:
        return [lab.cosine(name, of, which) for name in lessons]

    kept = [lab.of("retained", name) for name in lessons]
    carried = [lab.success(name) for name in lessons]
    raw = {OWN: cosines("similarity"), SHIFTED: cosines("similarity", "shifted")}
    panels: dict[str, tuple[str, dict[str, list[list[float]]], Printed]] = {
        "first subject right (retained)": ("share", {"": kept}, {}),
        "second subject right (transfer)": ("share", {"": carried}, TRANSFER),
        "states of both subjects": ("cosine", raw, RAW),
    }
    try:
        sparse = {OWN: cosines("sparse"), SHIFTED: cosines("sparse", "shifted")}
        sparse[f"null: {own.kept:.0%} at random"] = cosines("random")
        panels[f"the same, largest {own.kept:.0%} of the MLPs"] = (
            *("cosine", sparse),
            SPARSE,
        )
    except NotTested:
        pass  # A family without MLP activations has no such panel.
    figure = Figure((3.3 * len(panels) + 1, 5), layout="constrained")
    axes = figure.subplots(1, len(panels), sharey=True)
    for ax, (title, (unit, series, told)) in zip(axes, panels.items(), strict=True):
        paper = {lessons[name]: value for name, value in told.items()}
        dot_rows(list(lessons.values()), series, ax=ax, paper=paper)
        ax.set_xlabel(unit, fontsize=11)
        ax.set_title(title, fontsize=11)
        if unit == "share":
            ax.set_xlim(-0.05, 1.05)
    shared_legend(figure)
    taught = f"{own.facts} facts; {own.epochs} epochs, rate {lab.rate():g}"
    figure.set_label(f"{lab.origin}; {taught}, trained: {own.layers}")
    return figure

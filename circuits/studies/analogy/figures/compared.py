"""Curricula side by side: alignment, what the test is answered with, edits."""

import textwrap
from collections.abc import Sequence
from statistics import fmean

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from circuits.studies.analogy.lab import AnalogyLab, When
from probes.figures import curve, dot_rows, heatmap, shared_legend
from probes.measurement import Measurement
from trained.analogy.block_arms import later_steps

from .words import CURRICULA, READINGS, TITLES, Reading, curricula, in_words, trained

COSINES = {
    "raw": "source and target",
    "centred": "the same, mean taken off",
    "shifted": "wrong pairs (null)",
}
PAPER = {
    "block": {"joint": 0.9202, "SA": 0.9689, "AS_T": 0.0014, "bridge": 0.9132}
    | {"no_bridge": 0.006},
    "gpt": {"joint": 0.995, "SA": 0.7983, "AS_E": 0.4326, "bridge": 0.9642}
    | {"no_bridge": 0.016},
}
"""Cosines of Table 1."""
RELU = {
    "target right": {"joint": 1.0, "SA": 1.0, "AS_E": 0.0067},
    "cosine of source and target": {"joint": 0.941, "SA": 0.712, "AS_E": 0.437},
}
"""What the paper prints for the ReLU block."""
LATE = ("AS_T", "AS_E")
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Of the source's displacement that a target is given."""
Row = tuple[str, str, When]
"""Label, arm, when."""


def alignment(lab: AnalogyLab) -> Figure:
    """Cosine of source and target by curriculum, beside its null and Table 1."""
    parts = trained(lab, "block", "gpt")
    figure = Figure((6.4 * len(parts), 5.2), layout="constrained")
    panels = figure.subplots(1, len(parts), sharex=True, squeeze=False)[0]
    for ax, part in zip(panels, parts, strict=True):
        names = curricula(lab, part)
        arms = [lab.named(part, name) for name in names]
        series = {
            words: [lab.cosine(arm, of) for arm in arms]
            for of, words in COSINES.items()
        }
        told = {CURRICULA[name]: value for name, value in PAPER[part].items()}
        dot_rows(in_words(names), series, ax=ax, paper=told)
        ax.set_xlabel("cosine of the two representations", fontsize=11)
        ax.axvline(0, color="grey", linewidth=0.8)
        ax.set_title(f"{TITLES[part]} (paper: Table 1)", fontsize=12)
    shared_legend(figure)
    return figure


def transfer(lab: AnalogyLab) -> Figure:
    """What the test prompts are answered with, arm by arm; success never alone."""
    parts = trained(lab, "block", "gpt")
    figure = Figure((7 * len(parts), 5.4), layout="constrained")
    panels = figure.subplots(1, len(parts), squeeze=False)[0]
    for ax, part in zip(panels, parts, strict=True):
        rows = [row for name in curricula(lab, part) for row in _rows(lab, part, name)]
        _table(ax, lab, rows, f"{TITLES[part]}: share of test prompts")
    return figure


def phase(lab: AnalogyLab) -> Figure:
    """The ReLU block, all weights trained: curricula from two sizes of initial weights.

    The paper: joint and SA transfer, AS does not (crosses); it has one initial size.
    """
    trained(lab, "relu-main")
    names = [n for n in lab.config.curricula if lab.has(f"relu-main-{n}")]
    sizes = {"main": lab.config.relu.main.std, "small": lab.config.relu.small.std}
    sizes = {s: std for s, std in sizes.items() if lab.has(f"relu-{s}-{names[0]}")}
    panels: dict[str, Reading] = {
        **READINGS,
        "cosine of source and target": lambda lab, arm, _: lab.cosine(arm),
    }
    figure = Figure((13, 3.8), layout="constrained")
    figure.suptitle("ReLU block, all weights trained: what the test is answered with")
    axes = figure.subplots(1, len(panels), sharex=True, sharey=True)
    for ax, (label, read) in zip(axes, panels.items(), strict=True):
        series = {
            f"std {std:g}": [read(lab, f"relu-{s}-{name}", "end") for name in names]
            for s, std in sizes.items()
        }
        told = {CURRICULA[name]: value for name, value in RELU.get(label, {}).items()}
        dot_rows(in_words(names), series, ax=ax, paper=told)
        ax.set_title(textwrap.fill(label, 18), fontsize=11)
        ax.set(xlim=(-0.08, 1.08), xticks=(0, 0.5, 1))
        ax.set_xlabel("cosine" if "cosine" in label else "share", fontsize=11)
    shared_legend(figure, "initial weights")
    return figure


def late(lab: AnalogyLab) -> Figure:
    """Similarity taught last, from the first full fit to convergence, and a cure.

    Without and with the first phase replayed; then each target's value is moved by a
    share of what training added to its source's.
    """
    trained(lab, "block")
    figure = Figure((14, 4.4), layout="constrained")
    *courses, right = figure.subplots(1, 3)
    arms = {
        "block-AS_T": "target's similarity last (AS_T)",
        "block-AS_T-replay": "the same, first phase replayed",
    }
    for ax, (arm, title) in zip(courses, arms.items(), strict=True):
        _late_course(lab, arm, ax)
        ax.set_title(title, fontsize=12)
    given = [lab.with_displacement("block-AS_T-replay", share) for share in SHARES]
    across = "share of its source's displacement given"
    found = Measurement(
        torch.tensor(given), (across, "seed"), {across: SHARES}, "target right"
    )
    curve(found, x=across, ax=right)
    right.set_ylim(-0.04, 1.04)
    right.set_title("replayed, then targets moved by hand", fontsize=12)
    shared_legend(figure)
    return figure


def _late_course(lab: AnalogyLab, arm: str, ax: Axes) -> None:
    steps = later_steps(lab.config)
    values = [[read(lab, arm, step) for step in steps] for read in READINGS.values()]
    axes = ("answer", "kept step", "seed")
    names = {"answer": tuple(READINGS)}
    found = Measurement(torch.tensor(values), axes, names, "share of prompts")
    curve(found, x="kept step", hue="answer", ax=ax)
    losses = [fmean(lab.loss(arm, -1, step)) for step in steps]
    ax.set_xticks(range(len(steps)), [f"{loss:.2g}" for loss in losses])
    ax.set_xlabel("loss of phase 2, from first fit to convergence", fontsize=11)
    ax.set_ylim(-0.04, 1.04)


def _table(ax: Axes, lab: AnalogyLab, rows: Sequence[Row], title: str) -> None:
    """Readings of arms as a heat map with the numbers written in."""
    values = torch.tensor(
        [
            [fmean(read(lab, arm, when)) for read in READINGS.values()]
            for _, arm, when in rows
        ]
    )
    columns = tuple(textwrap.fill(name, 14) for name in READINGS)
    labels = {"arm": tuple(label for label, _, _ in rows), "reading": columns}
    found = Measurement(values, ("arm", "reading"), labels, "share")
    heatmap(found, ax, limits=(0.0, 1.0))
    for row, line in enumerate(values.tolist()):
        for column, value in enumerate(line):
            colour = "white" if value < 0.55 else "black"
            text = ax.text(column, row, f"{value:.2f}", color=colour, fontsize=9)
            text.set(ha="center", va="center")
    for name in ax.get_xticklabels():
        name.set(rotation=0, ha="center", rotation_mode="default")
    ax.set_title(title, fontsize=12)
    ax.set(xlabel="", ylabel="")


def _rows(lab: AnalogyLab, part: str, name: str) -> list[Row]:
    """What the transfer table shows of a curriculum."""
    arm, words = lab.named(part, name), CURRICULA[name]
    if name not in LATE:
        return [(words, arm, "end")]
    rows: list[Row] = [(words, arm, "end")]
    if part == "block":
        rows = [
            (f"{words}:\njust fitted", arm, "fitted"),
            ("… converged", arm, "end"),
        ]
    rows.append(("… first phase replayed", f"{arm}-replay", "end"))
    if part == "block":
        rows.append(("… values trained on too", f"{arm}-unfrozen", "end"))
    return [row for row in rows if lab.has(row[1])]

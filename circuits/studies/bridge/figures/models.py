"""What the trained models answer and hold, and what the theorem says they should."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from circuits.studies.bridge.lab import BridgeLab
from circuits.studies.bridge.specimen import Specimen
from circuits.studies.bridge.states import TrainedGpt
from probes.alignment import polar_coordinates
from probes.figures import (
    OKABE_ITO,
    curve,
    dots,
    heatmap,
    polar,
    shared_legend,
)
from probes.measurement import Measurement
from trained.bridge.config import BOTH as TASKS
from trained.bridge.config import Recipe, embedding, gpt, shown
from trained.bridge.symmetric import solve_symmetric

from .words import MODELS
from .words import TASKS as TASK_WORDS

MARGIN_SIZES = (3, 5, 10, 30, 100, 1000)


def accuracy(lab: BridgeLab) -> Figure:
    """Two-hop accuracy against objects per subject (Figure 2), both ways of scoring.

    The paper prints no values: it says that all three models do well at one object per
    subject, and that the small initialisation declines most slowly.
    """
    titles = {
        "small": "GPT-2, small initial weights",
        "standard": "GPT-2, standard initial weights",
        "decay": "GPT-2, weight decay",
        "std": "GPT-2, initial std 0.02",
    }
    panels = {titles[r]: Recipe("gpt", regime=r) for r in lab.config.gpt.regimes}
    panels["Emb-MLP"] = Recipe("embedding")
    figure = Figure((3.4 * len(panels), 6.2), layout="constrained")
    grid = figure.subplots(2, len(panels), sharex=True, sharey=True)
    quantities: tuple[tuple[str, Callable[[Specimen], float]], ...] = (
        ("two-hop accuracy", lambda s: s.ood),
        ("the same, among objects only", lambda s: s.ood_obj),
    )
    for row, (name, quantity) in zip(grid, quantities, strict=True):
        for ax, (title, model) in zip(row, panels.items(), strict=True):
            for number, task in enumerate(TASKS):
                _accuracy_line(lab, replace(model, task=task), quantity, ax)
                words = TASK_WORDS[task]
                _restyle(ax, words, OKABE_ITO[number], "-:"[task == "none"])
            chance = 1 / lab.config.n_subjects
            ax.axhline(chance, color="grey", linewidth=0.8, label="chance")
            ax.set_title(title, fontsize=12)
            ax.set_ylabel(name, fontsize=11)
            ax.set_ylim(-0.05, 1.05)
    shared_legend(figure)
    return figure


def _accuracy_line(
    lab: BridgeLab, model: Recipe, quantity: Callable[[Specimen], float], ax: Axes
) -> None:
    known = lab.config.kappas
    arms = [replace(model, complexity=kappa) for kappa in known]
    arms = [arm for arm in arms if lab.has(arm)]
    found = Measurement(
        torch.tensor([[quantity(s) for s in lab.specimens(arm)] for arm in arms]),
        ("objects per subject", "seed"),
        labels={"objects per subject": tuple(arm.complexity for arm in arms)},
        name="two-hop accuracy",
    )
    curve(found, x="objects per subject", ax=ax)
    ax.set_xticks(known)


def _restyle(ax: Axes, label: str, colour: str, line: str) -> None:
    """Name and colour the line that was drawn last, and its band."""
    ax.lines[-1].set(label=label, color=colour, linestyle=line)
    for band in ax.collections[-1:]:
        band.set_facecolor(colour)


def templates(lab: BridgeLab) -> Figure:
    """What each token adds to the logits of Emb-MLP, and two-hop queries (Figure 3).

    The paper: with the identity task a subject inherits its bridge's peak on the
    object; without it a two-hop query peaks on the bridge. First seed.
    """
    figure = Figure((11, 9), layout="constrained")
    grid = figure.subplots(2, 2, height_ratios=(2.1, 1))
    found = [lab.specimens(embedding(1, task))[0] for task in TASKS]
    n = found[0].world.n_subjects
    matrices = [specimen.matrix.cpu() for specimen in found]
    sums = [m[:n] + m[2 * n] + m[2 * n + 1] for m in matrices]
    most = max(float(m.abs().max()) for m in (*matrices, *sums))
    rows = (("subjects a", n), ("bridges b", n), ("r1", 1), ("r2", 1))
    for column, task, matrix, queries in zip(
        grid.T, TASKS, matrices, sums, strict=True
    ):
        words = TASK_WORDS[task]
        _blocks(matrix, f"logits of a token, {words}", rows, column[0], most)
        above = f"two-hop query (a, r1, r2), {words}"
        _blocks(queries, above, rows[:1], column[1], most)
    return figure


def _blocks(
    matrix: Tensor, name: str, rows: Sequence[tuple[str, int]], ax: Axes, most: float
) -> None:
    """A heat map with its blocks of rows and columns named and divided."""
    n = matrix.shape[1] // 2
    measured = Measurement(matrix, ("input token", "output token"), name="logit")
    heatmap(measured, ax, limits=(-most, most)).set_title(name, fontsize=12)
    columns = (("bridges b", n), ("objects c", n))
    for axis, blocks, line in (
        (ax.yaxis, rows, ax.axhline),
        (ax.xaxis, columns, ax.axvline),
    ):
        ends = torch.tensor([0, *(size for _, size in blocks)]).cumsum(0)
        middles = (ends[1:] + ends[:-1]) / 2 - 0.5
        labels = [label for label, _ in blocks]
        if axis is ax.yaxis and len(rows) > 1:
            # One-row blocks of a large matrix: their labels would touch.
            middles[-2:] += matrix.shape[0] / 42 * torch.tensor([-0.75, 0.45])
        axis.set_ticks(middles.tolist(), labels, fontsize=10)
        axis.set_tick_params(length=0)
        for end in ends[1:-1].tolist():
            line(end - 0.5, color="black", linewidth=0.8)


def polar_alignment(lab: BridgeLab) -> Figure:
    """Angle between states of (a, r1) and its bridge, by layer (Figure 6); one seed.

    The paper: tighter with small initialisation and with weight decay.
    """
    kappa = lab.config.complexity
    arms = {
        MODELS[regime, "identity"]: gpt(kappa, regime=regime)
        for regime in lab.config.gpt.regimes
    }
    arms[MODELS["small", "none"]] = gpt(kappa, "none")
    arms = {name: arm for name, arm in arms.items() if lab.has(arm)}
    layers = range(lab.config.gpt.n_layers)
    angles = [_angles(lab.specimens(arm)[0], layers) for arm in arms.values()]
    measured = Measurement(
        torch.stack(angles),
        ("GPT-2", "layer", "pair"),
        labels={"GPT-2": tuple(arms), "layer": tuple(layer + 1 for layer in layers)},
        name=f"angle of (a, r1) to its bridge, {kappa} objects per subject",
        unit="radians",
    )
    figure = Figure((7, 6), layout="constrained")
    polar(measured, hue="GPT-2", ax=figure.add_subplot(projection="polar"))
    return figure


def _angles(specimen: TrainedGpt, layers: Sequence[int]) -> Tensor:
    cosines = torch.stack([specimen.cosines(layer) for layer in layers])
    return polar_coordinates(cosines).cpu()


def timeline(lab: BridgeLab) -> Figure:
    """Alignment, single hops and two hops over training (Figure 7).

    The paper: alignment emerges before accuracy, then both rise together.
    """
    kappa = lab.config.complexity
    panels = {
        "net cosine of (a, r1) with its bridge": {"alignment": "alignment"},
        "share right": {
            "hop2": "second hop alone",
            "ood_obj": "two hops, among objects only",
            "ood": "two hops",
        },
    }
    figure = Figure((10, 6.4), layout="constrained")
    grid = figure.subplots(2, 2, sharex=True, sharey="row")
    for column, task in zip(grid.T, TASKS, strict=True):
        metrics = lab.metrics(gpt(kappa, task).name)
        for ax, (name, lines) in zip(column, panels.items(), strict=True):
            measured = Measurement(
                torch.stack([metrics[line] for line in lines]),
                ("quantity", "seed", "step"),
                labels={
                    "quantity": tuple(lines.values()),
                    "step": tuple(metrics["step"].tolist()),
                },
                name=name,
            )
            curve(measured, x="step", hue="quantity", ax=ax)
            ax.set_xlabel("training step", fontsize=11)
            ax.get_legend().remove()
            ax.set_title("")
        title = f"GPT-2, {kappa} objects per subject, {TASK_WORDS[task]}"
        column[0].set_title(title, fontsize=12)
    grid[1, 0].legend(fontsize=9, frameon=False, loc="center right")
    return figure


def in_distribution(lab: BridgeLab) -> Figure:
    """Two-hop items of half of the bridges are trained; the others asked (Figure 1b).

    The paper: without the identity task they do not help; with it they do.
    """
    arms = [(regime, task) for regime in lab.config.gpt.regimes for task in TASKS]
    arms = [(r, task) for r, task in arms if lab.has(shown(task, r))]
    quantities: dict[str, Callable[[Specimen], float]] = {
        "trained two-hop items": lambda s: s.seen,
        "two hops over other bridges": lambda s: s.ood,
    }
    measured = Measurement(
        torch.tensor(
            [
                [[read(s) for s in lab.specimens(shown(task, r))] for r, task in arms]
                for read in quantities.values()
            ]
        ),
        ("queries", "GPT-2", "seed"),
        labels={
            "queries": tuple(quantities),
            "GPT-2": tuple(f"{r} initial weights,\n{TASK_WORDS[t]}" for r, t in arms),
        },
        name="share right",
    )
    figure = Figure((8, 1.8 + 0.6 * len(arms)), layout="constrained")
    ax = dots(measured, y="GPT-2", hue="queries", ax=figure.add_subplot())
    chance = 1 / lab.config.n_subjects
    ax.axvline(chance, color="grey", linewidth=0.8, label="chance")
    ax.set_xlim(-0.05, 1.05)
    ax.set_title("GPT-2, two-hop items of half of the bridges trained", fontsize=12)
    shared_legend(figure)
    return figure


def margins(lab: BridgeLab) -> Figure:
    """Two-hop margin of the theory's optimum against its size (Theorems 1 and 2).

    The paper: positive with the identity task, so that two hops are answered; negative
    without it.
    """
    del lab  # The theorems need no training.
    values = [
        [
            solve_symmetric(n, identity=task == "identity").two_hop_margin
            for task in TASKS
        ]
        for n in MARGIN_SIZES
    ]
    measured = Measurement(
        torch.tensor(values),
        ("number of subjects N", "optimum"),
        labels={
            "number of subjects N": MARGIN_SIZES,
            "optimum": tuple(TASK_WORDS[task] for task in TASKS),
        },
        name="least two-hop margin",
        unit="trained margins are at least 1",
    )
    ax = curve(measured, x="number of subjects N", hue="optimum")
    ax.set_xscale("log")
    ax.axhline(0, color="grey", linewidth=0.8)
    limit = (1 - 0.5**0.5) ** 0.5
    told = f"our limit of large N: {limit:.3f}"
    ax.axhline(limit, color="grey", linestyle=":", linewidth=1, label=told)
    ax.legend(fontsize=9, frameon=False, loc=(0.5, 0.27))
    ax.set_title("Two hops at the optimum (paper: > 0 with identity task)", fontsize=12)
    figure = _whole(ax)
    figure.set_label("theory, nothing is trained")
    return figure


def _whole(ax: Axes) -> Figure:
    return cast(Figure, ax.figure)

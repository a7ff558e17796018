"""The figures of the bridge study, each from an opened run."""

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
from probes.figures import OKABE_ITO, bars, curve, heatmap, polar
from probes.measurement import Measurement
from trained.bridge.config import BOTH as TASKS
from trained.bridge.config import Recipe, embedding, gpt
from trained.bridge.symmetric import solve_symmetric

from .phases import phases

MARGIN_SIZES = (3, 5, 10, 30, 100, 1000)


def accuracy(lab: BridgeLab) -> Figure:
    """Two-hop accuracy against objects per subject (Figure 2), both ways of scoring.

    The paper prints no values: it says that all three models do well at one object per
    subject, and that the small initialisation declines most slowly.
    """
    titles = {
        "small": "GPT-2, small initialisation",
        "standard": "GPT-2, standard",
        "decay": "GPT-2, weight decay",
        "std": "GPT-2, std 0.02",
    }
    panels = {titles[r]: Recipe("gpt", regime=r) for r in lab.config.gpt.regimes}
    panels["Emb-MLP"] = Recipe("embedding")
    figure = Figure((3.4 * len(panels), 6.2), layout="constrained")
    grid = figure.subplots(2, len(panels), sharex=True, sharey=True)
    quantities: tuple[tuple[str, Callable[[Specimen], float]], ...] = (
        ("two-hop accuracy", lambda s: s.ood),
        ("among objects", lambda s: s.ood_obj),
    )
    for row, (name, quantity) in zip(grid, quantities, strict=True):
        for ax, (title, model) in zip(row, panels.items(), strict=True):
            for number, task in enumerate(TASKS):
                _accuracy_line(lab, replace(model, task=task), quantity, ax)
                _restyle(ax, task, OKABE_ITO[number], "-:"[task == "none"])
            ax.axhline(1 / lab.config.n_subjects, color="grey", linewidth=0.8)
            ax.set_title(title, fontsize=12)
            ax.set_ylabel(name, fontsize=11)
            ax.set_ylim(-0.05, 1.05)
    grid[0, 0].legend(title="zero-hop task", fontsize=9, frameon=False)
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
    """Rows of Emb-MLP's Z, and their sums for two-hop queries (Figure 3)."""
    figure = Figure((11, 9), layout="constrained")
    grid = figure.subplots(2, 2, height_ratios=(2.1, 1))
    for column, task in zip(grid.T, TASKS, strict=True):
        specimen = lab.specimens(embedding(1, task))[0]
        n, matrix = specimen.world.n_subjects, specimen.matrix.cpu()
        name = "with identity" if task == "identity" else "without identity"
        rows = (("subjects a", n), ("bridges b", n), ("r1", 1), ("r2", 1))
        _blocks(matrix, f"rows of Z {name}", rows, column[0])
        queries = matrix[:n] + matrix[2 * n] + matrix[2 * n + 1]
        _blocks(
            queries, f"logits of (a, r1, r2), {name}", (("subjects a", n),), column[1]
        )
    return figure


def _blocks(
    matrix: Tensor, name: str, rows: Sequence[tuple[str, int]], ax: Axes
) -> None:
    """A heat map with its blocks of rows and columns named and divided."""
    n = matrix.shape[1] // 2
    measured = Measurement(matrix, ("input token", "output token"), name="logit")
    heatmap(measured, ax).set_title(name, fontsize=12)
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
    """Angle between (a, r1) and its bridge, by layer (Figure 6); one seed.

    The paper: tighter with small initialisation and with weight decay.
    """
    kappa = lab.config.complexity
    arms = {
        f"{regime}, identity": gpt(kappa, regime=regime)
        for regime in lab.config.gpt.regimes
    }
    arms["small, no identity"] = gpt(kappa, "none")
    arms = {name: arm for name, arm in arms.items() if lab.has(arm)}
    layers = range(lab.config.gpt.n_layers)
    angles = [_angles(lab.specimens(arm)[0], layers) for arm in arms.values()]
    measured = Measurement(
        torch.stack(angles),
        ("arm", "layer", "pair"),
        labels={"arm": tuple(arms), "layer": tuple(layer + 1 for layer in layers)},
        name=f"angle of (a, r1) to its bridge, kappa {kappa}",
        unit="radians",
    )
    figure = Figure((8, 4.5), layout="constrained")
    polar(measured, hue="arm", ax=figure.add_subplot(projection="polar"))
    return figure


def _angles(specimen: TrainedGpt, layers: Sequence[int]) -> Tensor:
    cosines = torch.stack([specimen.cosines(layer) for layer in layers])
    return polar_coordinates(cosines).cpu()


def timeline(lab: BridgeLab) -> Figure:
    """Alignment, hop 2 and two-hop accuracy over training (Figure 7)."""
    kappa = lab.config.complexity
    figure = Figure((10, 4), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    names = {
        "alignment": "net cosine with the bridge",
        "hop2": "hop-2 accuracy",
        "ood_obj": "two-hop, among objects",
        "ood": "two-hop",
    }
    for ax, task in zip(panels, TASKS, strict=True):
        metrics = lab.metrics(gpt(kappa, task).name)
        measured = Measurement(
            torch.stack([metrics[name] for name in names]),
            ("quantity", "seed", "step"),
            labels={
                "quantity": tuple(names.values()),
                "step": tuple(metrics["step"].tolist()),
            },
            name="share, or net cosine",
        )
        curve(measured, x="step", hue="quantity", ax=ax)
        what = "with identity" if task == "identity" else "without identity"
        ax.set_title(f"GPT, {kappa} objects per subject, {what}", fontsize=12)
    return figure


def margins(lab: BridgeLab) -> Figure:
    """Two-hop margins at the optimum of the program, against N (Theorems 1 and 2)."""
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
        ("N", "zero-hop task"),
        labels={"N": MARGIN_SIZES, "zero-hop task": TASKS},
        name="least two-hop margin",
    )
    ax = curve(measured, x="N", hue="zero-hop task")
    ax.set_xscale("log")
    ax.axhline(0, color="black", linewidth=0.8)
    ax.legend(title="zero-hop task", fontsize=9, frameon=False, loc=(0.65, 0.27))
    limit = (1 - 0.5**0.5) ** 0.5
    ax.axhline(limit, color="grey", linestyle=":", linewidth=1)
    ax.annotate(f"our limit {limit:.3f}", (MARGIN_SIZES[0], limit - 0.13), color="grey")
    return _whole(ax)


def causal(lab: BridgeLab) -> Figure:
    """What a state of (a, r1) does in place of a bridge's, after one block."""
    edits: dict[str, Callable[[TrainedGpt], float]] = {
        "(a, r1) in hop 2:\nfollows": lambda s: s.into_second_hop().follow,
        "the old object:\nstays": lambda s: s.into_second_hop().stay,
        "bridge span only:\nfollows": lambda s: s.span_into_second_hop().follow,
        "random subspace:\nfollows": lambda s: s.random_into_second_hop().follow,
        "random state:\nfollows": lambda s: s.noise_into_second_hop().follow,
        "r1 from donor,\ntwo hops: follows": lambda s: s.exchanged("bridge").follow,
        "no edit,\ntwo hops: right": lambda s: s.ood,
    }
    kappa = lab.config.complexity
    arms = {
        "small, identity": gpt(kappa),
        "small, none": gpt(kappa, "none"),
        "standard, identity": gpt(kappa, regime="standard"),
    }
    rows = [
        [[edit(s) for s in lab.specimens(arm)] for arm in arms.values()]
        for edit in edits.values()
    ]
    measured = Measurement(
        torch.tensor(rows),
        ("edit after one block", "model", "seed"),
        labels={"edit after one block": tuple(edits), "model": tuple(arms)},
        name="share of answers",
    )
    figure = Figure((11, 4), layout="constrained")
    ax = figure.add_subplot()
    bars(measured, x="edit after one block", hue="model", ax=ax)
    ax.set_title(f"{kappa} objects per subject", fontsize=12)
    ax.tick_params("x", labelsize=9)
    return figure


def _whole(ax: Axes) -> Figure:
    return cast(Figure, ax.figure)


FIGURES: dict[str, Callable[[BridgeLab], Figure]] = {
    "accuracy": accuracy,
    "templates": templates,
    "polar": polar_alignment,
    "timeline": timeline,
    "causal": causal,
    "margins": margins,
    "phases": phases,
}

"""What the shared memory holds, and the margin that the theorems give it."""

from collections.abc import Sequence

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from circuits.studies.bridge.lab import BridgeLab
from probes.figures import curve, heatmap
from probes.measurement import Measurement
from trained.bridge.config import BOTH as TASKS
from trained.bridge.config import embedding
from trained.bridge.symmetric import solve_symmetric

from .words import TASKS as TASK_WORDS

MARGIN_SIZES = (3, 5, 10, 30, 100, 1000)


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
        name="least two-hop margin, where trained ones are at least 1",
    )
    figure = Figure((6, 4.4), layout="constrained")
    ax = curve(
        measured, x="number of subjects N", hue="optimum", ax=figure.add_subplot()
    )
    ax.set_xscale("log")
    ax.axhline(0, color="grey", linewidth=0.8)
    limit = (1 - 0.5**0.5) ** 0.5
    told = f"our limit of large N: {limit:.3f}"
    ax.axhline(limit, color="grey", linestyle=":", linewidth=1, label=told)
    ax.legend(fontsize=9, frameon=False, loc=(0.5, 0.27))
    ax.set_title(
        "Two hops at the optimum\n(paper: > 0 with identity task only)", fontsize=12
    )
    figure.set_label("theory, nothing is trained")
    return figure

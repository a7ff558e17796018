"""Figures of the theory: kernels of templates, the first step of copying."""

from collections.abc import Callable
from math import log10
from typing import cast

import torch
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from circuits.studies.symbols.context import Context
from circuits.studies.symbols.copy_theory import rates
from circuits.studies.symbols.kernel import (
    INCIDENCE,
    MLP,
    regression,
    regression_splits,
    transformer_kernel,
)
from probes.figures import curve
from probes.measurement import Measurement
from trained.store import Run
from trained.symbols.copy_theory import GROUPS, CopySizes, wide_limit
from trained.symbols.kernel_templates import samples_needed, template_matrix
from trained.symbols.lift import Kernel
from trained.symbols.sampler import Strings
from trained.symbols.tasks import Task, task

KERNEL_STRINGS = 64
"""Strings in the picture of a kernel matrix."""


def kernel(run: Run) -> Figure:
    """Kernel matrices of training strings, sorted by template (Figure 4)."""
    context = Context(run)
    chosen = task(context.config.kernel_tasks[0])
    strings, _ = regression_splits(chosen, KERNEL_STRINGS, context.run.seeds[0])
    strings = strings.rows(strings.templates.argsort(stable=True))
    words = strings.tokens[:, :-1]
    overlap = (words[:, None, :, None] == words[None, :, None, :]).any(-1).any(-1)
    kernels: dict[str, Kernel] = {
        "transformer kernel": transformer_kernel(context.run.seeds[0]),
        "MLP kernel": MLP,
    }
    matrices = {
        name: similarity(strings.tokens, strings.tokens)
        .div(template_matrix(similarity, chosen).mean())
        .sub(1)
        .masked_fill(overlap, torch.nan)
        for name, similarity in kernels.items()
    }
    top = 1.2 * max(float(m.nan_to_num().abs().max()) for m in matrices.values())
    colours = colormaps["PuOr_r"].with_extremes(bad="0.65")
    figure = Figure((9.4, 4.4), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for ax, (name, matrix) in zip(panels, matrices.items(), strict=True):
        image = ax.imshow(matrix.numpy(), cmap=colours, vmin=-top, vmax=top)
        ax.set_title(f"{name}, {chosen.name}", fontsize=12)
        _divide(ax, chosen, strings)
    bar = figure.colorbar(image, ax=panels)
    bar.set_label("K / mean of N - 1; grey: a common symbol", fontsize=10)
    return figure


def _divide(ax: Axes, chosen: Task, strings: Strings) -> None:
    """Lines between the templates' blocks, and their names."""
    counts = torch.bincount(strings.templates, minlength=len(chosen.templates))
    ends = counts.cumsum(0)
    middles = (ends - counts / 2 - 0.5).tolist()
    names = [str(template) for template in chosen.templates]
    for axis, line in ((ax.xaxis, ax.axvline), (ax.yaxis, ax.axhline)):
        axis.set_ticks(middles, names, fontsize=10)
        axis.set_label_text("training strings, by template", fontsize=11)
        for end in ends[:-1].tolist():
            line(end - 0.5, color="black", linewidth=0.8)


def kernel_regression(run: Run) -> Figure:
    """Error of kernel regression on unseen symbols against n, with its law."""
    context = Context(run)
    sizes, seeds = context.config.kernel_n, context.run.seeds
    chosen = task(context.config.kernel_tasks[0])
    kernels: dict[str, Callable[[int], Kernel]] = {
        "transformer kernel": transformer_kernel,
        "MLP kernel": lambda _seed: MLP,
        "MLP kernel given $X X^T$": lambda _seed: INCIDENCE,
    }
    values = [
        [[regression(kernel(s), chosen, n, s)[0] for s in seeds] for n in sizes]
        for kernel in kernels.values()
    ]
    measured = Measurement(
        torch.tensor(values),
        ("kernel", "training strings n", "seed"),
        labels={"kernel": tuple(kernels), "training strings n": sizes},
        name="squared error on unseen symbols",
    )
    ax = curve(measured, x="training strings n", hue="kernel")
    needed = samples_needed(transformer_kernel(seeds[0]), chosen)
    grid = torch.logspace(log10(sizes[0]), log10(sizes[-1]), 50)
    law = (1 + grid / needed) ** -2
    label = f"$(1 + n/n_0)^{{-2}}$, $n_0$ = {needed:.0f}"
    ax.plot(grid.tolist(), law.tolist(), ":", color="black", label=label)
    ax.set(xscale="log", yscale="log")
    ax.set_xticks(sizes, [str(n) for n in sizes])
    ax.set_title(f"kernel regression, {chosen.name}", fontsize=12)
    ax.legend(fontsize=9, frameon=False)
    return cast(Figure, ax.figure)


def first_step(run: Run) -> Figure:
    """How fast the loss on an unseen symbol falls at first (Theorems 5.1, 5.2)."""
    context = Context(run)
    widths = context.config.theory_d
    found = [rates(widths, seed) for seed in context.run.seeds]
    groups = {"W_V": "$W_V$", "W_O": "$W_O$", "b": "$b$, the identity scaling"}
    values = [[[r[d][group] for r in found] for d in widths] for group in GROUPS]
    measured = Measurement(
        torch.tensor(values),
        ("trained", "width d", "seed"),
        labels={
            "trained": tuple(groups[group] for group in GROUPS),
            "width d": widths,
        },
        name="fall of the unseen loss per fall of the training loss",
    )
    ax = curve(measured, x="width d", hue="trained")
    for level in set(wide_limit(CopySizes(widths[-1])).values()):
        ax.axhline(level, color="grey", linestyle=":", linewidth=1)
    ax.axhline(0, color="black", linewidth=0.8)
    ax.set_xscale("log", base=2)
    ax.set_xticks(widths, [str(d) for d in widths])
    ax.set_ylabel("unseen per training loss, fall at t = 0", fontsize=11)
    ax.set_title("copying a symbol, the first instant; dotted: wide limit", fontsize=12)
    return cast(Figure, ax.figure)

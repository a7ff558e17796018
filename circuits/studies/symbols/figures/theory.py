"""Kernels and the first instant of training, as figures."""

from math import log10

import torch
from jaxtyping import Int
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from circuits.studies.symbols.lab import SymbolsLab
from circuits.studies.symbols.theory import MLP, RESOLVED, KernelName, Taught
from probes.figures import OKABE_ITO, curve, shared_legend
from probes.measurement import Measurement
from trained.symbols.first_step import GROUPS, wide_limit
from trained.symbols.kernel import Kernel, first_occurrence
from trained.symbols.tasks import Task, task
from trained.symbols.theory import instances, template_matrix
from trained.task import Batch

RANDOM_PARTS = 5
"""Of the whole name of a random task: `random-COUNT-LENGTH-WILDCARDS-REGULAR`."""
KERNEL_STRINGS = 40
"""Strings in the picture of a kernel matrix."""


def kernel(lab: SymbolsLab) -> Figure:
    """Kernel matrices of training strings, sorted by template (Figure 4).

    The paper: the transformer's kernel tells templates apart, the MLP's does not.
    """
    chosen = task(lab.config.kernel.tasks[0])
    draw = lab.theory.draws[0]
    strings, _ = lab.theory.splits(chosen.name, KERNEL_STRINGS, draw)
    strings = strings.rows(template_numbers(strings, chosen).argsort(stable=True))
    words = strings.tokens[:, :-1]
    overlap = (words[:, None, :, None] == words[None, :, None, :]).any(-1).any(-1)
    kernels: dict[str, Kernel] = {
        "transformer kernel": lab.theory.kernel(draw),
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
        ax.set_title(f"{name}, {chosen.name.replace('_', '/')}", fontsize=12)
        _divide(ax, chosen, strings)
    bar = figure.colorbar(image, ax=panels)
    bar.set_label("kernel above its mean (share); grey: a common symbol", fontsize=10)
    return figure


def _divide(ax: Axes, chosen: Task, strings: Batch) -> None:
    """Lines between the templates' blocks, and their names."""
    counts = torch.bincount(
        template_numbers(strings, chosen), minlength=len(chosen.templates)
    )
    ends = counts.cumsum(0)
    middles = (ends - counts / 2 - 0.5).tolist()
    names = [str(template) for template in chosen.templates]
    for axis, line in ((ax.xaxis, ax.axvline), (ax.yaxis, ax.axhline)):
        axis.set_ticks(middles, names, fontsize=10)
        axis.set_label_text("training strings, by template", fontsize=11)
        for end in ends[:-1].tolist():
            line(end - 0.5, color="black", linewidth=0.8)


def template_numbers(strings: Batch, chosen: Task) -> Int[Tensor, " batch"]:
    """Which template each string was made from; wildcards only."""
    patterns = first_occurrence(strings.tokens)
    equal = patterns[:, None] == first_occurrence(instances(chosen))
    return equal.all(-1).int().argmax(1)


def regression(lab: SymbolsLab) -> Figure:
    """Error of kernel regression on unseen symbols against n, with its law."""
    theory, sizes = lab.theory, lab.config.kernel.n
    name, draws = lab.config.kernel.tasks[0], lab.theory.draws
    few = lab.config.kernel.few_symbols
    lines: dict[str, tuple[KernelName, int | None, Taught]] = {
        "transformer kernel": ("transformer", None, "clean"),
        f"with {few} symbols": ("transformer", few, "clean"),
        "with noise on labels": ("transformer", None, "noisy"),
        "MLP kernel": ("mlp", None, "clean"),
        "MLP kernel, told which tokens match": ("incidence", None, "clean"),
    }
    values = [
        [
            [
                float(theory.errors(name, n, d, which, symbols)[how].mean())
                for d in draws
            ]
            for n in sizes
        ]
        for which, symbols, how in lines.values()
    ]
    measured = Measurement(
        torch.tensor(values),
        ("regression", "training strings n", "draw"),
        labels={"regression": tuple(lines), "training strings n": sizes},
        name="squared error on unseen symbols",
    )
    figure = Figure((6.4, 5.2), layout="constrained")
    ax = figure.add_subplot()
    curve(measured, x="training strings n", hue="regression", band="draw", ax=ax)
    needed = theory.scale(draws[0])
    grid = torch.logspace(log10(sizes[0]), log10(sizes[-1]), 50)
    law = (1 + grid / needed) ** -2
    label = f"law: $(1 + n/n_0)^{{-2}}$, $n_0$ = {needed:.0f}"
    ax.plot(grid.tolist(), law.tolist(), ":", color="grey", label=label)
    ax.set(xscale="log", yscale="log")
    ax.set_xticks(sizes, [str(n) for n in sizes])
    ax.set_xticks([], minor=True)
    ax.set_title(f"kernel regression, {name.replace('_', '/')}", fontsize=12)
    shared_legend(figure, ncols=2)
    return figure


def nonsingular(lab: SymbolsLab) -> Figure:
    """How far the templates' kernel matrix N is from singular (Theorem 4.4).

    By draw of parameters and templates, in units of the integration's error.
    """
    names = lab.config.kernel.matrix_tasks
    figure = Figure((7.6, 4.2), layout="constrained")
    ax = figure.add_subplot()
    kinds = {"eigenvalue": "least eigenvalue of N", "gap": "gap of Equation 9"}
    for shift, (quantity, label) in enumerate(kinds.items()):
        for place, name in enumerate(names):
            found = [lab.theory.resolved(d, name)[quantity] for d in lab.theory.draws]
            ax.scatter(
                [place + 0.2 * shift - 0.1] * len(found),
                found,
                s=24,
                alpha=0.7,
                color=OKABE_ITO[shift],
                label=None if place else label,
            )
    ax.axhline(RESOLVED, color="grey", linestyle=":", label="above: not zero")
    ax.set_yscale("log")
    ax.set_xticks(range(len(names)), [_named(n) for n in names], fontsize=9)
    ax.set_xlabel("templates (random ones with so many fixed tokens)", fontsize=11)
    ax.set_ylabel("value over its integration error", fontsize=11)
    ax.set_title(
        "Is the templates' kernel matrix N singular? (parameters drawn)", fontsize=12
    )
    shared_legend(figure)
    return figure


def _named(task: str) -> str:
    """A task in words; of random templates, how many of their tokens are no symbols."""
    parts = task.split("-")
    if parts[0] == "random" and len(parts) == RANDOM_PARTS:
        return f"random,\n{parts[-1]} fixed"
    return task.replace("_", "/")


def first_step(lab: SymbolsLab) -> Figure:
    """How fast the loss on an unseen symbol falls at first (Theorems 5.1, 5.2).

    The paper: in wide models only the identity scaling b makes it fall.
    """
    own = lab.config.first_step
    gamma = own.gammas[len(own.gammas) // 2]
    groups = {
        "W_V": "$W_V$",
        "W_O": "$W_O$",
        "W_E": "$W_E$",
        "position": "positions",
        "b": "$b$, the identity scaling",
    }
    shown = {g: groups[g] for g in (*GROUPS, "b") if gamma or g != "position"}
    values = [lab.theory.first_step(group, gamma).mT.tolist() for group in shown]
    measured = Measurement(
        torch.tensor(values),
        ("trained", "width d", "draw"),
        labels={"trained": tuple(shown.values()), "width d": own.d_model},
        name="fall of the unseen loss per fall of the training loss",
    )
    figure = Figure((6.4, 5), layout="constrained")
    ax = figure.add_subplot()
    curve(measured, x="width d", hue="trained", band="draw", ax=ax)
    sizes = lab.theory.copy_sizes(own.d_model[-1], gamma)
    for level in set(wide_limit(sizes).values()):
        ax.axhline(level, color="grey", linestyle=":", label="limit of wide models")
    ax.axhline(0, color="grey", linewidth=0.8)
    ax.set_xscale("log", base=2)
    ax.set_xticks(own.d_model, [str(d) for d in own.d_model])
    ax.set_ylabel("fall of the unseen loss over that of training")
    title = f"copying a symbol, first instant; position strength {gamma:g}"
    ax.set_title(title, fontsize=12)
    shared_legend(figure, "what is trained", ncols=3)
    return figure

"""The figures of the symbols study, each from an opened run."""

from collections.abc import Callable
from math import log10
from typing import Literal, cast

import torch
from jaxtyping import Int
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from circuits.interventions.head_matrices import head_matrices
from probes.figures import OKABE_ITO, bars, curve, heatmap
from probes.measurement import Measurement
from probes.statistics import bootstrap_interval
from probes.weights import diagonal_score
from trained.symbols.kernel import Kernel, first_occurrence
from trained.symbols.setting import Identity, Setting, baseline, copying, relation
from trained.symbols.tasks import Task, task
from trained.symbols.theory import (
    GROUPS,
    instances,
    template_matrix,
    wide_limit,
)
from trained.task import Batch

from .lab import SymbolsLab
from .specimen import Specimen, diagonal_scores
from .theory import MLP, KernelName

Circuit = Literal["qk", "ov"]
SHOWN = 64
"""Directions of the residual that heat maps show; the diagonal is alike in all."""
KERNEL_STRINGS = 64
"""Strings in the picture of a kernel matrix."""


def efficiency(lab: SymbolsLab) -> Figure:
    """Test error on unseen symbols against the number of training strings."""
    config = lab.config
    lines = {
        "vanilla": [relation(config, n) for n in config.n],
        "$W_K W_Q^T + aI$": [relation(config, n, "a") for n in config.identity_n],
        "MLP": [baseline(config, n) for n in config.perceptron_n],
        "MLP given $X X^T$": [
            baseline(config, n, "mlp_incidence") for n in config.perceptron_n
        ],
    }
    figure = Figure((6.4, 4.2), layout="constrained")
    ax = figure.add_subplot()
    for (label, settings), colour in zip(lines.items(), OKABE_ITO, strict=False):
        _curve(lab, settings, label, colour, ax)
    ax.axhline(1, color="grey", linewidth=0.8)
    ax.axhline(lab.config.level, color="grey", linewidth=0.8, linestyle=":")
    ax.set_xscale("log", base=2)
    ticks = sorted({*config.n, *config.identity_n})
    ax.set_xticks(ticks, [str(n) for n in ticks])
    ax.set_xlabel("training strings n (and training symbols)", fontsize=11)
    ax.set_ylabel("test MSE on unseen symbols", fontsize=11)
    ax.set_ylim(0, 1.25 * ax.get_ylim()[1])
    ax.set_title(f"data efficiency, {config.task}", fontsize=12)
    ax.legend(fontsize=9, frameon=False, loc="upper center", ncols=2)
    return figure


def _curve(
    lab: SymbolsLab,
    settings: list[Setting],
    label: str,
    colour: str,
    ax: Axes,
) -> None:
    """A line of means over seeds with their 95 % bootstrap intervals.

    MLPs after the last step, where they are judged; the rest at the best one.
    """
    sizes = [setting.n for setting in settings]
    is_mlp = settings[0].model.startswith("mlp")
    scores = lab.last_scores if is_mlp else lab.scores
    values = [torch.tensor(scores(setting)).double() for setting in settings]
    ax.plot(sizes, [float(v.mean()) for v in values], "o-", color=colour, label=label)
    low, high = zip(*(bootstrap_interval(v) for v in values), strict=True)
    ax.fill_between(sizes, low, high, color=colour, alpha=0.2, linewidth=0)


def copying_error(lab: SymbolsLab) -> Figure:
    """Error of naming an unseen symbol, by width (Figure 5)."""
    config = lab.config
    figure = Figure((8.4, 3.9), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    named: tuple[tuple[str, Identity], ...] = (
        ("vanilla", "none"),
        ("$W_V W_O^T + bI$", "b"),
    )
    for ax, (title, identity) in zip(panels, named, strict=True):
        rows = [
            [
                lab.scores(copying(d, n, identity), "test_error")
                for n in config.copying.n
            ]
            for d in config.copying.d_model
        ]
        measured = Measurement(
            torch.tensor(rows),
            ("width d", "n", "seed"),
            labels={"width d": config.copying.d_model, "n": config.copying.n},
            name="test error on unseen symbols",
        )
        curve(measured, x="width d", hue="n", ax=ax)
        ax.set_xscale("log", base=2)
        ax.set_xticks(config.copying.d_model, [str(d) for d in config.copying.d_model])
        ax.minorticks_off()
        ax.set_ylim(-0.03, 1.03)
        ax.set_title(f"copying, {title}", fontsize=12)
    return figure


def diagonals(lab: SymbolsLab) -> Figure:
    """The most diagonal heads before and after training, and z of all (Figure 7)."""
    config = lab.config
    wide = config.copying.d_model[-1]
    rows: tuple[tuple[str, list[Setting], Circuit], ...] = (
        ("$W_Q W_K^T$, relation", [relation(config, n) for n in config.n], "qk"),
        (
            f"$W_V W_O$, copying, d = {wide}",
            [copying(wide, n) for n in config.copying.n],
            "ov",
        ),
    )
    figure = Figure((12.5, 7.2), layout="constrained")
    grid = figure.subplots(2, 3)
    for axes, (title, settings, circuit) in zip(grid, rows, strict=True):
        last = settings[-1]
        for ax, when, which in (
            (axes[0], "before training", lab.untrained()),
            (axes[1], f"vanilla, n = {last.n}", lab),
        ):
            _strongest(which.specimens(last)[0], circuit, f"{title}\n{when}", ax)
        _scores(lab, settings, circuit, axes[2])
        axes[2].set_title(f"{title}\nall heads and seeds", fontsize=11)
    return figure


def _strongest(specimen: Specimen, circuit: Circuit, title: str, ax: Axes) -> None:
    """The head with the largest |z|."""
    layers = range(specimen.model.config.n_layers)
    matrices = [head_matrices(specimen.model, n).matrix(circuit) for n in layers]
    flat = torch.cat(matrices)
    scores = diagonal_score(flat)
    best = int(scores.abs().argmax())
    shown = flat[best, :SHOWN, :SHOWN]
    measured = Measurement(shown, ("input", "output"), name="weight")
    heatmap(measured, ax).set_title(f"{title}, z = {scores[best]:.1f}", fontsize=11)
    ticks = list(range(0, len(shown), 16))
    ax.set(xticks=ticks, xticklabels=ticks, yticks=ticks, yticklabels=ticks)
    ax.set_xlabel(f"output (first {len(shown)} of {flat.shape[-1]})", fontsize=10)


def _scores(
    lab: SymbolsLab, settings: list[Setting], circuit: Circuit, ax: Axes
) -> None:
    """Z of every head and seed, by training strings."""
    columns = [lab.untrained().specimens(settings[-1])]
    columns += [lab.specimens(setting) for setting in settings]
    for place, found in enumerate(columns):
        scores = [diagonal_scores(s.model, circuit).flatten() for s in found]
        values = torch.cat(scores).tolist()
        colour = OKABE_ITO[1] if place else "grey"
        ax.scatter([place] * len(values), values, s=16, alpha=0.6, color=colour)
    ax.axhspan(-2, 2, color="grey", alpha=0.15, linewidth=0, label="random: |z| < 2")
    names = ["untrained", *(f"n = {setting.n}" for setting in settings)]
    ax.set_xticks(range(len(names)), names, fontsize=9)
    ax.set_ylabel("z = sqrt(d) tr M / |M|", fontsize=11)
    ax.legend(fontsize=9, frameon=False)


def causal(lab: SymbolsLab) -> Figure:
    """Knock-outs of a, and patterns exchanged between strings."""
    config = lab.config
    modified = relation(config, config.compared_n, "a")
    figure = Figure((11, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)

    def knocked_out(layer: int) -> Callable[[Specimen], float]:
        return lambda s: s.without("a", layer).error()

    edits: dict[str, Callable[[Specimen], float]] = {
        "none": lambda s: s.error(),
        **{f"a = 0\nlayer {n}": knocked_out(n) for n in range(config.model.depth)},
        "a to mean\nlayer 0": lambda s: s.averaged_error(),
        "$W_Q = 0$\nall layers": lambda s: s.without("W_Q").error(),
    }
    measured = Measurement(
        torch.tensor([lab.over(modified, edit) for edit in edits.values()]),
        ("edit", "seed"),
        labels={"edit": tuple(edits)},
        name="test sign error",
    )
    bars(measured, x="edit", ax=left)
    left.axhline(0.5, color="grey", linewidth=0.8)
    left.set_title(f"+aI, {config.task}, n = {config.compared_n}", fontsize=12)
    _patching(lab, right)
    return figure


def _patching(lab: SymbolsLab, ax: Axes) -> None:
    """Bars of the moved share of the output gap."""
    config = lab.config
    most = config.n[-1]
    models = {
        f"+aI, n = {config.compared_n}": relation(config, config.compared_n, "a"),
        f"vanilla, n = {most}": relation(config, most),
    }
    places = [
        (layer, same) for layer in range(config.model.depth) for same in (False, True)
    ]
    labels = [f"layer {at}\n{'same' if same else 'other'} label" for at, same in places]
    rows = [
        [
            [s.pattern_effect(layer, same=same) for s in lab.specimens(setting)]
            for setting in models.values()
        ]
        for layer, same in places
    ]
    measured = Measurement(
        torch.tensor(rows),
        ("pattern taken from a string", "model", "seed"),
        labels={"pattern taken from a string": tuple(labels), "model": tuple(models)},
        name="share of the output gap that moves",
    )
    bars(measured, x="pattern taken from a string", hue="model", ax=ax)
    ax.axhline(1, color="grey", linewidth=0.8)
    ax.set_ylim(None, 1.3)
    ax.set_title("patterns exchanged between strings", fontsize=12)


def kernel(lab: SymbolsLab) -> Figure:
    """Kernel matrices of training strings, sorted by template (Figure 4)."""
    chosen = task(lab.config.kernel.tasks[0])
    strings, _ = lab.theory.regression_splits(KERNEL_STRINGS, lab.seeds[0])
    strings = strings.rows(template_numbers(strings, chosen).argsort(stable=True))
    words = strings.tokens[:, :-1]
    overlap = (words[:, None, :, None] == words[None, :, None, :]).any(-1).any(-1)
    kernels: dict[str, Kernel] = {
        "transformer kernel": lab.theory.kernel(lab.seeds[0]),
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


def kernel_regression(lab: SymbolsLab) -> Figure:
    """Error of kernel regression on unseen symbols against n, with its law."""
    sizes = lab.config.kernel.n
    kernels: dict[str, KernelName] = {
        "transformer kernel": "transformer",
        "MLP kernel": "mlp",
        "MLP kernel given $X X^T$": "incidence",
    }
    values = [
        [lab.theory.squared_errors(k, n) for n in sizes] for k in kernels.values()
    ]
    measured = Measurement(
        torch.tensor(values),
        ("kernel", "training strings n", "seed"),
        labels={"kernel": tuple(kernels), "training strings n": sizes},
        name="squared error on unseen symbols",
    )
    ax = curve(measured, x="training strings n", hue="kernel")
    needed = lab.theory.samples_needed()[0]
    grid = torch.logspace(log10(sizes[0]), log10(sizes[-1]), 50)
    law = (1 + grid / needed) ** -2
    label = f"$(1 + n/n_0)^{{-2}}$, $n_0$ = {needed:.0f}"
    ax.plot(grid.tolist(), law.tolist(), ":", color="black", label=label)
    ax.set(xscale="log", yscale="log")
    ax.set_xticks(sizes, [str(n) for n in sizes])
    ax.set_title(f"kernel regression, {lab.config.kernel.tasks[0]}", fontsize=12)
    ax.legend(fontsize=9, frameon=False)
    return cast(Figure, ax.figure)


def first_step(lab: SymbolsLab) -> Figure:
    """How fast the loss on an unseen symbol falls at first (Theorems 5.1, 5.2)."""
    widths = lab.config.first_step.d_model
    groups = {"W_V": "$W_V$", "W_O": "$W_O$", "b": "$b$, the identity scaling"}
    values = [
        [[r[group] for r in lab.theory.first_steps(d)] for d in widths]
        for group in GROUPS
    ]
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
    for level in set(wide_limit(lab.theory.copy_sizes(widths[-1])).values()):
        ax.axhline(level, color="grey", linestyle=":", linewidth=1)
    ax.axhline(0, color="black", linewidth=0.8)
    ax.set_xscale("log", base=2)
    ax.set_xticks(widths, [str(d) for d in widths])
    ax.set_ylabel("unseen per training loss, fall at t = 0", fontsize=11)
    ax.set_title("copying a symbol, the first instant; dotted: wide limit", fontsize=12)
    return cast(Figure, ax.figure)


FIGURES: dict[str, Callable[[SymbolsLab], Figure]] = {
    "efficiency": efficiency,
    "copying": copying_error,
    "diagonals": diagonals,
    "causal": causal,
    "kernel": kernel,
    "kernel-regression": kernel_regression,
    "first-step": first_step,
}

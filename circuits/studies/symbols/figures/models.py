"""Figures of the trained models: data, copying, diagonals, edits."""

from collections.abc import Callable
from functools import partial

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from circuits.studies.symbols.causal import (
    error_averaged,
    error_without,
    error_without_queries,
    unseen_error,
)
from circuits.studies.symbols.claims_relation import LEVEL
from circuits.studies.symbols.context import Context, Specimen
from circuits.studies.symbols.diagonals import key_query, value_output
from circuits.studies.symbols.edits import decoder
from circuits.studies.symbols.patterns import pattern_effect
from probes.figures import OKABE_ITO, bars, curve, heatmap
from probes.measurement import Measurement
from probes.statistics import bootstrap_interval
from probes.weights import diagonal_score
from trained.decoder import Decoder
from trained.store import Run
from trained.symbols.setting import Setting, baseline, copying, relation
from trained.symbols.transformer import Identity

SHOWN = 64
"""Directions of the residual that heat maps show; the diagonal is alike in all."""


def efficiency(run: Run) -> Figure:
    """Test error on unseen symbols against the number of training strings."""
    context = Context(run)
    config = context.config
    lines = {
        "vanilla": [relation(config, n) for n in config.n],
        "$W_K W_Q^T + aI$": [relation(config, n, "a") for n in config.identity_n],
        "MLP": [baseline(config, n) for n in config.n],
        "MLP given $X X^T$": [baseline(config, n, "mlp_incidence") for n in config.n],
    }
    figure = Figure((6.4, 4.2), layout="constrained")
    ax = figure.add_subplot()
    for (label, settings), colour in zip(lines.items(), OKABE_ITO, strict=False):
        _curve(context, settings, label, colour, ax)
    ax.axhline(1, color="grey", linewidth=0.8)
    ax.axhline(LEVEL, color="grey", linewidth=0.8, linestyle=":")
    ax.set_xscale("log", base=2)
    ax.set_xticks(config.n, [str(n) for n in config.n])
    ax.set_xlabel("training strings n (and training symbols)", fontsize=11)
    ax.set_ylabel("test MSE on unseen symbols", fontsize=11)
    ax.set_ylim(0, 1.25 * ax.get_ylim()[1])
    ax.set_title(f"data efficiency, {config.task}", fontsize=12)
    ax.legend(fontsize=9, frameon=False, loc="upper center", ncols=2)
    return figure


def _curve(
    context: Context,
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
    scores = context.last_scores if is_mlp else context.scores
    values = [torch.tensor(scores(setting)).double() for setting in settings]
    ax.plot(sizes, [float(v.mean()) for v in values], "o-", color=colour, label=label)
    low, high = zip(*(bootstrap_interval(v) for v in values), strict=True)
    ax.fill_between(sizes, low, high, color=colour, alpha=0.2, linewidth=0)


def copying_error(run: Run) -> Figure:
    """Error of naming an unseen symbol, by width (Figure 5)."""
    context = Context(run)
    config = context.config
    figure = Figure((8.4, 3.9), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    named: tuple[tuple[str, Identity], ...] = (
        ("vanilla", "none"),
        ("$W_V W_O^T + bI$", "b"),
    )
    for ax, (title, identity) in zip(panels, named, strict=True):
        rows = [
            [
                context.scores(copying(d, n, identity), "test_error")
                for n in config.copy_n
            ]
            for d in config.copy_d
        ]
        measured = Measurement(
            torch.tensor(rows),
            ("width d", "n", "seed"),
            labels={"width d": config.copy_d, "n": config.copy_n},
            name="test error on unseen symbols",
        )
        curve(measured, x="width d", hue="n", ax=ax)
        ax.set_xscale("log", base=2)
        ax.set_xticks(config.copy_d, [str(d) for d in config.copy_d])
        ax.minorticks_off()
        ax.set_ylim(-0.03, 1.03)
        ax.set_title(f"copying, {title}", fontsize=12)
    return figure


def diagonals(run: Run) -> Figure:
    """The most diagonal heads before and after training, and z of all (Figure 7)."""
    context = Context(run)
    config = context.config
    wide = config.copy_d[-1]
    rows: tuple[tuple[str, list[Setting], Callable[[Decoder], Tensor]], ...] = (
        ("$W_Q W_K^T$, relation", [relation(config, n) for n in config.n], key_query),
        (
            f"$W_V W_O$, copying, d = {wide}",
            [copying(wide, n) for n in config.copy_n],
            value_output,
        ),
    )
    figure = Figure((12.5, 7.2), layout="constrained")
    grid = figure.subplots(2, 3)
    for axes, (title, settings, matrices) in zip(grid, rows, strict=True):
        last = settings[-1]
        for ax, when, found in (
            (axes[0], "before training", context.untrained(last)),
            (axes[1], f"vanilla, n = {last.n}", context.specimens(last)),
        ):
            _strongest(matrices(decoder(found[0])), f"{title}\n{when}", ax)
        _scores(context, settings, matrices, axes[2])
        axes[2].set_title(f"{title}\nall heads and seeds", fontsize=11)
    return figure


def _strongest(matrices: Tensor, title: str, ax: Axes) -> None:
    """The head with the largest |z|."""
    flat = matrices.flatten(0, 1)
    scores = diagonal_score(flat)
    best = int(scores.abs().argmax())
    shown = flat[best, :SHOWN, :SHOWN]
    measured = Measurement(shown, ("input", "output"), name="weight")
    heatmap(measured, ax).set_title(f"{title}, z = {scores[best]:.1f}", fontsize=11)
    ticks = list(range(0, len(shown), 16))
    ax.set(xticks=ticks, xticklabels=ticks, yticks=ticks, yticklabels=ticks)
    ax.set_xlabel(f"output (first {len(shown)} of {flat.shape[-1]})", fontsize=10)


def _scores(
    context: Context,
    settings: list[Setting],
    matrices: Callable[[Decoder], Tensor],
    ax: Axes,
) -> None:
    """Z of every head and seed, by training strings."""
    columns = [context.untrained(settings[-1])]
    columns += [context.specimens(setting) for setting in settings]
    for place, found in enumerate(columns):
        scores = [diagonal_score(matrices(decoder(s))).flatten() for s in found]
        values = torch.cat(scores).tolist()
        colour = OKABE_ITO[1] if place else "grey"
        ax.scatter([place] * len(values), values, s=16, alpha=0.6, color=colour)
    ax.axhspan(-2, 2, color="grey", alpha=0.15, linewidth=0, label="random: |z| < 2")
    names = ["untrained", *(f"n = {setting.n}" for setting in settings)]
    ax.set_xticks(range(len(names)), names, fontsize=9)
    ax.set_ylabel("z = sqrt(d) tr M / |M|", fontsize=11)
    ax.legend(fontsize=9, frameon=False)


def causal(run: Run) -> Figure:
    """Knock-outs of a, and patterns exchanged between strings."""
    context = Context(run)
    config = context.config
    modified = relation(config, config.compared_n, "a")
    figure = Figure((11, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    layers = range(config.depth)
    edits: dict[str, Callable[[Specimen], float]] = {
        "none": unseen_error,
        **{
            f"a = 0\nlayer {layer}": partial(_error_without, layer=layer)
            for layer in layers
        },
        "a to mean\nlayer 0": lambda s: error_averaged(s, "a", range(1)),
        "$W_Q = 0$\nall layers": error_without_queries,
    }
    measured = Measurement(
        torch.tensor([context.each(modified, edit) for edit in edits.values()]),
        ("edit", "seed"),
        labels={"edit": tuple(edits)},
        name="test sign error",
    )
    bars(measured, x="edit", ax=left)
    left.axhline(0.5, color="grey", linewidth=0.8)
    left.set_title(f"+aI, {config.task}, n = {config.compared_n}", fontsize=12)
    _patching(context, right)
    return figure


def _error_without(specimen: Specimen, layer: int) -> float:
    return error_without(specimen, "a", range(layer, layer + 1))


def _patching(context: Context, ax: Axes) -> None:
    """Bars of the moved share of the output gap."""
    config = context.config
    most = config.n[-1]
    models = {
        f"+aI, n = {config.compared_n}": relation(config, config.compared_n, "a"),
        f"vanilla, n = {most}": relation(config, most),
    }
    places = [(layer, same) for layer in range(config.depth) for same in (False, True)]
    labels = [f"layer {at}\n{'same' if same else 'other'} label" for at, same in places]
    rows = [
        [
            [pattern_effect(s, layer, same=same) for s in context.specimens(setting)]
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

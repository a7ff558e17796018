"""Weights and edits of trained models, as figures."""

from collections.abc import Callable
from typing import Literal

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from circuits.interventions.head_matrices import head_matrices
from circuits.studies.symbols.lab import SymbolsLab
from circuits.studies.symbols.specimen import Specimen, diagonal_scores
from probes.figures import OKABE_ITO, bars, heatmap
from probes.measurement import Measurement
from probes.weights import diagonal_score
from trained.symbols.setting import Setting, copying, relation

Circuit = Literal["qk", "ov"]
SHOWN = 64
"""Directions of the residual that heat maps show; the diagonal is alike in all."""


def diagonals(lab: SymbolsLab) -> Figure:
    """The most diagonal heads before and after training, and z of all (Figure 7)."""
    config = lab.config
    wide = config.copying.d_model[-1]
    copied = sorted({config.copying.span_n, *config.copying.n})
    rows: tuple[tuple[str, list[Setting], Circuit], ...] = (
        ("$W_Q W_K^T$, relation", [relation(config, n) for n in config.n], "qk"),
        (
            f"$W_V W_O$, copying, d = {wide}",
            [copying(config, wide, n) for n in copied],
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
        "aQ off\nlayer 0": lambda s: s.turned("a", 0).error(),
        "$W_Q = 0$\nall layers": lambda s: s.without("W_Q").error(),
    }
    measured = Measurement(
        torch.tensor([lab.over(modified, edit) for edit in edits.values()]),
        ("edit", "seed"),
        labels={"edit": tuple(edits)},
        name="test error (nearest label)",
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

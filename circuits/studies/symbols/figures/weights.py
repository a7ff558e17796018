"""Weights and edits of trained models, as figures."""

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from circuits.interventions.head_matrices import head_matrices
from circuits.studies.symbols.lab import SymbolsLab
from circuits.studies.symbols.specimen import Specimen, diagonal_scores
from probes.figures import OKABE_ITO, dots, heatmap, limits_of, shared_legend
from probes.measurement import Measurement
from probes.weights import diagonal_score
from trained.symbols.setting import Setting, copying, relation

Circuit = Literal["qk", "ov"]
SHOWN = 64
"""Directions of the residual that heat maps show; the diagonal is alike in all."""


def diagonals(lab: SymbolsLab) -> Figure:
    """The most diagonal heads before and after training, and all (after Figure 7).

    z is the trace of a head's matrix M over what a random one as large would have,
    sqrt(d) tr M / |M|: within 2 of zero nothing is diagonal.
    """
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
        found = {
            "before training": _strongest(lab.untrained().specimens(last)[0], circuit),
            f"trained, n = {last.n}": _strongest(lab.specimens(last)[0], circuit),
        }
        limits = limits_of(torch.stack([matrix for matrix, _ in found.values()]))
        for ax, (when, (matrix, z)) in zip(axes, found.items(), strict=False):
            _map(matrix, f"{title}\n{when}, z = {z:.1f}", limits, ax)
        _scores(lab, settings, circuit, axes[2])
        axes[2].set_title(f"{title}\nall heads and seeds", fontsize=11)
    return figure


def _strongest(specimen: Specimen, circuit: Circuit) -> tuple[Tensor, float]:
    """The head with the largest |z|, and its z."""
    layers = range(specimen.model.config.n_layers)
    matrices = [head_matrices(specimen.model, n).matrix(circuit) for n in layers]
    flat = torch.cat(matrices)
    scores = diagonal_score(flat)
    best = int(scores.abs().argmax())
    return flat[best].cpu(), float(scores[best])


def _map(matrix: Tensor, title: str, limits: tuple[float, float], ax: Axes) -> None:
    shown = matrix[:SHOWN, :SHOWN]
    measured = Measurement(shown, ("input", "output"), name="weight")
    heatmap(measured, ax, limits=limits).set_title(title, fontsize=11)
    ticks = list(range(0, len(shown), 16))
    ax.set(xticks=ticks, xticklabels=ticks, yticks=ticks, yticklabels=ticks)
    part = f" (first {len(shown)} of {len(matrix)})" * (len(shown) < len(matrix))
    ax.set_xlabel(f"output{part}", fontsize=10)


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
    ax.set_xlim(-0.4, len(names) - 0.6)
    ax.set_xlabel("training strings n", fontsize=10)
    ax.set_ylabel("z of the diagonal", fontsize=11)
    ax.legend(fontsize=9, frameon=False)


def causal(lab: SymbolsLab) -> Figure:
    """Edits of the identity scaling a, and attention patterns exchanged.

    Taking a off must raise the error, a random rotation as large must not; a pattern
    from a string of the other label must move the output, one of the same must not.
    """
    config = lab.config
    figure = Figure((14, 4.4), layout="constrained")
    left, *others = figure.subplots(1, 3, width_ratios=(1.3, 1, 1))
    others[1].sharey(others[0])

    def knocked_out(layer: int) -> Callable[[Specimen], float]:
        return lambda s: s.without("a", layer).balanced_error()

    layers = range(config.model.depth)
    edits: dict[str, Callable[[Specimen], float]] = {
        "no edit": lambda s: s.balanced_error(),
        **{f"a = 0 in layer {n}": knocked_out(n) for n in layers},
        "what a adds at its mean, layer 0": lambda s: s.averaged_error(),
        "$W_Q = 0$ in all layers": lambda s: s.without("W_Q").balanced_error(),
        "control: random rotation off, layer 0": (
            lambda s: s.turned("a", 0).balanced_error()
        ),
    }
    modified = relation(config, config.compared_n, "a")
    measured = Measurement(
        torch.tensor([lab.over(modified, edit) for edit in edits.values()]),
        ("edit", "seed"),
        labels={"edit": tuple(edits)},
        name="test error, mean of both labels",
    )
    dots(measured, y="edit", ax=left)
    left.axvline(0.5, color="grey", linewidth=0.8, label="chance")
    task, n = config.task.replace("_", "/"), config.compared_n
    title = f"Edits of the identity scaling $aI$\n{task}, n = {n}"
    left.set_title(title, fontsize=12)
    _patching(lab, others)
    shared_legend(figure)
    return figure


def _patching(lab: SymbolsLab, panels: Sequence[Axes]) -> None:
    """The moved share of the output gap, by layer."""
    config = lab.config
    most = config.n[-1]
    models = {
        f"with $aI$, n = {config.compared_n}": relation(config, config.compared_n, "a"),
        f"without it, n = {most}": relation(config, most),
    }
    layers = range(config.model.depth)
    kinds = {
        "Attention pattern taken from\na string of the other label": False,
        "Null: from a string\nof the same label": True,
    }
    for ax, (title, same) in zip(panels, kinds.items(), strict=True):
        rows = [
            [
                [s.pattern_effect(layer, same=same) for s in lab.specimens(setting)]
                for setting in models.values()
            ]
            for layer in layers
        ]
        measured = Measurement(
            torch.tensor(rows),
            ("layer", "model", "seed"),
            labels={
                "layer": tuple(f"layer {n}" for n in layers),
                "model": tuple(models),
            },
            name="share of the output gap that moves",
        )
        dots(measured, y="layer", hue="model", ax=ax).set_title(title, fontsize=12)
        ax.axvline(0, color="grey", linewidth=0.8)
        ax.set_xlim(-0.3, 1.3)

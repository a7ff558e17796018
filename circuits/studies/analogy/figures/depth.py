"""Alignment from layer to layer: the paper's Figure 1."""

from collections.abc import Callable
from functools import partial

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from circuits.studies.analogy.lab import AnalogyLab
from probes.figures import OKABE_ITO, curve
from probes.measurement import Label, Measurement

from .words import trained

Panel = tuple[str, dict[str, list[Tensor]]]
"""A title, and by name the curves of all seeds."""


def depth(lab: AnalogyLab) -> Figure:
    """Figure 1: alignment from layer to layer, deep linear networks and GPT-2.

    The paper: inputs with the same label align more from layer to layer.
    """
    panels = [panel for part in trained(lab, "linear", "gpt") for panel in PANELS[part]]
    drawn = [panel(lab) for panel in panels]
    rows = -(-len(drawn) // 2)
    figure = Figure((11, 4.2 * rows), layout="constrained")
    axes = figure.subplots(rows, 2, squeeze=False, sharey=True).flat
    for ax, (title, curves) in zip(axes, drawn, strict=False):
        for colour, (name, seeds) in zip(OKABE_ITO, curves.items(), strict=False):
            _line(ax, name, seeds, colour)
        ax.set_title(title, fontsize=12)
        ax.set_xlabel("layers passed (0: the input)", fontsize=11)
        ax.axhline(0, color="grey", linewidth=0.8)
        ax.xaxis.get_major_locator().set_params(integer=True)
        ax.legend(
            fontsize=9,
            frameon=False,
            ncols=3,
            loc="upper center",
            bbox_to_anchor=(0.5, -0.16),
        )
    for ax in list(figure.axes)[len(drawn) :]:
        ax.remove()
    return figure


def _line(ax: Axes, name: str, seeds: list[Tensor], colour: str) -> None:
    """One curve by itself, as nulls have fewer seeds."""
    labels: dict[str, tuple[Label, ...]] = {"seed": tuple(range(len(seeds)))}
    found = Measurement(torch.stack(seeds), ("seed", "layer"), labels, "cosine")
    bands = len(ax.collections)
    curve(found, x="layer", ax=ax)
    ax.lines[-1].set(label=name, color=colour)
    for band in ax.collections[bands:]:
        band.set_color(colour)


def _linear(inputs: int, lab: AnalogyLab) -> Panel:
    found, before = lab.linear_depth(inputs), lab.untrained().linear_depth(inputs)
    return f"Figure 1a: deep linear network, {inputs} inputs per label", {
        "same label": [same.mean(-1) for same, _ in found],
        "different labels": [other.mean(-1) for _, other in found],
        "same label, untrained": [same.mean(-1) for same, _ in before],
    }


def _labelled(lab: AnalogyLab) -> Panel:
    found, own = lab.labelled_depth(), lab.labelled_depth("gpt-own_labels")
    return "Figure 1b: GPT-2 on single tokens", {
        "same label": [same.mean(-1) for same, _ in found],
        "different labels": [other.mean(-1) for _, other in found],
        "each its own label": [same.mean(-1) for same, _ in own],
    }


def _prompts(lab: AnalogyLab) -> Panel:
    curriculum = "joint" if "joint" in lab.config.curricula else "bridge"
    name = lab.named("gpt", curriculum)
    entity, last = lab.prompt_depth(name, "entity"), lab.prompt_depth(name, "last")
    return "Ours: GPT-2, source and target in test prompts", {
        "at the entity": [pairs.mean(-1) for pairs, _ in entity],
        "at the last token": [pairs.mean(-1) for pairs, _ in last],
        "at the entity, wrong pairs": [shifted.mean(-1) for _, shifted in entity],
    }


PANELS: dict[str, tuple[Callable[[AnalogyLab], Panel], ...]] = {
    "linear": (partial(_linear, 2), partial(_linear, 4)),
    "gpt": (_labelled, _prompts),
}

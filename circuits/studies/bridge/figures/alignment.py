"""How near the states of a subject's first hop are to its bridge."""

from collections.abc import Sequence

import torch
from matplotlib.figure import Figure
from torch import Tensor

from circuits.studies.bridge.lab import BridgeLab
from circuits.studies.bridge.states import TrainedGpt
from probes.alignment import polar_coordinates
from probes.figures import curve, polar, shared_legend
from probes.measurement import Measurement
from trained.bridge.config import BOTH as TASKS
from trained.bridge.config import gpt

from .words import MODELS
from .words import TASKS as TASK_WORDS


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
        name=f"angle of (subject, r1) to its bridge, {kappa} objects per subject",
        unit="radians",
    )
    figure = Figure((7, 5.2), layout="constrained")
    polar(measured, hue="GPT-2", ax=figure.add_subplot(projection="polar"))
    shared_legend(figure, "GPT-2 (dots: single pairs)", ncols=2)
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
        "(a, r1) and its bridge: cosine above others": {"alignment": "alignment"},
        "share right": {
            "ood": "two hops",
            # Dashed and over the other, which it often equals.
            "ood_obj": "two hops, among objects only",
            "hop2": "second hop alone",
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
    for ax in grid.flat:
        ax.label_outer()
    grid[1, 0].legend(fontsize=9, frameon=False, loc="center right")
    return figure

"""What exchanged states do: edits and their nulls, one question per panel."""

from collections.abc import Callable, Mapping

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from circuits.studies.bridge.lab import BridgeLab
from circuits.studies.bridge.states import TrainedGpt
from probes.figures import dots, shared_legend
from probes.measurement import Measurement
from trained.bridge.config import Recipe, gpt

from .words import MODELS

Edits = Mapping[str, Callable[[TrainedGpt], float]]

FOLLOWS: Edits = {
    "its whole state": lambda s: s.into_second_hop().follow,
    "its part among bridges": lambda s: s.span_into_second_hop().follow,
    "null: its part in a random\nsubspace as large": (
        lambda s: s.random_into_second_hop().follow
    ),
    "null: a random state\nas long": lambda s: s.noise_into_second_hop().follow,
}
STAYS: Edits = {
    "its whole state": lambda s: s.into_second_hop().stay,
    "its part among bridges": lambda s: s.span_into_second_hop().stay,
    "null: its part in a random\nsubspace as large": (
        lambda s: s.random_into_second_hop().stay
    ),
    "null: a random state\nas long": lambda s: s.noise_into_second_hop().stay,
}
EXCHANGED: Edits = {
    "state at r1": lambda s: s.exchanged("bridge").follow,
    "null: state at a": lambda s: s.exchanged("subject").follow,
}
RIGHT: Edits = {
    "no edit": lambda s: s.ood,
    "r1: that of its bridge alone": lambda s: s.own_bridge(),
    "r1: the mean of all queries": lambda s: s.averaged("bridge"),
    "null: a: the mean of all queries": lambda s: s.averaged("subject"),
}


def causal(lab: BridgeLab) -> Figure:
    """States exchanged after the first block: which answers follow, which stay.

    Above, a donor's (subject a, relation r1) takes the place of the bridge in a second
    hop; below, states of two-hop queries (a, r1, r2) are exchanged or replaced.
    """
    kappa = lab.config.complexity
    arms = {
        MODELS["small", "identity"]: gpt(kappa),
        MODELS["small", "none"]: gpt(kappa, "none"),
        MODELS["standard", "identity"]: gpt(kappa, regime="standard"),
    }
    figure = Figure((11.5, 7), layout="constrained")
    grid = figure.subplots(2, 2, sharex=True, height_ratios=(1.2, 1))
    panels: tuple[tuple[str, Edits], ...] = (
        ("second hop, donor's (a, r1):\nshare of the donor's answers", FOLLOWS),
        ("second hop, donor's (a, r1):\nshare of its own answers", STAYS),
        ("two hops get a donor's state:\nshare of the donor's answers", EXCHANGED),
        ("two hops with another state:\nshare right", RIGHT),
    )
    for ax, (title, edits) in zip(grid.flat, panels, strict=True):
        _panel(lab, arms, edits, ax)
        ax.set_title(title, fontsize=11)
    shared_legend(figure, f"GPT-2, {kappa} objects per subject")
    return figure


def _panel(lab: BridgeLab, arms: Mapping[str, Recipe], edits: Edits, ax: Axes) -> None:
    rows = [
        [[edit(s) for s in lab.specimens(arm)] for arm in arms.values()]
        for edit in edits.values()
    ]
    measured = Measurement(
        torch.tensor(rows),
        ("edit", "model", "seed"),
        labels={"edit": tuple(edits), "model": tuple(arms)},
        name="share of queries",
    )
    dots(measured, y="edit", hue="model", ax=ax)
    ax.set_xlim(-0.05, 1.05)
    ax.tick_params(labelbottom=True)

"""Figures of the theory's model: its attention, its features, how it scales."""

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from circuits.studies.lego.lab import LegoLab
from probes.figures import OKABE_ITO, bars, curve, shared_legend
from probes.measurement import Measurement
from trained.errors import BadInput
from trained.lego.action import action
from trained.lego.config import first_of_kind
from trained.lego.theory_arms import Course, grid

from .folded import ACTION
from .paper import named_axes

HALVES = (
    *("right action\nV(g)", "right value\nV(y)"),
    *("wrong action\nV(g')", "wrong value\nV(y')"),
)


def theory(lab: LegoLab) -> Figure:
    """The theory's attention over training: matching entries, their order, sharpness.

    Q43 scores predicates and Q44 answers by the variable they hold; on the diagonal the
    variables match. K is the weight on both targets over that on any other clause. The
    paper: both diagonals grow, Q43 first; each round of self-training sharpens.
    """
    groups = lab.config.theory.groups
    simple, other = (first_of_kind(groups, simply=simply) for simply in (True, False))
    if simple is None or other is None:
        raise BadInput("this run has no theory models of both kinds")
    figure = Figure((13, 4), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    _diagonals(lab, (simple, other), left)
    _lead(lab, simple, middle)
    _sharpness(lab, other, right)
    return figure


def _diagonals(lab: LegoLab, groups: tuple[str, str], ax: Axes) -> None:
    lines, names = [], []
    for group in groups:
        history = lab.history(group, "attention")
        for block, what in (("Q43", "predicates"), ("Q44", "answers")):
            lines.append(history[f"diagonal{block}"])
            names.append(f"{action(group).slug}, {what} ({block})")
    measured = Measurement(
        torch.stack(lines),
        ("score of matching", "seed", "step"),
        labels={
            "score of matching": tuple(names),
            "step": tuple(history["step"].tolist()),
        },
        name="mean score of a matching variable",
    )
    curve(measured, x="step", hue="score of matching", ax=ax)
    ax.set_title("Algorithm 1, chains of length 2", fontsize=12)


def _lead(lab: LegoLab, group: str, ax: Axes) -> None:
    step = tuple(lab.history(group, "gentle")["step"].tolist())
    measured = Measurement(
        lab.lead(group),
        ("seed", "step"),
        labels={"step": step},
        name="lead of predicates (Q43 - Q44)",
    )
    curve(measured, x="step", ax=ax)
    ax.axhline(0, color="grey", linewidth=0.8)
    ax.set_title(f"{action(group).slug}, small steps", fontsize=12)


def _sharpness(lab: LegoLab, group: str, ax: Axes) -> None:
    rounds = Course(lab.config, group).rounds
    stages = ["second-step", "longer", *(f"round-{n}" for n in rounds)]
    names = ["taught,\nlength 2", "longer at\nlength 2"]
    names += [f"by itself,\nlength {n}" for n in rounds]
    measured = Measurement(
        torch.tensor([lab.sharpness(lab.theory(group, stage)) for stage in stages]),
        ("attention after", "seed"),
        labels={"attention after": tuple(names)},
        name="sharpness K of the attention",
    )
    bars(measured, x="attention after", ax=ax)
    ax.set_title(f"{action(group).slug}, self-training (Algorithm 2)", fontsize=12)


def features(lab: LegoLab) -> Figure:
    """The theory's learned features in units of the clip (eqs. 17 and 18)."""
    sizes = lab.config.theory
    if not sizes.groups:
        raise BadInput("this run has no theory models")
    groups = tuple(dict.fromkeys((*sizes.groups, *sizes.feature_groups)))
    values = [[list(f.halves) for f in lab.features(group)] for group in groups]
    measured = Measurement(
        torch.tensor(values),
        (ACTION, "seed", "input of a value's neuron"),
        labels={
            ACTION: tuple(action(g).slug for g in groups),
            "input of a value's neuron": HALVES,
        },
        name="mean weight",
        unit="clip B = 1",
    )
    figure = Figure((7, 4.2), layout="constrained")
    ax = figure.add_subplot()
    bars(measured, x="input of a value's neuron", hue=ACTION, ax=ax)
    ax.axhline(0, color="grey", linewidth=0.8)
    ax.set_title("Features of the theory's feed-forward part", fontsize=12)
    return figure


def scaling(lab: LegoLab) -> Figure:
    """The theory's reach and misplaced attention against the number of tokens.

    One stopping rule for every size; the reach is extrapolated.
    """
    groups = [g for g in lab.config.theory.grid_groups if grid(lab.config, g)]
    if not lab.config.theory.grid or not lab.config.theory.groups:
        raise BadInput("theory.grid is empty: nothing scales")
    figure = Figure((12, 4.4), layout="constrained")
    panels = {
        "reach": "length that is solved (extrapolated)",
        "eps": "misplaced attention at length 2",
    }
    for ax, (what, label) in zip(figure.subplots(1, 2), panels.items(), strict=True):
        for group, colour in zip(groups, OKABE_ITO, strict=False):
            sizes = grid(lab.config, group)
            values = torch.tensor([lab.by_d(group, d, what) for d in sizes])
            name = action(group).slug
            ax.plot(sizes, values.mean(1), "o-", color=colour, label=name)
            ax.plot(sizes, values, ".", color=colour, alpha=0.4)
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xticks(lab.config.theory.grid, [str(d) for d in lab.config.theory.grid])
        ax.set_xticks([], minor=True)
        named_axes(ax, "tokens d of the vocabulary (dots: seeds)", label)
    shared_legend(figure)
    return figure

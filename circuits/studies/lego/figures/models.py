"""Figures of the folded model, whose FFN is frozen, and of the theory's."""

from collections.abc import Callable, Mapping, Sequence

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from circuits.studies.lego.lab import LegoLab
from circuits.studies.lego.lab.models import Specimen
from probes.figures import OKABE_ITO, bars, curve, shared_legend
from probes.measurement import Measurement
from trained.errors import BadInput
from trained.lego.action import action
from trained.lego.arms import BASE, LONGER, round_name, saved_step
from trained.lego.config import first_of_kind
from trained.lego.theory_arms import Course

from .paper import heats

HALVES = (
    *("right action\nV(g)", "right value\nV(y)"),
    *("wrong action\nV(g')", "wrong value\nV(y')"),
)
ACTION = "action (C: simply transitive, S: symmetry)"
MISPLACED = "misplaced attention (share)"
"""On other clauses than the two that the next step needs."""


def length(lab: LegoLab) -> Figure:
    """Accuracy against length by action, feed-forward part frozen (folded model)."""
    config = lab.config
    groups = (*config.groups, *config.extra_groups)
    figure, ax = _single()
    rows = {action(group).slug: lab.folded(group) for group in groups}
    _length_lines(lab, rows, ACTION, ax)
    steps = config.folded.steps
    title = f"feed-forward part frozen, {steps} steps of attention training"
    ax.set_title(title, fontsize=12)
    return figure


def selftrain(lab: LegoLab) -> Figure:
    """Accuracy against length after every round of self-training."""
    config = lab.config
    if config.self_group is None:
        raise BadInput("this run does not train itself: it has no self_group")
    figure, ax = _single()
    own, first = config.self_training, config.train_length
    rows = {f"trained at {first}": lab.self_trained(BASE)}
    rows |= {
        f"then self-trained at {n}": lab.self_trained(round_name(n))
        for n in own.lengths
    }
    extra = own.steps * len(own.lengths)
    rows[f"instead {extra} more steps at {first}"] = lab.self_trained(LONGER)
    _length_lines(lab, rows, "attention trained", ax)
    name = action(config.self_group).slug
    ax.set_title(f"{name}, self-training in rounds of {own.steps} steps", fontsize=12)
    return figure


def training(lab: LegoLab) -> Figure:
    """Misplaced attention, its balance and the value's loss over training."""
    config = lab.config
    slugs = tuple(action(group).slug for group in config.groups)
    stored = [lab.metrics(slug) for slug in slugs]
    steps = stored[0]["step"] - saved_step(config, 0)
    kept = (steps >= 0) & (steps <= config.folded.budgets[-1])
    panels: dict[str, Callable[[Mapping[str, Tensor]], Tensor]] = {
        MISPLACED: lambda m: 1 - m["predicate"] - m["answer"],
        "attention on predicate minus answer": lambda m: m["predicate"] - m["answer"],
        "loss of the value (nats)": lambda m: m["value_loss"],
    }
    figure = Figure((12, 4.2), layout="constrained")
    for ax, (label, quantity) in zip(
        figure.subplots(1, len(panels)), panels.items(), strict=True
    ):
        measured = Measurement(
            torch.stack([quantity(metrics)[:, kept] for metrics in stored]),
            (ACTION, "seed", "step of attention training"),
            labels={
                ACTION: slugs,
                "step of attention training": tuple(steps[kept].tolist()),
            },
            name=label,
        )
        curve(measured, x="step of attention training", hue=ACTION, ax=ax)
        ax.set_title("")
        if "minus" in label:
            ax.axhline(0, color="grey", linewidth=0.8)
        else:
            ax.set_yscale("log")
    title = f"chains of length {config.train_length}, feed-forward part frozen"
    figure.suptitle(title, fontsize=12)
    shared_legend(figure, ACTION)
    return figure


def attention(lab: LegoLab) -> Figure:
    """Mean attention of the folded model, predicates in order and permuted."""
    return heats(lab, [lab.folded(group)[0] for group in lab.config.groups])


def dose(lab: LegoLab) -> Figure:
    """Accuracy against attention that is spread over other clauses by hand."""
    groups, doses = lab.config.groups, lab.config.test.doses
    values = [
        [lab.dosed(lab.folded(group), amount) for amount in doses] for group in groups
    ]
    measured = Measurement(
        torch.tensor(values),
        (ACTION, MISPLACED, "seed"),
        labels={
            ACTION: tuple(action(group).slug for group in groups),
            MISPLACED: doses,
        },
        name="share of steps with the right value",
    )
    figure, ax = _single()
    curve(measured, x=MISPLACED, hue=ACTION, ax=ax)
    for number, group in enumerate(groups):
        chance = 1 / action(group).n_values
        colour = OKABE_ITO[number % len(OKABE_ITO)]
        ax.axhline(chance, color=colour, linestyle=":", linewidth=1)
    ax.set_ylim(0, 1.04)
    title = f"chains of length {lab.dose_length}; dotted: chance of each action"
    ax.set_title(title, fontsize=12)
    return figure


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
    figure, ax = _single()
    bars(measured, x="input of a value's neuron", hue=ACTION, ax=ax)
    ax.axhline(0, color="grey", linewidth=0.8)
    ax.set_title("Features of the theory's feed-forward part", fontsize=12)
    return figure


def _single() -> tuple[Figure, Axes]:
    figure = Figure((7, 4.2), layout="constrained")
    return figure, figure.add_subplot()


def _length_lines(
    lab: LegoLab, rows: Mapping[str, Sequence[Specimen]], hue: str, ax: Axes
) -> None:
    """`all` against length, one line per row, the training length marked."""
    values = [
        [list(lab.all_by_length(s).values()) for s in specimens]
        for specimens in rows.values()
    ]
    lengths, trained = lab.config.lengths, lab.config.train_length
    measured = Measurement(
        torch.tensor(values),
        (hue, "seed", "length"),
        labels={hue: tuple(rows), "length": lengths},
        name="share of chains all right",
    )
    curve(measured, x="length", hue=hue, ax=ax)
    ax.set_ylim(-0.04, 1.04)
    ax.set_xscale("log", base=2)
    ax.set_xticks(lengths, [str(length) for length in lengths])
    ax.set_xticks([], minor=True)
    ax.set_xlim(min(lengths[0], trained) / 2**0.3, lengths[-1] * 2**0.2)
    ax.axvline(trained, color="grey", linestyle=":", linewidth=1)
    place = (trained * 2**0.06, 0.02)
    ax.annotate("training length", place, color="grey", fontsize=9, rotation=90)

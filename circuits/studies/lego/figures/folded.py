"""Figures of the folded model, whose FFN is frozen while its attention is trained."""

from collections.abc import Callable, Mapping, Sequence

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from circuits.studies.lego.lab import LegoLab
from circuits.studies.lego.lab.models import Specimen
from probes.figures import OKABE_ITO, curve, shared_legend
from probes.measurement import Measurement
from trained.errors import BadInput
from trained.lego.action import action
from trained.lego.arms import BASE, LONGER, round_name, saved_step

from .paper import heats

ACTION = "action (C: simply transitive, S: symmetry)"
MISPLACED = "misplaced attention (share)"
"""On other clauses than the two that the next step needs."""


def _groups(lab: LegoLab) -> tuple[str, ...]:
    if not lab.config.groups:
        raise BadInput("this run has no folded models: its groups are empty")
    return lab.config.groups


def length(lab: LegoLab) -> Figure:
    """Accuracy against length by action, feed-forward part frozen (folded model)."""
    config = lab.config
    groups = (*_groups(lab), *config.extra_groups)
    figure, ax = _single()
    rows = {action(group).slug: lab.folded(group) for group in groups}
    _length_lines(lab, rows, ACTION, ax)
    steps = config.folded.steps
    title = f"Chains solved by length: FFN frozen, {steps} steps of attention training"
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
    title = f"{name}: chains solved by length, self-trained {own.steps} steps a round"
    ax.set_title(title, fontsize=12)
    return figure


def training(lab: LegoLab) -> Figure:
    """Misplaced attention, its balance and the value's loss over training."""
    config = lab.config
    slugs = tuple(action(group).slug for group in _groups(lab))
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
    title = f"Training the attention: chains of {config.train_length}, FFN frozen"
    figure.suptitle(title, fontsize=12)
    shared_legend(figure, ACTION)
    return figure


def attention(lab: LegoLab) -> Figure:
    """Mean attention of the folded model, predicates in order and permuted."""
    return heats(lab, [lab.folded(group)[0] for group in _groups(lab)])


def dose(lab: LegoLab) -> Figure:
    """Accuracy against attention that is spread over other clauses by hand."""
    groups, doses = _groups(lab), lab.config.test.doses
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
    title = f"Attention misplaced by hand, chains of {lab.dose_length}; dotted: chance"
    ax.set_title(title, fontsize=12)
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

"""Where attention goes, drawn: Figures 2, 5, 6, 7, the doses and the edits."""

import math
from collections.abc import Callable

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from circuits.studies.lego.causal import (
    changed_action,
    changed_value,
    followed,
    half_ablated,
)
from circuits.studies.lego.concentration import by_position, fitted
from circuits.studies.lego.context import Context
from circuits.studies.lego.dilution import irrelevant
from circuits.studies.lego.edits import (
    knocked_out,
    misled,
    oracle,
    other_knocked_out,
    sharpened,
    visible,
)
from circuits.studies.lego.reading import marks, patterns
from circuits.studies.lego.repair import DOSES, dose_curve, dose_length
from circuits.studies.lego.specimen import Specimen
from probes.figures import OKABE_ITO, attention_rows, bars, curve
from probes.measurement import Measurement
from trained.lego.action import action
from trained.store import Run


def attention(run: Run) -> Figure:
    """Mean attention at the training length, predicates in order and not (2 and 5)."""
    context = Context(run)
    groups = context.config.groups
    length = context.config.train_length
    figure = Figure(
        (max(12, 1.1 * 2 * length), 3.4 * len(groups)), layout="constrained"
    )
    grid = figure.subplots(len(groups), 2, squeeze=False)
    for row, group in zip(grid, groups, strict=True):
        specimen = context.models(group)[0]
        for ax, places in zip(
            row, (torch.arange(length), _shuffle(length)), strict=True
        ):
            _heat(context, specimen, places, ax)
    return figure


def _shuffle(length: int) -> Tensor:
    """The one order that all sentences of the second column have."""
    return torch.randperm(length, generator=torch.Generator().manual_seed(0))


def _heat(context: Context, specimen: Specimen, places: Tensor, ax: Axes) -> None:
    sentences = context.short(specimen)
    sentences = sentences._replace(places=places.expand_as(sentences.places))
    mean = patterns(specimen, sentences).mean((0, 1))
    mean[~visible(sentences)[0]] = math.nan
    length = len(mean)
    written = (places.argsort() + 1).tolist()
    keys = [f"p{n}" for n in written] + [f"a{n}" for n in range(length)]
    measured = Measurement(
        mean,
        ("query", "key"),
        labels={
            "query": tuple(f"a{n}" for n in range(length)),
            "key": tuple(keys),
        },
        name="attention",
    )
    attention_rows(measured, ax)
    order = "in order" if written == sorted(written) else "permuted"
    ax.set_title(f"{specimen.action.slug}, predicates {order}", fontsize=12)
    ax.set_xlabel("clause: predicates p, answers a", fontsize=11)


def position(run: Run) -> Figure:
    """Attention on both targets against position, with the law (Figures 6 and 7)."""
    context = Context(run)
    config = context.config
    lengths = [n for n in config.lengths if n > config.train_length][:3]
    figure = Figure((11, 4.2), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    names = ("target predicate (Figure 6)", "target answer (Figure 7)")
    for target, (ax, name) in enumerate(zip(panels, names, strict=True)):
        for number, group in enumerate(config.groups):
            for length, dash in zip(lengths, ("-", "--", ":"), strict=False):
                found = torch.stack(
                    [by_position(s, length)[target] for s in context.models(group)]
                )
                label = f"{action(group).slug}, L = {length}"
                colour = OKABE_ITO[number % len(OKABE_ITO)]
                places = range(1, length + 1)
                ax.plot(places, found.mean(0), dash, color=colour, label=label)
        _law(context, lengths, ax)
        ax.set_title(name, fontsize=12)
        ax.set_xlabel("position of the step", fontsize=11)
    panels[0].set_ylabel("attention, mean over heads and seeds", fontsize=11)
    panels[1].legend(fontsize=9, frameon=False)
    return figure


def _law(context: Context, lengths: list[int], ax: Axes) -> None:
    """Half of K / (n + K), with the first group's K, in grey."""
    specimens = context.models(context.config.groups[0])
    sharp = sum(fitted(context, s) for s in specimens) / len(specimens)
    for number, length in enumerate(lengths):
        n = irrelevant(length)
        name = action(context.config.groups[0]).slug
        label = f"law, {name}, equal halves" if number == 0 else None
        half = (sharp / (n + sharp) / 2).tolist()
        ax.plot(range(1, length + 1), half, color="grey", linewidth=0.8, label=label)


def dose(run: Run) -> Figure:
    """Accuracy against attention that is spread elsewhere by hand."""
    context = Context(run)
    config = context.config
    values = [
        [list(dose_curve(context, s).values()) for s in context.models(group)]
        for group in config.groups
    ]
    measured = Measurement(
        torch.tensor(values),
        ("group", "seed", "misplaced attention eps"),
        labels={
            "group": tuple(action(g).slug for g in config.groups),
            "misplaced attention eps": DOSES,
        },
        name="right values per step",
    )
    figure = Figure((6.5, 4.2), layout="constrained")
    ax = figure.add_subplot()
    curve(measured, x="misplaced attention eps", hue="group", ax=ax)
    for number, group in enumerate(config.groups):
        chance = 1 / action(group).n_values
        ax.axhline(chance, color=OKABE_ITO[number], linestyle=":", linewidth=1)
    ax.set_ylim(0, 1.04)
    ax.set_title(
        f"length {dose_length(context)}; dotted: chance of each group", fontsize=12
    )
    return figure


def causal(run: Run) -> Figure:
    """What edits of attention and of clauses do."""
    context = Context(run)
    config = context.config
    short: dict[str, Callable[[Specimen], float]] = {
        "no edit": lambda s: marks(s, context.short(s)).step,
        "target predicate\nnot attended": lambda s: _step(context, s, knocked_out(0)),
        "target answer\nnot attended": lambda s: _step(context, s, knocked_out(1)),
        "other predicate\nnot attended": lambda s: _step(context, s, other_knocked_out),
        "target's action\nchanged: follows": lambda s: followed(
            s, changed_action(context, s)
        ),
        "target's value\nchanged: follows": lambda s: followed(
            s, changed_value(context, s)
        ),
        "Q43 levelled at\nx: steps at x": lambda s: half_ablated(context, s)[0],
    }
    long: dict[str, Callable[[Specimen], float]] = {
        "no edit": lambda s: marks(s, context.long(s)).all,
        "half on each\ntarget": lambda s: marks(s, context.long(s), oracle).all,
        "as sharp on\nirrelevant": lambda s: marks(s, context.long(s), misled).all,
        "scores x 1.5": lambda s: marks(s, context.long(s), sharpened(1.5)).all,
        "scores / 1.5": lambda s: marks(s, context.long(s), sharpened(1 / 1.5)).all,
    }
    figure = Figure((12, 7.6), layout="constrained")
    upper, lower = figure.subplots(2, 1)
    _edit_bars(context, short, "right values per step", upper)
    upper.set_title(f"length {config.train_length}", fontsize=12)
    _edit_bars(context, long, "share of chains all right", lower)
    lower.set_title(f"length {config.lengths[-1]}", fontsize=12)
    return figure


def _step(context: Context, specimen: Specimen, edit: Callable[..., Tensor]) -> float:
    return marks(specimen, context.short(specimen), edit).step


def _edit_bars(
    context: Context, edits: dict[str, Callable[[Specimen], float]], name: str, ax: Axes
) -> None:
    groups = context.config.groups
    values = [
        [[edit(s) for s in context.models(group)] for group in groups]
        for edit in edits.values()
    ]
    measured = Measurement(
        torch.tensor(values),
        ("edit", "group", "seed"),
        labels={"edit": tuple(edits), "group": tuple(action(g).slug for g in groups)},
        name=name,
    )
    bars(measured, x="edit", hue="group", ax=ax)
    ax.set_ylim(0, 1.08)
    ax.tick_params("x", labelsize=9)

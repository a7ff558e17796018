"""How far models generalise, drawn: Figures 1a and 1b, the budgets, training."""

from collections.abc import Callable, Mapping, Sequence

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from circuits.studies.lego.context import Context
from circuits.studies.lego.exchange import exchanged
from circuits.studies.lego.length import all_by_length, crossing, loss_ratio
from circuits.studies.lego.specimen import Specimen
from probes.figures import curve
from probes.measurement import Measurement
from trained.lego.action import action
from trained.lego.arms import BASE, LONGER, round_name, saved_step
from trained.store import Run


def length(run: Run) -> Figure:
    """Accuracy against length for every group (Figure 1a)."""
    context = Context(run)
    config = context.config
    groups = (*config.groups, *config.extra_groups)
    figure, ax = _single()
    rows = {action(group).slug: context.models(group) for group in groups}
    _length_lines(context, rows, "group", ax)
    ax.set_title(f"after {config.steps} steps of attention training", fontsize=12)
    return figure


def selftrain(run: Run) -> Figure:
    """Accuracy against length after every round of self-training (Figure 1b)."""
    context = Context(run)
    config = context.config
    figure, ax = _single()
    if context.self_group is None:
        ax.set_title("this run does not train itself", fontsize=12)
        return figure
    rows = {f"trained at {config.train_length}": context.self_trained(BASE)}
    rows |= {
        f"then self-trained at {n}": context.self_trained(round_name(n))
        for n in config.self_lengths
    }
    extra = config.self_steps * len(config.self_lengths)
    rows[f"instead {extra} more steps at {config.train_length}"] = context.self_trained(
        LONGER
    )
    _length_lines(context, rows, "attention", ax)
    name = action(context.self_group).slug
    ax.set_title(f"{name}, rounds of {config.self_steps} steps", fontsize=12)
    return figure


def exchange(run: Run) -> Figure:
    """Every FFN with every attention: accuracy against length."""
    context = Context(run)
    config = context.config
    figure = Figure((11, 4.2), layout="constrained")
    if not (config.simple and config.symmetric):
        figure.suptitle("this run has one kind of group only")
        return figure
    cells = exchanged(context)
    names = {
        cell: f"FFN {action(cell[0]).slug}, attention {action(cell[1]).slug}"
        for cell in cells
    }
    for ax, quantity in zip(figure.subplots(1, 2), ("all", "step"), strict=True):
        values = [
            [[getattr(m, quantity) for m in seed.values()] for seed in seeds]
            for seeds in cells.values()
        ]
        label = "share of chains all right" if quantity == "all" else "right per step"
        measured = Measurement(
            torch.tensor(values),
            ("model", "seed", "length"),
            labels={"model": tuple(names.values()), "length": config.lengths},
            name=label,
        )
        curve(measured, x="length", hue="model", ax=ax)
        _length_axis(context, ax)
        ax.set_title(label, fontsize=12)
        if quantity == "all":
            ax.set_ylim(-0.04, 1.04)
    return figure


def sweep(run: Run) -> Figure:
    """Where `all` falls through 0.9, by budget and by loss over its floor."""
    context = Context(run)
    figure = Figure((11, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    _by_budget(context, left)
    _by_loss(context, right)
    for ax in (left, right):
        ax.set_yscale("log", base=2)
        ticks = context.config.lengths
        ax.set_yticks(ticks, [str(tick) for tick in ticks])
        ax.set_yticks([], minor=True)
        ax.set_ylabel("length where all falls through 0.9", fontsize=11)
        ax.axhline(ticks[-1], color="grey", linestyle=":", linewidth=1)
    left.set_ylim(top=ticks[-1] * 1.35)
    place = (left.get_xlim()[0] + 10, ticks[-1] * 1.06)
    left.annotate("longest test", place, color="grey", fontsize=9)
    return figure


def _by_budget(context: Context, ax: Axes) -> None:
    config = context.config
    values = [
        [
            [crossing(all_by_length(context, s)) for s in context.models(group, budget)]
            for budget in config.budgets
        ]
        for group in config.groups
    ]
    measured = Measurement(
        torch.tensor(values),
        ("group", "steps of attention training", "seed"),
        labels={
            "group": tuple(action(g).slug for g in config.groups),
            "steps of attention training": config.budgets,
        },
        name="solvable length",
    )
    curve(measured, x="steps of attention training", hue="group", ax=ax)
    ax.set_title("equal steps", fontsize=12)


def _by_loss(context: Context, ax: Axes) -> None:
    """One dot per model: no bands, since seeds differ in both coordinates."""
    config = context.config
    for group, line in zip(config.groups, list(ax.figure.axes[0].lines), strict=False):
        points = [
            (loss_ratio(context, s), crossing(all_by_length(context, s)))
            for budget in config.budgets
            for s in context.models(group, budget)
        ]
        x, y = zip(*points, strict=True)
        ax.scatter(x, y, s=24, alpha=0.7, color=line.get_color())
        ax.scatter([], [], s=24, color=line.get_color(), label=action(group).slug)
    ax.set_xlabel("value loss over its floor (perfect attention)", fontsize=11)
    ax.legend(title="group", fontsize=9, frameon=False)
    ax.set_title("equal loss over own floor", fontsize=12)


def training(run: Run) -> Figure:
    """Concentration, balance and the value's loss over training."""
    context = Context(run)
    config = context.config
    stored = [run.metrics(action(group).slug) for group in config.groups]
    steps = stored[0]["step"] - saved_step(config, 0)
    kept = (steps >= 0) & (steps <= config.budgets[-1])
    panels: dict[str, Callable[[Mapping[str, Tensor]], Tensor]] = {
        "misplaced attention eps": lambda m: 1 - m["predicate"] - m["answer"],
        "attention on predicate minus answer": lambda m: m["predicate"] - m["answer"],
        "loss of the value (nats)": lambda m: m["value_loss"],
    }
    figure = Figure((12, 4.2), layout="constrained")
    for ax, (label, quantity) in zip(
        figure.subplots(1, len(panels)), panels.items(), strict=True
    ):
        measured = Measurement(
            torch.stack([quantity(metrics)[:, kept] for metrics in stored]),
            ("group", "seed", "step of attention training"),
            labels={
                "group": tuple(action(g).slug for g in config.groups),
                "step of attention training": tuple(steps[kept].tolist()),
            },
            name=label,
        )
        curve(measured, x="step of attention training", hue="group", ax=ax)
        ax.set_title(label, fontsize=12)
        if "minus" in label:
            ax.axhline(0, color="grey", linewidth=0.8)
        else:
            ax.set_yscale("log")
    figure.suptitle(f"length {config.train_length}, FFN frozen", fontsize=12)
    return figure


def _single() -> tuple[Figure, Axes]:
    figure = Figure((7, 4.2), layout="constrained")
    return figure, figure.add_subplot()


def _length_lines(
    context: Context, rows: Mapping[str, Sequence[Specimen]], hue: str, ax: Axes
) -> None:
    """`all` against length, one line per row, the training length marked."""
    values = [
        [list(all_by_length(context, s).values()) for s in specimens]
        for specimens in rows.values()
    ]
    measured = Measurement(
        torch.tensor(values),
        (hue, "seed", "length"),
        labels={hue: tuple(rows), "length": context.config.lengths},
        name="share of chains all right",
    )
    curve(measured, x="length", hue=hue, ax=ax)
    _length_axis(context, ax)
    ax.set_ylim(-0.04, 1.04)


def _length_axis(context: Context, ax: Axes) -> None:
    lengths, trained = context.config.lengths, context.config.train_length
    ax.set_xscale("log", base=2)
    ax.set_xticks(lengths, [str(length) for length in lengths])
    ax.set_xticks([], minor=True)
    ax.set_xlim(min(lengths[0], trained) / 2**0.3, lengths[-1] * 2**0.2)
    ax.axvline(trained, color="grey", linestyle=":", linewidth=1)
    low, high = ax.get_ylim()
    place = (trained * 2**0.06, low + 0.06 * (high - low))
    ax.annotate("training length", place, color="grey", fontsize=9, rotation=90)

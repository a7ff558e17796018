"""The paper's own figures, from the experiment's models."""

import math
from collections.abc import Sequence

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from circuits.studies.lego.lab import LegoLab
from circuits.studies.lego.lab.experiment import lengths_to
from circuits.studies.lego.lab.models import Specimen
from probes.figures import OKABE_ITO, attention_rows, curve, shared_legend
from probes.measurement import Measurement
from trained.errors import BadInput
from trained.lego.action import action
from trained.lego.stages import BASE, gold, taught

TESTED = (10, 20)
"""Lengths of Figures 6 and 7."""


def figure1(lab: LegoLab) -> Figure:
    """Figure 1: accuracy against length, by action, and after self-training.

    The paper: C6 stays near 1 up to 160; S5 does after rounds of self-training.
    """
    groups, rounds = _groups(lab), lab.config.standard.rounds
    trained = {action(g).slug: lab.converged(g) for g in groups}
    first = lab.config.train_length
    panels = {f"Chains solved, trained at {first} (paper: C6 near 1)": trained}
    if rounds:
        stages = {f"trained at {lab.config.train_length}": lab.after(BASE)}
        stages |= {f"self-trained at {n}": lab.after(taught(n)) for n in rounds}
        stages["true answers instead"] = lab.after(gold(rounds[-1]))
        name = action(lab.symmetric).slug
        panels[f"{name}, self-trained (paper: S5 near 1 at last)"] = stages
    figure = Figure((6.4 * len(panels), 4.4), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for ax, (title, rows) in zip(axes, panels.items(), strict=True):
        _lines(lab, rows, ax)
        ax.set_title(title, fontsize=12)
    return figure


def _groups(lab: LegoLab) -> tuple[str, ...]:
    if not lab.config.standard.variants:
        raise BadInput("this run has no models of the paper's experiment")
    return lab.config.standard.groups


def _lines(lab: LegoLab, rows: dict[str, list[Specimen]], ax: Axes) -> None:
    lengths = lengths_to(lab.config.train_length, lab.farthest_length)
    count = min(len(several) for several in rows.values())
    values = [
        [[lab._solved(s, n) for n in lengths] for s in several[:count]]
        for several in rows.values()
    ]
    measured = Measurement(
        torch.tensor(values),
        ("model", "seed", "length"),
        labels={"model": tuple(rows), "length": tuple(lengths)},
        name="share of chains all right",
    )
    curve(measured, x="length", hue="model", ax=ax)
    ax.set_xlabel("length of the chain (dotted: training length)", fontsize=11)
    ax.set_ylim(-0.04, 1.04)
    ax.set_xscale("log", base=2)
    ax.set_xticks(lengths[::2], [str(n) for n in lengths[::2]])
    ax.set_xticks([], minor=True)
    ax.axvline(lab.config.train_length, color="grey", linestyle=":", linewidth=1)


def figure2(lab: LegoLab) -> Figure:
    """Figures 2 and 5: mean attention, predicates in order and permuted; one seed.

    The paper: each answer looks at its predicate and at the answer before, wherever the
    predicate is written.
    """
    return heats(lab, [lab.converged(group)[0] for group in _groups(lab)])


def heats(lab: LegoLab, specimens: Sequence[Specimen]) -> Figure:
    """Mean attention of models at the training length, in one scale of colours."""
    n = lab.config.train_length
    permuted = torch.randperm(n, generator=torch.Generator().manual_seed(0))
    orders = {"in order": torch.arange(n), "permuted": permuted}
    found = {
        f"{specimen.action.slug}, predicates {name}": _heat(lab, specimen, places)
        for specimen in specimens
        for name, places in orders.items()
    }
    top = max(float(one.values.nan_to_num().max()) for one in found.values())
    figure = Figure((max(12, 2.2 * n), 3.4 * len(specimens)), layout="constrained")
    axes = figure.subplots(len(specimens), 2, squeeze=False).flat
    for ax, (title, measured) in zip(axes, found.items(), strict=True):
        attention_rows(measured, ax, top=top).set_title(f"Attention of {title}")
        ax.set_xlabel("clause read: predicates p, answers a", fontsize=11)
        ax.set_ylabel("answer that asks", fontsize=11)
    return figure


def _heat(lab: LegoLab, specimen: Specimen, places: Tensor) -> Measurement:
    """Mean attention of every answer, predicates written at these places."""
    sentences = lab.short(specimen)
    sentences = sentences._replace(places=places.expand_as(sentences.places))
    mean = specimen.rows(sentences).mean(0)
    n = len(mean)
    hidden = torch.ones(n, n).triu(1).bool()
    mean[:, n:][hidden] = math.nan
    answers = tuple(f"a{number}" for number in range(n))
    written = (f"p{number + 1}" for number in places.argsort().tolist())
    labels = {"query": answers, "key": (*written, *answers)}
    return Measurement(mean, ("query", "key"), labels, name="attention")


def figure67(lab: LegoLab) -> Figure:
    """Figures 6 and 7: attention on predicate and answer against their position.

    The paper: the predicate's falls for S5 only, the answer's for C6.
    """
    groups = _groups(lab)
    tested = [n for n in TESTED if n <= lab.farthest_length]
    figure = Figure((12, 4.6), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    papers = ("predicate (paper: falls for S5)", "answer before (paper: falls for C6)")
    for what, (ax, name) in enumerate(zip(axes, papers, strict=True)):
        for group, colour in zip(groups, OKABE_ITO, strict=False):
            for length, style in zip(tested, ("-", "--"), strict=False):
                looks = torch.stack(
                    [lab.looks(s, length)[what] for s in lab.converged(group)]
                )
                place = torch.arange(1, length + 1) / length
                label = f"{action(group).slug}, length {length}"
                ax.plot(place, looks.mean(0), style, color=colour, label=label)
                low, high = looks.amin(0), looks.amax(0)
                ax.fill_between(place, low, high, color=colour, alpha=0.12, linewidth=0)
        ax.set_title(f"Attention on the {name}", fontsize=12)
        named_axes(
            ax, "step over length (band: all seeds)", "attention, mean over seeds"
        )
    axes[0].set_ylim(0, None)
    axes[1].label_outer()
    shared_legend(figure)
    return figure


def named_axes(ax: Axes, x: str, y: str) -> None:
    """Names of the axes, and the look of every other figure."""
    ax.set_xlabel(x, fontsize=11)
    ax.set_ylabel(y, fontsize=11)
    ax.grid(visible=True, axis="y", alpha=0.3)
    ax.spines[["top", "right"]].set_visible(False)

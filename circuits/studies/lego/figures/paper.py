"""The paper's own figures, from the experiment's models, and how T scales with d."""

import math

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from circuits.studies.lego.lab import LegoLab
from circuits.studies.lego.lab.experiment import lengths_to
from circuits.studies.lego.lab.models import Specimen
from probes.figures import attention_rows, curve
from probes.measurement import Measurement
from trained.errors import BadInput
from trained.lego.action import action
from trained.lego.stages import BASE, gold, taught
from trained.lego.theory_arms import grid

TESTED = (10, 20)
"""Lengths of Figures 6 and 7."""


def figure1(lab: LegoLab) -> Figure:
    """Figure 1: accuracy against length, by action, and after self-training."""
    groups = _groups(lab)
    figure = Figure((12, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    trained = {action(g).slug: lab.converged(g) for g in groups}
    _lines(lab, trained, left)
    left.set_title("trained at length 5 (paper: C6 near 1 up to 160)", fontsize=12)
    rounds = lab.config.standard.rounds
    if rounds:
        stages = {f"trained at {lab.config.train_length}": lab.after(BASE)}
        stages |= {f"self-trained at {n}": lab.after(taught(n)) for n in rounds}
        stages["true answers instead"] = lab.after(gold(rounds[-1]))
        _lines(lab, stages, right)
        name = action(lab.symmetric).slug
        right.set_title(f"{name} (paper: near 1 up to 160 at last)", fontsize=12)
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
    ax.set_ylim(-0.04, 1.04)
    ax.set_xscale("log", base=2)
    ax.set_xticks(lengths[::2], [str(n) for n in lengths[::2]])
    ax.set_xticks([], minor=True)
    ax.axvline(lab.config.train_length, color="grey", linestyle=":", linewidth=1)


def figure2(lab: LegoLab) -> Figure:
    """Figures 2 and 5: mean attention at the training length, in order and permuted."""
    groups, n = _groups(lab), lab.config.train_length
    figure = Figure((max(12, 2.2 * n), 3.4 * len(groups)), layout="constrained")
    grid_of = figure.subplots(len(groups), 2, squeeze=False)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(0))
    for row, group in zip(grid_of, groups, strict=True):
        specimen = lab.converged(group)[0]
        for ax, places in zip(row, (torch.arange(n), order), strict=True):
            heat(lab, specimen, places, ax)
    return figure


def heat(lab: LegoLab, specimen: Specimen, places: Tensor, ax: Axes) -> None:
    """Mean attention of every answer, predicates written at these places."""
    sentences = lab.short(specimen)
    sentences = sentences._replace(places=places.expand_as(sentences.places))
    mean = specimen.rows(sentences).mean(0)
    n = len(mean)
    hidden = torch.ones(n, n).triu(1).bool()
    mean[:, n:][hidden] = math.nan
    written = (places.argsort() + 1).tolist()
    answers = tuple(f"a{number}" for number in range(n))
    keys = (*(f"p{number}" for number in written), *answers)
    measured = Measurement(
        mean, ("query", "key"), {"query": answers, "key": keys}, name="attention"
    )
    attention_rows(measured, ax)
    shown = "in order" if written == sorted(written) else "permuted"
    ax.set_title(f"{specimen.action.slug}, predicates {shown}", fontsize=12)
    ax.set_xlabel("clause: predicates p, answers a", fontsize=11)


def figure67(lab: LegoLab) -> Figure:
    """Figures 6 and 7: attention on predicate and answer against their position."""
    groups = _groups(lab)
    figure = Figure((12, 4.2), layout="constrained")
    tested = [n for n in TESTED if n <= lab.farthest_length]
    for what, (ax, name) in enumerate(
        zip(figure.subplots(1, 2), ("predicate", "answer"), strict=True)
    ):
        for group in groups:
            for length in tested:
                looks = torch.stack(
                    [lab.looks(s, length)[what] for s in lab.converged(group)]
                ).mean(0)
                place = torch.arange(1, length + 1) / length
                style = "-" if length == tested[0] else "--"
                colour = f"C{groups.index(group)}"
                label = f"{action(group).slug}, L = {length}"
                ax.plot(place, looks, style, color=colour, label=label)
        ax.set_xlabel("step / L", fontsize=11)
        ax.set_ylabel(f"attention on its {name}", fontsize=11)
        ax.set_ylim(0, None)
        ax.legend(fontsize=9)
    figure.suptitle("paper: predicate falls for S5 only, answer for C6", fontsize=12)
    return figure


def scaling(lab: LegoLab) -> Figure:
    """How the theory's length and concentration error scale with d."""
    groups = [g for g in lab.config.theory.grid_groups if grid(lab.config, g)]
    if not lab.config.theory.grid or not lab.config.theory.groups:
        raise BadInput("theory.grid is empty: nothing scales")
    figure = Figure((12, 4.2), layout="constrained")
    panels = {"reach": "L_x (extrapolated)", "eps": "eps at L = 2"}
    for ax, (what, label) in zip(figure.subplots(1, 2), panels.items(), strict=True):
        for number, group in enumerate(groups):
            sizes = grid(lab.config, group)
            values = torch.tensor([lab.by_d(group, d, what) for d in sizes])
            name = action(group).slug
            ax.plot(sizes, values.mean(1), "o-", color=f"C{number}", label=name)
            ax.plot(sizes, values, ".", color=f"C{number}", alpha=0.4)
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xticks(lab.config.theory.grid, [str(d) for d in lab.config.theory.grid])
        ax.set_xticks([], minor=True)
        ax.set_xlabel("d", fontsize=11)
        ax.set_ylabel(label, fontsize=11)
        ax.legend(fontsize=9)
    figure.suptitle("T, one stopping rule for every d", fontsize=12)
    return figure


PAPER_FIGURES = {
    "figure1": figure1,
    "figure2": figure2,
    "figure67": figure67,
    "scaling": scaling,
}

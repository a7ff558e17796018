"""How many two-hop queries are answered, by model and training."""

from collections.abc import Callable
from dataclasses import replace

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from circuits.studies.bridge.lab import BridgeLab
from circuits.studies.bridge.specimen import Specimen
from probes.figures import OKABE_ITO, curve, dots, shared_legend
from probes.measurement import Measurement
from trained.bridge.config import BOTH as TASKS
from trained.bridge.config import Recipe, shown

from .words import TASKS as TASK_WORDS


def accuracy(lab: BridgeLab) -> Figure:
    """Two-hop accuracy against objects per subject (Figure 2), both ways of scoring.

    The paper prints no values: it says that all three models do well at one object per
    subject, and that the small initialisation declines most slowly.
    """
    titles = {
        "small": "GPT-2, small initial weights",
        "standard": "GPT-2, standard initial weights",
        "decay": "GPT-2, weight decay",
        "std": "GPT-2, initial std 0.02",
    }
    panels = {titles[r]: Recipe("gpt", regime=r) for r in lab.config.gpt.regimes}
    panels["Emb-MLP"] = Recipe("embedding")
    figure = Figure((3.4 * len(panels), 6.2), layout="constrained")
    grid = figure.subplots(2, len(panels), sharex=True, sharey=True)
    quantities: tuple[tuple[str, Callable[[Specimen], float]], ...] = (
        ("two-hop accuracy", lambda s: s.ood),
        ("the same, among objects only", lambda s: s.ood_obj),
    )
    for row, (name, quantity) in zip(grid, quantities, strict=True):
        for ax, (title, model) in zip(row, panels.items(), strict=True):
            for number, task in enumerate(TASKS):
                _accuracy_line(lab, replace(model, task=task), quantity, ax)
                words = TASK_WORDS[task]
                _restyle(ax, words, OKABE_ITO[number], "-:"[task == "none"])
            chance = 1 / lab.config.n_subjects
            ax.axhline(chance, color="grey", linewidth=0.8, label="chance")
            ax.set_title(title, fontsize=12)
            ax.set_ylabel(name, fontsize=11)
            ax.set_ylim(-0.05, 1.05)
            ax.label_outer()
    shared_legend(figure)
    return figure


def _accuracy_line(
    lab: BridgeLab, model: Recipe, quantity: Callable[[Specimen], float], ax: Axes
) -> None:
    known = lab.config.kappas
    arms = [replace(model, complexity=kappa) for kappa in known]
    arms = [arm for arm in arms if lab.has(arm)]
    found = Measurement(
        torch.tensor([[quantity(s) for s in lab.specimens(arm)] for arm in arms]),
        ("objects per subject", "seed"),
        labels={"objects per subject": tuple(arm.complexity for arm in arms)},
        name="two-hop accuracy",
    )
    curve(found, x="objects per subject", ax=ax)
    ax.set_xticks(known)


def _restyle(ax: Axes, label: str, colour: str, line: str) -> None:
    """Name and colour the line that was drawn last, and its band."""
    ax.lines[-1].set(label=label, color=colour, linestyle=line)
    for band in ax.collections[-1:]:
        band.set_facecolor(colour)


def in_distribution(lab: BridgeLab) -> Figure:
    """Two-hop items of half of the bridges are trained; the others asked (Figure 1b).

    The paper: without the identity task they do not help; with it they do.
    """
    arms = [(regime, task) for regime in lab.config.gpt.regimes for task in TASKS]
    arms = [(r, task) for r, task in arms if lab.has(shown(task, r))]
    quantities: dict[str, Callable[[Specimen], float]] = {
        "trained two-hop items": lambda s: s.seen,
        "two hops over other bridges": lambda s: s.ood,
    }
    measured = Measurement(
        torch.tensor(
            [
                [[read(s) for s in lab.specimens(shown(task, r))] for r, task in arms]
                for read in quantities.values()
            ]
        ),
        ("queries", "GPT-2", "seed"),
        labels={
            "queries": tuple(quantities),
            "GPT-2": tuple(f"{r} initial weights,\n{TASK_WORDS[t]}" for r, t in arms),
        },
        name="share right",
    )
    figure = Figure((8, 1.8 + 0.6 * len(arms)), layout="constrained")
    ax = dots(measured, y="GPT-2", hue="queries", ax=figure.add_subplot())
    chance = 1 / lab.config.n_subjects
    ax.axvline(chance, color="grey", linewidth=0.8, label="chance")
    ax.set_xlim(-0.05, 1.05)
    ax.set_title("GPT-2, two-hop items of half of the bridges trained", fontsize=12)
    shared_legend(figure)
    return figure

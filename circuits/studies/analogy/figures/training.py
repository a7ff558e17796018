"""Curves over training, and the law of k."""

from collections.abc import Sequence
from itertools import cycle

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from circuits.studies.analogy.claims.joint import PAPER_COSINE
from circuits.studies.analogy.lab import AnalogyLab
from probes.figures import OKABE_ITO, curve, shared_legend
from probes.measurement import Label, Measurement
from probes.statistics import bootstrap_interval
from trained.analogy.theory import Alignment
from trained.arm import Arm
from trained.errors import BadInput

from .words import CURRICULA, TITLES, in_words, trained

METRICS = {
    "similarity": "cosine of source and target",
    "success": "target right",
    "known": "source still right",
}
PHASES = ("phase 1", "phase 2")
STAGES = {
    "block": ("values\nphase 1", "head\nphase 1", "head\nphase 2", "to\nconvergence"),
    "relu-main": PHASES,
    "gpt": PHASES,
}
LOOKS = dict(
    zip(in_words(CURRICULA), zip(OKABE_ITO, cycle("-:"), strict=False), strict=False)
)
"""Colour and dashes of a curriculum, in every panel."""
POINTS = 20
"""Of a curve over training, per stage."""


def dynamics(lab: AnalogyLab) -> Figure:
    """Similarity, transfer and retention over training, mean over seeds, by model."""
    groups = trained(lab, "block", "relu-main", "gpt")
    figure = Figure((12, 3.4 * len(groups)), layout="constrained")
    axes = figure.subplots(len(groups), 3, squeeze=False)
    for row, group in zip(axes, groups, strict=True):
        for ax, (metric, words) in zip(row, METRICS.items(), strict=True):
            measurement = metric_by_stage(lab, group, metric)
            curve(measurement, x="stage", hue="curriculum", ax=ax)
            _thin(ax, STAGES[group], f"{TITLES[group]}: {words}")
            for line in ax.lines:
                if look := LOOKS.get(str(line.get_label())):
                    line.set(color=look[0], linestyle=look[1])
            ax.set_ylabel("cosine" if metric == "similarity" else "share", fontsize=11)
    for ax in axes[-1]:
        ax.set_xlabel("training, stage by stage", fontsize=11)
    shared_legend(figure, "order of the facts")
    return figure


def multiplicity(lab: AnalogyLab) -> Figure:
    """Alignment against copies of the similarity facts, the law, and Table 5."""
    trained(lab, "block")
    if "joint" not in lab.config.curricula:
        raise BadInput("the run has no joint training; train with curricula=joint")
    ks = lab.config.block_ks
    values = [lab.cosine(lab.joint("block", k)) for k in ks]
    found = torch.tensor(values).double()
    low, high = zip(*map(bootstrap_interval, found), strict=True)
    figure = Figure((6, 4.2), layout="constrained")
    ax = figure.add_subplot()
    ax.errorbar(
        ks,
        found.mean(1),
        (found.mean(1) - torch.tensor(low), torch.tensor(high) - found.mean(1)),
        fmt="o",
        capsize=4,
        color=OKABE_ITO[0],
        label="measured, 95 % interval over seeds",
    )
    law = Alignment.at(lab.config)
    grid = [1 + step * (max(ks) - 1) / 50 for step in range(51)]
    told = "law of the theory"
    ax.plot(grid, [law.joint(k) for k in grid], "--", color="grey", label=told)
    paper = {k: cosine for k, cosine in PAPER_COSINE.items() if k in ks}
    ax.plot(list(paper), list(paper.values()), "x", color="0.5", label="paper")
    ax.lines[-1].set(markersize=8, markeredgewidth=2)
    ax.set_xticks(ks)
    ax.legend(fontsize=9, frameon=False, loc="lower right")
    ax.grid(visible=True, axis="y", alpha=0.3)
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_xlabel("k: copies of the similarity facts for each new property")
    ax.set_ylabel("cosine of source and target (values V z)")
    ax.set_title("More copies align more: one-layer block, all facts at once")
    return figure


def metric_by_stage(lab: AnalogyLab, group: str, metric: str) -> Measurement:
    """A metric over training, mean of the seeds, on an axis of one unit a stage.

    Arms stop at different steps, so a stage's records are spread over its unit from
    its first step to the one where it stopped (or ended); a curriculum without a stage
    is flat there.
    """
    n_stages = len(STAGES[group])
    arms = {
        name: f"{group}-{name}" if group == "relu-main" else lab.named(group, name)
        for name in lab.config.curricula
    }
    names = tuple(name for name, arm in arms.items() if lab.has(arm))
    rows = [_on_stages(lab, arms[name], metric, n_stages).mean(0) for name in names]
    places = tuple(np.arange(n_stages * POINTS) / POINTS)
    axes = ("curriculum", "stage")
    labels: dict[str, tuple[Label, ...]] = dict(
        zip(axes, (in_words(names), places), strict=True)
    )
    return Measurement(torch.stack(rows), axes, labels, metric)


def _on_stages(lab: AnalogyLab, name: str, metric: str, n_stages: int) -> Tensor:
    """[seed, stage x point], the last value repeated where stages are missing."""
    arm, recorded = lab.arm(name), lab.metrics(name)
    stopped = lab.run.record(arm.name)["stopped_at"]
    steps = recorded["step"].numpy()
    lines = []
    for seed, stops in enumerate(stopped):
        wanted, start = [], 0
        for steps_of, stop in _units(arm, stops):
            length = steps_of if stop < 0 else max(stop, 1)
            wanted.append(start + length * np.linspace(0, 1, POINTS))
            start += steps_of
        found = np.interp(np.concatenate(wanted), steps, recorded[metric][seed].numpy())
        missing = n_stages * POINTS - len(found)
        lines.append(np.append(found, np.full(max(missing, 0), found[-1])))
    return torch.from_numpy(np.stack(lines))


def _units(arm: Arm, stops: Sequence[int]) -> list[tuple[int, int]]:
    """Steps and stop of every stage; the rounds of accelerated descent are one."""
    pairs = list(zip(arm.stages, stops, strict=True))
    single = [(s.steps, stop) for s, stop in pairs if not s.name.startswith("round")]
    rounds = [s.steps for s, _ in pairs if s.name.startswith("round")]
    return [*single, (sum(rounds), -1)] if rounds else single


def _thin(ax: Axes, stages: Sequence[str], title: str) -> None:
    """Lines instead of beads, stage names instead of numbers."""
    for line in ax.lines:
        line.set(marker="", linewidth=1.8)
    ax.set_xticks([stage + 0.5 for stage in range(len(stages))], stages, fontsize=9)
    for stage in range(1, len(stages)):
        ax.axvline(stage, color="grey", linewidth=0.8, alpha=0.5)
    ax.set_xlabel("")
    ax.set_ylim(-0.08, 1.05)
    ax.set_title(title, fontsize=12)

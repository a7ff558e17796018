"""The study's figures, each drawn from a lab."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import fmean

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from probes.figures import OKABE_ITO, bars, curve, heatmap
from probes.measurement import Label, Measurement
from trained.analogy.block_arms import later_steps
from trained.analogy.theory import Alignment
from trained.arm import Arm
from trained.errors import BadInput

from .claims.joint import PAPER_COSINE
from .lab import AnalogyLab, Values, When

Reading = Callable[[AnalogyLab, str, When], Values]
READINGS: dict[str, Reading] = {
    "success": AnalogyLab.success,
    "c only": AnalogyLab.c_only,
    "source known": AnalogyLab.retained,
    "answers b": AnalogyLab.shared_answer,
}
METRICS = {
    "similarity": "cosine of source and target",
    "success": "success",
    "known": "source known",
}
TITLES = {"block": "One-layer block", "relu-main": "ReLU block", "gpt": "GPT-2"}
PHASES = ("phase 1", "phase 2")
STAGES = {
    "block": ("values\nphase 1", "head\nphase 1", "head\nphase 2", "to\nconvergence"),
    "relu-main": PHASES,
    "gpt": PHASES,
}
POINTS = 20
"""Of a curve over training, per stage."""
LATE = ("AS_T", "AS_E")
PAPER = {
    "block": {"joint": 0.9202, "SA": 0.9689, "AS_T": 0.0014, "bridge": 0.9132}
    | {"no_bridge": 0.006},
    "gpt": {"joint": 0.995, "SA": 0.7983, "AS_E": 0.4326, "bridge": 0.9642}
    | {"no_bridge": 0.016},
}
"""Cosines of Table 1."""
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Of the source's displacement that a target is given."""
Row = tuple[str, str, When]
"""Label, arm, when."""


def dynamics(lab: AnalogyLab) -> Figure:
    """Similarity, success and retention over training, for every kind of model."""
    groups = _trained(lab, "block", "relu-main", "gpt")
    figure = Figure((12, 3.4 * len(groups)), layout="constrained")
    axes = figure.subplots(len(groups), 3, squeeze=False)
    for row, group in zip(axes, groups, strict=True):
        for ax, (metric, words) in zip(row, METRICS.items(), strict=True):
            measurement = metric_by_stage(lab, group, metric)
            curve(measurement, x="stage", hue="curriculum", ax=ax)
            _thin(ax, STAGES[group], f"{TITLES[group]}: {words}")
    for ax in axes.flat[1:]:
        ax.get_legend().remove()
    return figure


def alignment(lab: AnalogyLab) -> Figure:
    """Cosine of source and target beside its centred form and its null."""
    parts = _trained(lab, "block", "gpt")
    kinds = ("raw", "centred", "shifted")
    figure = Figure((12, 3.8 * len(parts)), layout="constrained")
    panels = figure.subplots(len(parts), squeeze=False)[:, 0]
    for ax, part in zip(panels, parts, strict=True):
        names = [lab.named(part, name) for name in _curricula(lab, part)]
        values = [[fmean(lab.cosine(name, kind)) for kind in kinds] for name in names]
        labels = {"arm": tuple(names), "cosine of": kinds}
        axes = ("arm", "cosine of")
        measurement = Measurement(torch.tensor(values), axes, labels, "cosine")
        bars(measurement, x="arm", hue="cosine of", ax=ax)
        paper = {lab.named(part, name): value for name, value in PAPER[part].items()}
        places = [names.index(name) for name in paper if name in names]
        heights = [value for name, value in paper.items() if name in names]
        ax.plot(places, heights, "x", color="black", label="paper, Table 1")
        ax.legend(fontsize=9, frameon=False)
        title = f"{TITLES[part]}: source and target, and shifted pairs"
        ax.set_title(title, fontsize=12)
    return figure


def transfer(lab: AnalogyLab) -> Figure:
    """What the test prompts are answered with, arm by arm; success never alone."""
    parts = _trained(lab, "block", "gpt")
    figure = Figure((6.4 * len(parts), 5.6), layout="constrained")
    panels = figure.subplots(1, len(parts), squeeze=False)[0]
    for ax, part in zip(panels, parts, strict=True):
        rows = [row for name in _curricula(lab, part) for row in _rows(lab, part, name)]
        _table(ax, lab, rows, READINGS, f"{TITLES[part]}: share of test prompts")
    return figure


def phase(lab: AnalogyLab) -> Figure:
    """The ReLU block end to end: curricula at two init scales."""
    _trained(lab, "relu-main")
    rows: list[Row] = [
        (f"{scale} init, {name}", f"relu-{scale}-{name}", "end")
        for scale in ("main", "small")
        for name in lab.config.curricula
        if lab.has(f"relu-{scale}-{name}")
    ]
    figure = Figure((6.8, 5), layout="constrained")
    readings = {**READINGS, "cosine": _cosine}
    _table(figure.subplots(), lab, rows, readings, "ReLU block, trained end to end")
    return figure


def depth(lab: AnalogyLab) -> Figure:
    """Figure 1: alignment from layer to layer, deep linear networks and GPT-2."""
    panels = [
        panel for part in _trained(lab, "linear", "gpt") for panel in PANELS[part]
    ]
    drawn = [panel(lab) for panel in panels]
    rows = -(-len(drawn) // 2)
    figure = Figure((11, 3.8 * rows), layout="constrained")
    axes = figure.subplots(rows, 2, squeeze=False).flat
    for ax, (title, curves) in zip(axes, drawn, strict=False):
        for colour, (name, seeds) in zip(OKABE_ITO, curves.items(), strict=False):
            # Nulls have fewer seeds, so each curve is drawn by itself.
            labels: dict[str, tuple[Label, ...]] = {"seed": tuple(range(len(seeds)))}
            points = torch.stack(seeds)
            found = Measurement(points, ("seed", "layer"), labels, "cosine")
            bands = len(ax.collections)
            curve(found, x="layer", ax=ax)
            ax.lines[-1].set(label=name, color=colour)
            for band in ax.collections[bands:]:
                band.set_color(colour)
        ax.set_title(title, fontsize=12)
        ax.xaxis.get_major_locator().set_params(integer=True)
        ax.legend(fontsize=9, frameon=False)
    for ax in list(figure.axes)[len(drawn) :]:
        ax.remove()
    return figure


def late(lab: AnalogyLab) -> Figure:
    """AS_T from the first full fit to convergence, and what would make it transfer."""
    _trained(lab, "block")
    steps = later_steps(lab.config)
    figure = Figure((15, 4), layout="constrained")
    *courses, right = figure.subplots(1, 3)
    for ax, arm in zip(courses, ("block-AS_T", "block-AS_T-replay"), strict=True):
        values = [
            [read(lab, arm, step) for step in steps] for read in READINGS.values()
        ]
        axes = ("reading", "kept step", "seed")
        names = {"reading": tuple(READINGS)}
        found = Measurement(torch.tensor(values), axes, names, "share")
        curve(found, x="kept step", hue="reading", ax=ax)
        losses = [fmean(lab.loss(arm, -1, step)) for step in steps]
        ax.set_xticks(range(len(steps)), [f"{loss:.2g}" for loss in losses])
        ax.set_xlabel("loss of phase 2, kept steps")
        ax.set_title(arm, fontsize=12)
    given = [lab.with_displacement("block-AS_T-replay", share) for share in SHARES]
    places = ("share", "seed")
    found = Measurement(torch.tensor(given), places, {"share": SHARES}, "success")
    curve(found, x="share", ax=right)
    title = "block-AS_T-replay: given its source's displacement"
    right.set_title(title, fontsize=12)
    return figure


def multiplicity(lab: AnalogyLab) -> Figure:
    """Alignment against k: measured, the law, and the paper's Table 5."""
    _trained(lab, "block")
    if "joint" not in lab.config.curricula:
        raise BadInput("the run has no joint training; train with curricula=joint")
    ks = lab.config.block_ks
    values = [lab.cosine(lab.joint("block", k)) for k in ks]
    measurement = Measurement(torch.tensor(values), ("k", "seed"), {"k": ks}, "cosine")
    ax = curve(measurement.mean("seed"), x="k")
    law = Alignment.at(lab.config)
    grid = [1 + step * (max(ks) - 1) / 50 for step in range(51)]
    ax.plot(grid, [law.joint(k) for k in grid], "--", color="black", label="law")
    paper = {k: cosine for k, cosine in PAPER_COSINE.items() if k in ks}
    ax.plot(
        list(paper), list(paper.values()), "x", color="#D55E00", label="paper, Table 5"
    )
    ax.lines[0].set(label="measured", linestyle="")
    ax.set_xticks(ks)
    ax.legend(fontsize=9, frameon=False)
    ax.set_title("One-layer block, joint training: cosine of V z", fontsize=12)
    figure = ax.figure
    assert isinstance(figure, Figure)
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
    labels: dict[str, tuple[Label, ...]] = {"curriculum": names, "stage": places}
    axes = ("curriculum", "stage")
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


Panel = tuple[str, dict[str, list[Tensor]]]
"""A title, and by name the curves of all seeds."""


def _linear(inputs: int, lab: AnalogyLab) -> Panel:
    found, before = lab.linear_depth(inputs), lab.untrained().linear_depth(inputs)
    return f"Figure 1a: deep linear network, {inputs} inputs per label", {
        "same label": [same.mean(-1) for same, _ in found],
        "different labels": [other.mean(-1) for _, other in found],
        "same label, untrained": [same.mean(-1) for same, _ in before],
    }


def _labelled(lab: AnalogyLab) -> Panel:
    found, own = lab.labelled_depth(), lab.labelled_depth("gpt-own_labels")
    return "Figure 1b: GPT-2 on single tokens, embedding to final norm", {
        "same label": [same.mean(-1) for same, _ in found],
        "different labels": [other.mean(-1) for _, other in found],
        "each its own label": [same.mean(-1) for same, _ in own],
    }


def _prompts(lab: AnalogyLab) -> Panel:
    name = lab.named("gpt", "joint" if "joint" in lab.config.curricula else "bridge")
    entity, last = lab.prompt_depth(name, "entity"), lab.prompt_depth(name, "last")
    return f"{name}: source and target in r2 prompts", {
        "at the entity": [pairs.mean(-1) for pairs, _ in entity],
        "at the last token": [pairs.mean(-1) for pairs, _ in last],
        "at the entity, shifted pairs": [shifted.mean(-1) for _, shifted in entity],
    }


PANELS: dict[str, tuple[Callable[[AnalogyLab], Panel], ...]] = {
    "linear": (partial(_linear, 2), partial(_linear, 4)),
    "gpt": (_labelled, _prompts),
}


def _table(
    ax: Axes,
    lab: AnalogyLab,
    rows: Sequence[Row],
    readings: Mapping[str, Reading],
    title: str,
) -> None:
    """Readings of arms as a heat map with the numbers written in."""
    values = torch.tensor(
        [
            [fmean(read(lab, arm, when)) for read in readings.values()]
            for _, arm, when in rows
        ]
    )
    labels = {"arm": tuple(label for label, _, _ in rows), "reading": tuple(readings)}
    heatmap(Measurement(values, ("arm", "reading"), labels, "share"), ax)
    for row, line in enumerate(values.tolist()):
        for column, value in enumerate(line):
            colour = "white" if value < 0.55 else "black"
            text = ax.text(column, row, f"{value:.2f}", color=colour, fontsize=9)
            text.set(ha="center", va="center")
    ax.set_title(title, fontsize=12)
    ax.set(xlabel="", ylabel="")


def _cosine(lab: AnalogyLab, arm: str, _: When) -> Values:
    return lab.cosine(arm)


def _curricula(lab: AnalogyLab, part: str) -> list[str]:
    names = (*lab.config.curricula, "bridge", "no_bridge")
    return [name for name in names if lab.has(lab.named(part, name))]


def _rows(lab: AnalogyLab, part: str, name: str) -> list[Row]:
    """What the transfer table shows of a curriculum."""
    arm = lab.named(part, name)
    if name not in LATE:
        return [(name, arm, "end")]
    rows: list[Row] = [
        (name, arm, "end"),
        (f"{name}, A replayed", f"{arm}-replay", "end"),
    ]
    if part == "gpt":
        return [row for row in rows if lab.has(row[1])]
    rows = [
        (f"{name}, just fitted", arm, "fitted"),
        (f"{name}, converged", arm, "end"),
        (f"{name}, A replayed", f"{arm}-replay", "end"),
        (f"{name}, values unfrozen", f"{arm}-unfrozen", "end"),
    ]
    return [row for row in rows if lab.has(row[1])]


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


def _trained(lab: AnalogyLab, *groups: str) -> list[str]:
    """Those that the run trained; `BadInput` if it trained none."""
    parts = [group.partition("-")[0] for group in groups]
    found = [g for g, p in zip(groups, parts, strict=True) if p in lab.config.parts]
    if not found:
        names = ",".join(parts)
        raise BadInput(f"the run lacks what this figure shows; train parts={names}")
    return found


FIGURES: dict[str, Callable[[AnalogyLab], Figure]] = {
    "dynamics": dynamics,
    "alignment": alignment,
    "transfer": transfer,
    "phase": phase,
    "depth": depth,
    "late": late,
    "multiplicity": multiplicity,
}

"""The study's figures, each drawn from a stored run."""

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from probes.figures import bars, curve, heatmap
from probes.measurement import Measurement
from trained.analogy import gpt, layerwise
from trained.analogy.deep_linear import ARM
from trained.analogy.end_to_end import SCALES
from trained.analogy.law import Alignment as Law
from trained.errors import BadInput
from trained.store import Run

from .claims_block import PAPER_COSINE
from .depth import gpt_curves, linear_curves
from .dynamics import GROUPS, metric_by_stage
from .readings import (
    Reader,
    Trained,
    c_only,
    final_alignment,
    known,
    shared_answer,
    success,
    value_alignment,
)

READINGS: dict[str, Callable[[Trained], float]] = {
    "success": success,
    "c only": c_only,
    "source known": known,
    "answers b": shared_answer,
}
METRICS = {
    "similarity": "cosine of source and target",
    "success": "success",
    "known": "source known",
}
Row = tuple[str, str, int | None]
"""Label, arm, saved step."""
NOT_TRAINED = "the run has no {}; train with parts={}"


def dynamics(run: Run) -> Figure:
    """Similarity, success and retention over training, both kinds of model."""
    reader = Reader(run)
    groups = [name for name in GROUPS if name in reader.config.parts]
    _require(groups, "block, ReLU block or GPT-2", "block,relu,gpt")
    figure = Figure((12, 3.4 * len(groups)), layout="constrained")
    axes = figure.subplots(len(groups), 3, squeeze=False)
    for row, group in zip(axes, groups, strict=True):
        for ax, (metric, words) in zip(row, METRICS.items(), strict=True):
            measurement = metric_by_stage(reader, group, metric)
            curve(measurement, x="stage", hue="curriculum", ax=ax)
            _thin(ax, GROUPS[group].stages, f"{GROUPS[group].title}: {words}")
    for ax in axes.flat[1:]:
        ax.get_legend().remove()
    return figure


def alignment(run: Run) -> Figure:
    """Cosine of source and target beside its centred form and its null."""
    reader = Reader(run)
    parts = [part for part in ("block", "gpt") if part in reader.config.parts]
    _require(parts, "block or GPT-2", "block,gpt")
    figure = Figure((12, 3.8 * len(parts)), layout="constrained")
    for ax, part in zip(
        figure.subplots(len(parts), squeeze=False)[:, 0], parts, strict=True
    ):
        measurement = _cosines(reader, part)
        bars(measurement, x="arm", hue="cosine of", ax=ax)
        ax.set_title(f"{part}: source and target, and shifted pairs", fontsize=12)
    return figure


def transfer(run: Run) -> Figure:
    """What the test prompts are answered with, arm by arm; success never alone."""
    reader = Reader(run)
    parts = [part for part in ("block", "gpt") if part in reader.config.parts]
    _require(parts, "block or GPT-2", "block,gpt")
    figure = Figure((6.4 * len(parts), 5.6), layout="constrained")
    panels = figure.subplots(1, len(parts), squeeze=False)[0]
    for ax, part in zip(panels, parts, strict=True):
        rows = _block_rows(reader) if part == "block" else _gpt_rows(reader)
        title = "One-layer block" if part == "block" else "GPT-2"
        _table(ax, reader, rows, READINGS, f"{title}: share of test prompts")
    return figure


def phase(run: Run) -> Figure:
    """The ReLU block end to end: curricula at two init scales."""
    reader = Reader(run)
    _require([p for p in reader.config.parts if p == "relu"], "ReLU block", "relu")
    rows = [
        (f"{scale.name} init, {name}", f"relu-{scale.name}-{name}", None)
        for scale in SCALES
        for name in reader.config.curricula
    ]
    figure = Figure((6.8, 5), layout="constrained")
    readings = {**READINGS, "cosine": lambda trained: value_alignment(trained).raw}
    _table(figure.subplots(), reader, rows, readings, "ReLU block, trained end to end")
    return figure


def depth(run: Run) -> Figure:
    """Alignment from layer to layer: deep linear network and GPT-2."""
    reader = Reader(run)
    parts = [part for part in ("linear", "gpt") if part in reader.config.parts]
    _require(parts, "deep linear network or GPT-2", "linear,gpt")
    figure = Figure((5.6 * len(parts), 4), layout="constrained")
    for ax, part in zip(
        figure.subplots(1, len(parts), squeeze=False)[0], parts, strict=True
    ):
        title, measurement = (_linear if part == "linear" else _gpt)(reader)
        curve(measurement, x="layer", hue="pairs", ax=ax)
        ax.set_xticks(measurement.labels["layer"])
        ax.set_title(title, fontsize=12)
    return figure


def multiplicity(run: Run) -> Figure:
    """Alignment against k: measured, the law, and the paper's Table 5."""
    reader = Reader(run)
    config = reader.config
    trained = "block" in config.parts and "joint" in config.curricula
    _require(["joint"] if trained else [], "joint one-layer block", "block")
    ks = config.block_ks
    values = [
        reader.of(layerwise.joint_name(k), lambda t: value_alignment(t).raw) for k in ks
    ]
    measurement = Measurement(torch.tensor(values), ("k", "seed"), {"k": ks}, "cosine")
    ax = curve(measurement.mean("seed"), x="k")
    law = Law(config.n_entities, config.d_model)
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


def _cosines(reader: Reader, part: str) -> Measurement:
    read = value_alignment if part == "block" else final_alignment
    names, kinds = _curriculum_arms(reader, part), ("raw", "centred", "shifted")
    values = []
    for name in names:
        with torch.no_grad():
            found = [read(trained) for trained in reader.seeds(name)]
        values.append([[getattr(one, kind) for one in found] for kind in kinds])
    labels = {"arm": tuple(names), "cosine of": kinds}
    axes = ("arm", "cosine of", "seed")
    return Measurement(torch.tensor(values), axes, labels, "cosine")


def _linear(reader: Reader) -> tuple[str, Measurement]:
    with torch.no_grad():
        seeds = reader.seeds(ARM)
        curves = [torch.stack(linear_curves(one.model)) for one in seeds]
        before = [linear_curves(one.untrained().model)[0][None] for one in seeds]
    pairs = ("same label", "different labels", "same label, untrained")
    stacked = torch.cat([torch.stack(curves), torch.stack(before)], 1)
    measurement = Measurement(
        stacked, ("seed", "pairs", "layer"), {"pairs": pairs}, "cosine"
    )
    return "Deep linear network, trained bottom up", measurement


def _gpt(reader: Reader) -> tuple[str, Measurement]:
    config = reader.config
    joint = "joint" in config.curricula
    name = gpt.joint_name(config.multiplicity) if joint else "gpt-bridge"
    with torch.no_grad():
        curves = [torch.stack(gpt_curves(one)) for one in reader.seeds(name)]
    pairs = ("source and target", "shifted pairs")
    measurement = Measurement(
        torch.stack(curves), ("seed", "pairs", "layer"), {"pairs": pairs}, "cosine"
    )
    return f"{name}: residual at the entity", measurement


def _table(
    ax: Axes,
    reader: Reader,
    rows: Sequence[Row],
    readings: Mapping[str, Callable[[Trained], float]],
    title: str,
) -> None:
    """Readings of arms as a heat map with the numbers written in."""
    values = torch.tensor(
        [
            [fmean(reader.of(arm, read, step=step)) for read in readings.values()]
            for _, arm, step in rows
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


def _block_rows(reader: Reader) -> list[Row]:
    config = reader.config
    fitted = layerwise.fitted_step(config)
    rows: list[Row] = []
    for name, arm in zip(
        config.curricula, _curriculum_arms(reader, "block"), strict=False
    ):
        if name in ("AS_T", "AS_E"):
            rows += [
                (f"{name}, just fitted", arm, fitted),
                (f"{name}, later", arm, None),
                (f"{name}, replay, V frozen", f"{arm}-replay", fitted),
                (f"{name}, replay, V let go", f"{arm}-replay", None),
            ]
        else:
            rows.append((name, arm, None))
    return [
        *rows,
        ("two-hop, bridge", "block-bridge", None),
        ("two-hop, no bridge", "block-no_bridge", None),
    ]


def _gpt_rows(reader: Reader) -> list[Row]:
    config = reader.config
    rows: list[Row] = []
    for name, arm in zip(
        config.curricula, _curriculum_arms(reader, "gpt"), strict=False
    ):
        rows.append((name, arm, None))
        if name in ("AS_T", "AS_E"):
            rows.append((f"{name}, replay", f"{arm}-replay", None))
    return [
        *rows,
        ("two-hop, bridge", "gpt-bridge", None),
        ("two-hop, no bridge", "gpt-no_bridge", None),
    ]


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


def _curriculum_arms(reader: Reader, part: str) -> list[str]:
    config = reader.config
    joint = layerwise.joint_name if part == "block" else gpt.joint_name
    names = [
        joint(config.multiplicity) if name == "joint" else f"{part}-{name}"
        for name in config.curricula
    ]
    return [*names, f"{part}-bridge", f"{part}-no_bridge"]


def _require(found: Sequence[str], what: str, parts: str) -> None:
    if not found:
        raise BadInput(NOT_TRAINED.format(what, parts))


FIGURES: dict[str, Callable[[Run], Figure]] = {
    "dynamics": dynamics,
    "alignment": alignment,
    "transfer": transfer,
    "phase": phase,
    "depth": depth,
    "multiplicity": multiplicity,
}

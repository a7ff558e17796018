"""Metrics over training on an axis that all curricula share: stages, one unit each.

Arms stop at different steps, so a stage's records are spread over its unit from its
first step to the one where it stopped (or ended).
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from probes.measurement import Label, Measurement
from trained.analogy import gpt, layerwise
from trained.arm import Arm

from .readings import Reader

POINTS = 20
"""Per stage."""


@dataclass(frozen=True)
class Group:
    """The arms that one row of the figure compares."""

    title: str
    stages: tuple[str, ...]

    def arm(self, reader: Reader, part: str, name: str) -> str:
        """The arm of a curriculum."""
        if part == "relu":
            return f"relu-main-{name}"
        joint = layerwise.joint_name if part == "block" else gpt.joint_name
        return (
            joint(reader.config.multiplicity) if name == "joint" else f"{part}-{name}"
        )


GROUPS = {
    "block": Group(
        "one-layer block",
        ("values\nphase 1", "head\nphase 1", "head\nphase 2", "head\nlater"),
    ),
    "relu": Group("ReLU block", ("phase 1", "phase 2")),
    "gpt": Group("GPT-2", ("phase 1", "phase 2")),
}


def metric_by_stage(reader: Reader, part: str, metric: str) -> Measurement:
    """A metric of every curriculum and seed; a curriculum without a stage is flat."""
    group = GROUPS[part]
    names = reader.config.curricula
    rows = [
        _on_stages(reader, group.arm(reader, part, name), metric, len(group.stages))
        for name in names
    ]
    places = tuple(
        stage + point / POINTS
        for stage in range(len(group.stages))
        for point in range(POINTS)
    )
    labels: dict[str, tuple[Label, ...]] = {"curriculum": names, "stage": places}
    axes = ("curriculum", "seed", "stage")
    return Measurement(torch.stack(rows), axes, labels, metric)


def _on_stages(reader: Reader, name: str, metric: str, n_stages: int) -> Tensor:
    """[seed, stage x point], the last value repeated where stages are missing."""
    run, arm = reader.run, reader.arm(name)
    recorded, stopped = run.metrics(name), run.record(name)["stopped_at"]
    steps = recorded["step"].numpy()
    lines = []
    for seed, stops in enumerate(stopped):
        wanted = _places(arm, stops)
        found = np.interp(wanted, steps, recorded[metric][seed].numpy())
        missing = n_stages * POINTS - len(found)
        lines.append(np.append(found, np.full(missing, found[-1])))
    return torch.from_numpy(np.stack(lines))


def _places(arm: Arm, stops: list[int]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """The steps that stand for the points of every stage."""
    start, parts = 0, []
    for stage, stop in zip(arm.stages, stops, strict=True):
        length = stage.steps if stop < 0 else max(stop, 1)
        parts.append(start + length * np.linspace(0, 1, POINTS))
        start += stage.steps
    return np.concatenate(parts)

"""Runs of the recall study whose circuit is known by construction, or absent."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from circuits.studies.recall import STUDY
from circuits.studies.recall.lab import RecallLab
from circuits.studies.recall.lab.memory import shuffled
from circuits.studies.recall.lab.optimum import SADDLE
from circuits.studies.recall.substitutes import LOOKS_AT_QUERY, scores
from trained.config import as_dict
from trained.recall.config import Config, Partial, Pretrained, Samples
from trained.recall.model import RecallModel, constructed_model
from trained.recall.scores import PositionScores, install
from trained.recall.task import Table
from trained.recall.theory_config import Few, FirstStep, Rate, Warmup
from trained.store import Run

Build = Callable[[Any, int], nn.Module]
"""(table, seed) -> what training ended at, we pretend; the warm-up's has no table, but
the saved step in its place."""

SMALL = Config(n_test=400, n_probe=400)

TINY = Config(
    n_subjects=5,
    n_relations=20,
    full_steps=2,
    full_batch=32,
    direct_steps=2,
    n_test=200,
    n_probe=300,
    warmup=Warmup(draws=2, steps=4, escape_steps=4, stride=1, points=2000, starts=2),
    few=Few(
        subjects=(5, 7),
        sizes=(1, 8, 16, 32),
        draws=2,
        reach=0.01,
        n_test=100,
        n_decode=9,
    ),
    first_step=FirstStep(subjects=8, prompts=32, draws=1),
    rate=Rate(subjects=8, draws=2, reach=0.02, temperatures=(0.008, 0.004)),
    partial=Partial(steps=3, subjects=(6,), quarter=7, draws=2, population=100),
    samples=Samples(subjects=(6,), sizes=(1, 8), steps=3),
    pretrained=Pretrained(steps=0),
)
"""Everything is trained, and hardly."""


LIGHT_FIRST = scores(0.17, 0.17, 0.31, 0.31, 0.02, 0.02)
HEAVY_FIRST = scores(0.31, 0.31, 0.17, 0.17, 0.02, 0.02)
"""As after short training: cutting a word without any weight would be no edit."""
CROSSED = scores(0.32, 0.18, 0.18, 0.32, 0.0, 0.0)
UNIFORM = torch.zeros(6)


def known(table: Table, seed: int = 0, theta: Tensor = LIGHT_FIRST) -> RecallModel:
    """Lemma 1's memory, read by a pairwise pattern that is set by hand."""
    return install(constructed_model(table, 2, seed), theta, LOOKS_AT_QUERY)


def attending(theta: Tensor) -> Build:
    """The same with another pattern."""
    return lambda table, seed: known(table, seed, theta)


def absent(table: Table, seed: int = 0) -> RecallModel:
    """The pairwise attention, but the memory's values belong to other keys."""
    return shuffled(known(table, seed), seed)


def lab_of(
    path: Path,
    arms: dict[str, Build],
    config: Config = SMALL,
    seeds: Sequence[int] = (0, 1, 2),
) -> RecallLab:
    """A lab of a run whose arms ended, we pretend, in the given models."""
    manifest = {"study": "recall", "config": as_dict(config), "seeds": list(seeds)}
    run = Run.create(path, {**manifest, "preset": "quick", "device": "cpu"})
    lab = RecallLab(STUDY, run)

    def put(arm: str) -> Callable[..., nn.Module]:
        setting = lab.settings.get(arm)
        return lambda _lab, seed, step: arms[arm](
            setting.table(seed) if setting else step, seed
        )

    return lab.with_models({arm: put(arm) for arm in arms})


def descended(config: Config, theta: Tensor, at_first: Tensor = SADDLE) -> Build:
    """A warm-up whose draws all ended at given scores, and stage 1 at others."""
    warmup = config.warmup
    copies = (len(warmup.temperatures) + 1) * 2 * warmup.draws

    def build(step: int | None, _seed: int) -> PositionScores:
        model = PositionScores(2, torch.zeros(copies, 13, dtype=torch.float64))
        end = at_first if step == warmup.saddle else theta
        model.theta.data = end.double().expand(copies, 6).clone()
        return model

    return build


def gridded(lab: RecallLab, arm: str, theta: Tensor, omega: Tensor) -> RecallLab:
    """The lab with an arm of position scores whose copies all have the given ones."""

    def build(lab: RecallLab, seed: int, _step: int | None) -> PositionScores:
        model = PositionScores(2, lab.arms[arm].build(seed).perturbation.detach())
        model.theta.data = theta.double().expand_as(model.theta).clone()
        model.omega.data = omega.double().expand_as(model.omega).clone()
        return model

    return lab.with_models({**lab.builds, arm: build})

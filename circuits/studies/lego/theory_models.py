"""The trained theory models of a run, and what every claim reads from them."""

from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from probes.attention import balance_gap, concentration_error
from trained.arm import Arm
from trained.lego.action import action
from trained.lego.config import Config
from trained.lego.theory_arms import Course
from trained.lego.theory_model import TheoryModel
from trained.store import Run
from trained.training import restore

from .context import Context
from .dilution import sharpness
from .reading import marks, patterns
from .specimen import Specimen

READ_LENGTH, READ_COUNT = 5, 100
"""Sentences on which K and the gap are read, as in the experiments."""


@dataclass(frozen=True)
class Theory:
    """The theory models of a run."""

    context: Context
    _loaded: dict[tuple[str, str], list[Specimen]] = field(default_factory=dict)

    @property
    def run(self) -> Run:
        """The run."""
        return self.context.run

    @property
    def config(self) -> Config:
        """The run's configuration."""
        return self.context.config

    @cached_property
    def courses(self) -> dict[str, Course]:
        """How each action is trained."""
        texts = dict.fromkeys((*self.config.theory_groups, *self.config.feature_groups))
        return {text: Course(self.config, text) for text in texts}

    def course(self, kind: str) -> Course | None:
        """The first action that is simply transitive ("simple") or that is not."""
        for text in self.config.theory_groups:
            if action(text).is_simply_transitive == (kind == "simple"):
                return self.courses[text]
        return None

    @property
    def unbalanced(self) -> list[Course]:
        """All actions that are not simply transitive, the features' first."""
        texts = dict.fromkeys((*self.config.feature_groups, *self.config.theory_groups))
        return [
            self.courses[text]
            for text in texts
            if not action(text).is_simply_transitive
        ]

    def ffns(self, course: Course, when: str = "end") -> list[TheoryModel]:
        """The models of an action, for their FFN: at the "start", "early", or "end"."""
        chain = course.text in self.config.theory_groups
        arm = course.arm if chain else course.feature_arm
        early = self.config.theory_value_steps // 4
        step = {"start": 0, "early": early, "end": arm.steps}[when]
        return self._stored(arm, step)

    def only(self, arm: Arm) -> tuple[list[TheoryModel], list[TheoryModel]]:
        """The models of an arm before and after training."""
        return self._stored(arm, 0), self._stored(arm, arm.steps)

    def _stored(self, arm: Arm, step: int) -> list[TheoryModel]:
        found = []
        for seed in self.run.record(arm.name)["seeds"]:
            model = restore(self.run, arm, seed, step=step)
            assert isinstance(model, TheoryModel)
            found.append(model.requires_grad_(False))
        return found

    def after(self, course: Course, stage: str) -> list[Specimen]:
        """The models of every seed at the end of a stage."""
        key = (course.text, stage)
        if key not in self._loaded:
            models = self._stored(course.arm, course.milestones[stage])
            seeds = self.run.record(course.arm.name)["seeds"]
            n = self.config.theory_variables
            self._loaded[key] = [
                Specimen(course.text, seed, model, n)
                for seed, model in zip(seeds, models, strict=True)
            ]
        return self._loaded[key]

    def history(self, course: Course, stage: str) -> dict[str, Tensor]:
        """The metrics recorded in a stage, `step` counted from its start."""
        metrics, ends = self.run.metrics(course.arm.name), course.milestones
        length = next(s.steps for s in course.stages if s.name == stage)
        step = metrics["step"] - (ends[stage] - length)
        inside = (step >= 0) & (step < length)
        found = {k: v[:, inside] for k, v in metrics.items() if k != "step"}
        return {**found, "step": step[inside]}

    def reduced(self, course: Course, *, balanced: bool = False) -> dict[str, Tensor]:
        """The path of a reduced model: alpha, beta and loss by seed and record."""
        return self.run.metrics(course.reduced_name(1.0 if balanced else None))

    def all(self, specimen: Specimen, length: int) -> float:
        """Share of sentences of a length that are right throughout."""
        sentences = specimen.sentences(length, self.config.n_sentences)
        return marks(specimen, sentences).all


def error(specimen: Specimen, length: int = READ_LENGTH) -> float:
    """eps: the attention that misses both targets, mean over sentences and steps."""
    sentences = specimen.sentences(length, READ_COUNT)
    rows = patterns(specimen, sentences)[:, 0]
    return float(concentration_error(rows, sentences.targets()).mean())


def gap(specimen: Specimen) -> float:
    """Delta: |attention on the predicate - on the answer|, mean."""
    sentences = specimen.sentences(READ_LENGTH, READ_COUNT)
    rows = patterns(specimen, sentences)[:, 0]
    return float(balance_gap(rows, sentences.targets()).mean())


def sharp(specimen: Specimen) -> float:
    """K, fitted to eps."""
    return sharpness(error(specimen), READ_LENGTH)


def uniform(specimen: Specimen) -> Specimen:
    """The same FFN with Q = 0."""
    model = TheoryModel(specimen.model.vocabulary, generator=torch.Generator())
    model.load_state_dict(specimen.model.state_dict())
    with torch.no_grad():
        model.tables.Q43.zero_()
        model.tables.Q44.zero_()
    model.requires_grad_(False)
    return Specimen(specimen.group, specimen.seed, model, specimen.n_variables)

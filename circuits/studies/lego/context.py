"""What all evidence of the lego study shares: the run, its models, their marks."""

from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import nn

from trained.arm import Arm
from trained.config import from_dict
from trained.lego.action import action
from trained.lego.arms import MAIN, arms, saved_step, self_name, trains_itself
from trained.lego.branches import Branches
from trained.lego.config import Config, Standard
from trained.lego.sentences import Sentences
from trained.lego.standard import StandardModel
from trained.lego.standard_arm import standard_name
from trained.store import Run
from trained.training import restore

from .reading import Marks, marks
from .specimen import Specimen

SHORT = 100
"""Fewest test sentences of the training length, as many as Figure 2 averages."""


@dataclass(frozen=True)
class Context:
    """A trained run of the lego study."""

    run: Run
    _loaded: dict[tuple[str, str, int | None], list[Specimen]] = field(
        default_factory=dict
    )
    _curves: dict[int, tuple[Specimen, dict[int, Marks]]] = field(default_factory=dict)

    @cached_property
    def config(self) -> Config:
        """The run's configuration."""
        return from_dict(Config, self.run.manifest["config"])

    @cached_property
    def _arms(self) -> dict[str, Arm]:
        return {arm.name: arm for arm in arms(self.config)}

    @property
    def self_group(self) -> str | None:
        """The group that trains itself, if any."""
        kinds = (g for g in self.config.groups if trains_itself(self.config, g))
        return next(kinds, None)

    def models(self, group: str, budget: int | None = None) -> list[Specimen]:
        """A group's models after a budget of steps (default: the main one)."""
        budget = self.config.steps if budget is None else budget
        step = saved_step(self.config, budget)
        return self._branch(group, action(group).slug, MAIN, step)

    def controls(self, group: str, branch: str) -> list[Specimen]:
        """A group's models with another attention than the main one."""
        return self._branch(group, action(group).slug, branch, None)

    def self_trained(self, branch: str) -> list[Specimen]:
        """The models of a self-training branch."""
        assert self.self_group is not None
        return self._branch(self.self_group, self_name(self.self_group), branch, None)

    def ordinary(self, group: str, variant: Standard) -> list[Specimen]:
        """A group's ordinary transformers."""
        arm = self._arms[standard_name(group, variant)]
        return [
            self._plain(group, seed, restore(self.run, arm, seed))
            for seed in self.run.record(arm.name)["seeds"]
        ]

    def untrained_ordinary(self, group: str, variant: Standard) -> list[Specimen]:
        """The same before training."""
        arm = self._arms[standard_name(group, variant)]
        return [
            self._plain(group, seed, arm.build(seed))
            for seed in self.run.record(arm.name)["seeds"]
        ]

    def _plain(self, group: str, seed: int, model: nn.Module) -> Specimen:
        assert isinstance(model, StandardModel)
        model.requires_grad_(False)
        return Specimen(group, seed, model, self.config.n_variables)

    def _branch(
        self, group: str, arm: str, branch: str, step: int | None
    ) -> list[Specimen]:
        key = (arm, branch, step)
        if key not in self._loaded:
            found = []
            for seed in self.run.record(arm)["seeds"]:
                stored = restore(self.run, self._arms[arm], seed, step=step)
                assert isinstance(stored, Branches)
                with torch.no_grad():
                    model = stored.single(branch)
                model.requires_grad_(False)
                found.append(Specimen(group, seed, model, self.config.n_variables))
            self._loaded[key] = found
        return self._loaded[key]

    def curve(self, specimen: Specimen) -> dict[int, Marks]:
        """A model's marks at every test length."""
        key = id(specimen.model)
        if key not in self._curves:
            # The model is kept too, so that its id stays its own.
            self._curves[key] = (
                specimen,
                {
                    length: marks(
                        specimen, specimen.sentences(length, self.config.n_sentences)
                    )
                    for length in self.config.lengths
                },
            )
        return self._curves[key][1]

    def short(self, specimen: Specimen) -> Sentences:
        """Test sentences of the training length, enough of them for any reading."""
        count = max(SHORT, self.config.n_sentences)
        return specimen.sentences(self.config.train_length, count)

    def long(self, specimen: Specimen) -> Sentences:
        """Test sentences of the largest length."""
        return specimen.sentences(self.config.lengths[-1], self.config.n_sentences)

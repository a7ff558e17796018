"""What all evidence of the symbols study shares: scores by setting, trained models.

Every setting is trained at each learning rate of its grid. The rate is the one with
the lowest validation loss (mean over seeds, each at its best step); test scores are
read at that rate and at each seed's best validation step. Models are those of that
rate after the last step.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from torch import nn

from trained.arm import Arm
from trained.config import from_dict
from trained.store import Run
from trained.symbols.arms import (
    alphabet_of,
    arm,
    arm_name,
    model_of,
    rates,
    strings_of,
)
from trained.symbols.config import Config
from trained.symbols.sampler import Alphabet, Strings
from trained.symbols.setting import Setting, settings
from trained.training import restore


@dataclass(frozen=True)
class Specimen:
    """One trained model, its alphabets and its strings."""

    setting: Setting
    seed: int
    model: nn.Module
    alphabet: Alphabet
    strings: dict[str, Strings]


@dataclass(frozen=True)
class Context:
    """A trained run of the symbols study."""

    run: Run
    _loaded: dict[Setting, list[Specimen]] = field(default_factory=dict)

    @cached_property
    def config(self) -> Config:
        """The run's configuration."""
        return from_dict(Config, self.run.manifest["config"])

    @cached_property
    def settings(self) -> frozenset[Setting]:
        """Every setting that the run trains."""
        return frozenset(settings(self.config))

    def rate(self, setting: Setting) -> float:
        """The learning rate with the lowest validation loss."""

        def validation(lr: float) -> float:
            found = self.run.metrics(arm_name(setting, lr))["validation"][:, 1:]
            return float(found.min(dim=1).values.mean())

        return min(rates(self.config, setting), key=validation)

    def scores(self, setting: Setting, metric: str = "test") -> list[float]:
        """A metric of every seed at its best validation step.

        The first record is left out: it is the model before training.
        """
        found = self.run.metrics(arm_name(setting, self.rate(setting)))
        best = found["validation"][:, 1:].argmin(dim=1, keepdim=True)
        return [float(value) for value in found[metric][:, 1:].gather(1, best)]

    def last_scores(self, setting: Setting, metric: str = "test") -> list[float]:
        """A metric of every seed after the last step."""
        found = self.run.metrics(arm_name(setting, self.rate(setting)))
        return [float(value) for value in found[metric][:, -1]]

    def specimens(self, setting: Setting) -> list[Specimen]:
        """The trained models of a setting, one per seed."""
        if setting not in self._loaded:
            chosen = arm(self.config, setting, self.rate(setting))
            seeds = self.run.record(chosen.name)["seeds"]
            self._loaded[setting] = [self._load(setting, chosen, s) for s in seeds]
        return self._loaded[setting]

    def _load(self, setting: Setting, chosen: Arm, seed: int) -> Specimen:
        model = restore(self.run, chosen, seed).requires_grad_(False)
        return self._specimen(setting, seed, model)

    def untrained(self, setting: Setting) -> list[Specimen]:
        """The models of a setting before training."""
        return [
            self._specimen(setting, seed, model_of(self.config, setting, seed).eval())
            for seed in self.run.seeds
        ]

    def _specimen(self, setting: Setting, seed: int, model: nn.Module) -> Specimen:
        strings = strings_of(self.config, setting, seed)
        alphabet = alphabet_of(self.config, setting)
        return Specimen(setting, seed, model, alphabet, strings)

    def each(
        self, setting: Setting, quantity: Callable[[Specimen], float]
    ) -> list[float]:
        """A quantity of every seed of a setting."""
        return [quantity(specimen) for specimen in self.specimens(setting)]


def differences(first: list[float], second: list[float]) -> list[float]:
    """Seed by seed."""
    return [a - b for a, b in zip(first, second, strict=True)]

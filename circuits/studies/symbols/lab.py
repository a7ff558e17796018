"""A trained run of the symbols study, opened: scores by setting and models.

Every setting is trained at each learning rate of its grid. The rate is the one with
the lowest validation loss (mean over seeds, each at its best step); test scores are
read at that rate and at each seed's best validation step. Models are those of that
rate after the last step. `lab.wired(wire)` is the same lab with models whose weights
are set by hand; they are scored as they are, having no course of training.
"""

from collections.abc import Callable, Sequence
from math import log
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.claims import NotTested
from circuits.lab import Lab, once
from circuits.study import Study
from trained.store import Run
from trained.symbols.arms import alphabet_of, arm_name, rates, strings_of
from trained.symbols.config import Config
from trained.symbols.setting import (
    Identity,
    Setting,
    baseline,
    copying,
    relation,
    settings,
)
from trained.task import Batch

from .specimen import Specimen
from .theory import Theory

Wire = Callable[[Setting, Specimen], Specimen | None]
"""What takes a trained model's place, with its strings; None: nothing does."""


class SymbolsLab(Lab):
    """A run of the symbols study."""

    config: Config

    def __init__(self, study: Study, run: Run) -> None:
        super().__init__(study, run)
        self.settings = {
            arm_name(setting, lr): setting
            for setting in settings(self.config)
            for lr in rates(self.config, setting)
        }
        self.theory = Theory(self.config, self.seeds)
        self.wire: Wire | None = None

    def wired(self, wire: Wire) -> "SymbolsLab":
        """A lab whose models, and strings if need be, are made by hand."""
        return self.other(wire=wire)

    @once
    def best_arm(self, setting: Setting) -> str:
        """The setting's arm with the lowest validation loss."""

        def validation(lr: float) -> float:
            found = self.records(arm_name(setting, lr))["validation"][:, 1:]
            return float(found.min(dim=1).values.mean())

        return arm_name(setting, min(rates(self.config, setting), key=validation))

    def records(self, arm: str) -> dict[str, Tensor]:
        """What was recorded while an arm trained; its first record was before."""
        return self.run.metrics(self.arm(arm).name)

    def scores(self, setting: Setting, metric: str = "test") -> list[float]:
        """A metric of every seed at its best validation step.

        The first record is left out: it is the model before training, and all that an
        untrained lab has.
        """
        found = self.records(self.best_arm(setting))
        if not self.trained:
            return found[metric][:, 0].tolist()
        if self.wire is not None:
            return self.over(setting, lambda specimen: specimen.score(metric))
        best = found["validation"][:, 1:].argmin(dim=1, keepdim=True)
        return [float(value) for value in found[metric][:, 1:].gather(1, best)]

    def last_scores(self, setting: Setting, metric: str = "test") -> list[float]:
        """A metric of every seed after the last step."""
        if not self.trained or self.wire is not None:
            return self.scores(setting, metric)
        return self.records(self.best_arm(setting))[metric][:, -1].tolist()

    @once
    def specimens(self, setting: Setting) -> list[Specimen]:
        """The models of a setting, one per seed."""
        arm = self.best_arm(setting)
        tokens = alphabet_of(self.config, setting)
        found = [
            Specimen(self.model(arm, seed), seed, tokens, self.strings(arm, seed))
            for seed in self.seeds_of(arm)
        ]
        return [self._made(setting, specimen) for specimen in found]

    def _made(self, setting: Setting, specimen: Specimen) -> Specimen:
        """The specimen, or what is wired in its place."""
        if self.wire is None or not self.trained:
            return specimen
        made = self.wire(setting, specimen)
        if made is None:
            raise NotTested(f"nothing is wired in the place of {setting.name}")
        return made

    def over(
        self, setting: Setting, quantity: Callable[[Specimen], float]
    ) -> list[float]:
        """A quantity of every seed's model."""
        return [quantity(specimen) for specimen in self.specimens(setting)]

    @staticmethod
    def difference(first: list[float], second: list[float]) -> list[float]:
        """Seed by seed."""
        return [a - b for a, b in zip(first, second, strict=True)]

    def strings(self, arm: str, seed: int) -> dict[str, Batch]:
        """The strings of an arm by split, with the answers that it was taught."""
        taught = self.arm(arm).stages[0].data(seed, 0)
        drawn = {**strings_of(self.config, self.settings[arm], seed), "train": taught}
        return {split: strings.to(self.device) for split, strings in drawn.items()}

    def examples(self, arm: str, seed: int) -> Batch:
        """The strings that an arm is tested on."""
        return self.strings(arm, seed)["test"]

    def worst_fit(self, *found: Setting) -> list[float]:
        """Each seed's largest loss on all training strings, over settings."""
        rows = [self.over(setting, lambda s: s.loss("train")) for setting in found]
        return largest(rows)

    def worst_relation_fit(self) -> list[float]:
        """That of the vanilla and +aI transformers."""
        config = self.config
        plain = [relation(config, n) for n in config.n]
        changed = [relation(config, n, "a") for n in config.identity_n]
        return self.worst_fit(*plain, *changed)

    def worst_mlp_fit(self) -> list[float]:
        """That of the MLPs."""
        return self.worst_fit(
            *(baseline(self.config, n) for n in self.config.perceptron_n)
        )

    def data_ratio(self, identity: Identity = "a") -> list[float]:
        """How many times more strings vanilla needs to reach the level, by seed.

        Vanilla's n is at most the last measured one: the ratio is then a lower bound.
        0 where the modified model never gets there.
        """
        config = self.config
        plain = self._needs([relation(config, n) for n in config.n], config.level)
        changed = [relation(config, n, identity) for n in config.identity_n]
        own = self._needs(changed, config.level)
        top = float(config.n[-1])
        return [min(n, top) / fewer for n, fewer in zip(plain, own, strict=True)]

    def copy_growth(self, identity: Identity) -> list[float]:
        """Factor on the n at 50 % error for each fourfold width of copying models."""
        sizes, widths = self.config.copying.n, self.config.copying.d_model
        ends = []
        for d in (widths[0], widths[-1]):
            rows = [copying(d, n, identity) for n in sizes]
            half = self._needs(rows, 0.5, "test_error")
            ends.append([min(n, sizes[-1]) for n in half])
        power = log(4) / log(widths[-1] / widths[0])
        return [(wide / narrow) ** power for narrow, wide in zip(*ends, strict=True)]

    def _needs(
        self, found: list[Setting], level: float, metric: str = "test"
    ) -> list[float]:
        """The n at which each seed's metric reaches a level."""
        errors = torch.tensor([self.scores(setting, metric) for setting in found])
        sizes = tuple(setting.n for setting in found)
        return [crossing(sizes, column, level) for column in errors.T]


def crossing(
    sizes: tuple[int, ...], errors: Float[Tensor, " size"], level: float
) -> float:
    """The size at which a falling curve reaches a level; infinite if it never does.

    Linear between the measured errors, on a logarithmic axis of sizes. A curve that
    starts below the level gives the first size, an upper bound.

    >>> import torch
    >>> crossing((16, 64), torch.tensor([0.8, 0.2]), 0.5)
    32.0
    """
    below = (errors <= level).nonzero()
    if not len(below):
        return float("inf")
    index = int(below[0])
    if index == 0:
        return float(sizes[0])
    before, after = float(errors[index - 1]), float(errors[index])
    share = (before - level) / (before - after)
    return float(sizes[index - 1] * (sizes[index] / sizes[index - 1]) ** share)


def largest(rows: Sequence[Sequence[Any]]) -> list[Any]:
    """Each seed's largest value over settings."""
    return [max(values) for values in zip(*rows, strict=True)]

"""A trained run of the symbols study, opened: scores by setting and models.

Every setting is trained at each learning rate of its grid. The rate is the one with
the lowest validation loss (mean over seeds, each at its best step); test scores are
read at that rate and at each seed's best validation step. Models are those of that
rate after the last step. `lab.wired(wire)` is the same lab with models whose weights
are set by hand; they are scored as they are, having no course of training.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.claims import NotTested
from circuits.lab import Lab, once
from circuits.study import Study
from trained.errors import unknown
from trained.store import Run
from trained.symbols.arms import alphabet_of, arm_name, strings_of
from trained.symbols.config import Config
from trained.symbols.setting import (
    Identity,
    Setting,
    copying,
    rates,
    relation,
    settings,
)
from trained.task import Batch

from .specimen import Specimen
from .theory import Theory

Wire = Callable[["SymbolsLab", Setting, Specimen], Specimen | None]
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
    def specimens(self, wanted: Setting | str) -> list[Specimen]:
        """The models of a setting at its best rate, or of an arm; one per seed."""
        arm = wanted if isinstance(wanted, str) else self.best_arm(wanted)
        if arm not in self.settings:
            raise unknown("arm", arm, self.settings)
        setting = self.settings[arm]
        found = [
            Specimen(
                self.model(arm, seed),
                seed,
                alphabet_of(self.config, setting, seed),
                self.strings(arm, seed),
            )
            for seed in self.seeds_of(arm)
        ]
        return [self._made(setting, specimen) for specimen in found]

    def _made(self, setting: Setting, specimen: Specimen) -> Specimen:
        """The specimen, or what is wired in its place."""
        if self.wire is None or not self.trained:
            return specimen
        made = self.wire(self, setting, specimen)
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
        """Seed by seed; of a null with fewer seeds, of those."""
        return [a - b for a, b in zip(first, second, strict=False)]

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

    def farthest_area(self, *found: Setting) -> list[float]:
        """Each seed's largest |area - 1/2| in standard errors, over settings.

        Over the checkpoints of their training too; models wired by hand have none.
        """
        name = "test_area_score"
        if self.wire is not None or not self.trained:
            return largest([list(map(abs, self.scores(s, name))) for s in found])
        records = [self.records(self.best_arm(s))[name][:, 1:] for s in found]
        return largest([rows.abs().amax(1).tolist() for rows in records])

    def data_ratio(
        self, identity: Identity = "a", *, final: bool = False
    ) -> list[float]:
        """How many times more strings vanilla needs to reach the level, by seed.

        Vanilla's n is at most the last measured one: the ratio is then a lower bound.
        0 where the modified model never gets there.

        Args:
            identity: the modified model.
            final: after the last step, not at the best one on validation.
        """
        config = self.config
        vanilla = [relation(config, n) for n in config.n]
        changed = [relation(config, n, identity) for n in config.identity_n]
        plain = self._needs(vanilla, config.level, final=final)
        own = self._needs(changed, config.level, final=final)
        top = float(config.n[-1])
        # A null may have fewer seeds.
        return [min(n, top) / fewer for n, fewer in zip(plain, own, strict=False)]

    def shuffled_ratio(self) -> list[float]:
        """The same of +aI taught permuted answers, at its largest n alone.

        If it never gets there at that n, it does not with fewer strings.
        """
        config = self.config
        plain = self._needs([relation(config, n) for n in config.n], config.level)
        most = relation(config, config.identity_n[-1], "a")
        own = self.shuffled()._needs([most], config.level)
        top = float(config.n[-1])
        return [min(n, top) / fewer for n, fewer in zip(plain, own, strict=False)]

    def copy_growth(
        self, narrow: int, wide: int, *, final: bool = False
    ) -> list[float]:
        """The n at 50 % error of wide copying models over that of narrow ones.

        At most the last measured n: the ratio is then a lower bound.
        """
        sizes = self.config.copying.n
        halves = []
        for d in (narrow, wide):
            rows = [copying(self.config, d, n) for n in sizes]
            half = self._needs(rows, 0.5, "test_error", final=final)
            halves.append([min(n, sizes[-1]) for n in half])
        return [many / few for few, many in zip(*halves, strict=True)]

    def _needs(
        self,
        found: list[Setting],
        level: float,
        metric: str = "test",
        *,
        final: bool = False,
    ) -> list[float]:
        """The n at which each seed's metric reaches a level."""
        read = self.last_scores if final else self.scores
        errors = torch.tensor([read(setting, metric) for setting in found])
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

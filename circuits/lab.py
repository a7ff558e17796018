"""Where measuring happens: a trained run, or a pretrained model with its data, opened.

Claims measure through a lab, and a null is a lab too: the same run with untrained
weights, the same prompts on a random twin. What a lab measures it remembers, so that
several claims may ask for the same thing.
"""

import copy
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

from probes.measurement import Measurement
from trained.arm import SHUFFLED, Arm, Data, Quantity
from trained.ensemble import Ensemble, stack
from trained.store import Run
from trained.task import Batch
from trained.training import restore

from .claims import NotTested
from .datasets.schema import Rows, Schema
from .hooks import record
from .models.borrowed import reinitialised
from .models.language_model import LanguageModel
from .sites import Site
from .tuning.keeper import Keeper

if TYPE_CHECKING:
    from .confirm import Confirmation
    from .study import Figures, Study

Found = TypeVar("Found")
AnyLab = TypeVar("AnyLab", bound="Remembering")


class Remembering:
    """What has been measured stays known; see `once`."""

    def __init__(self) -> None:
        self.known: dict[Hashable, Any] = {}

    def other(self: AnyLab, **changes: Any) -> AnyLab:
        """A lab that differs in some attributes and remembers nothing yet."""
        lab = copy.copy(self)
        lab.known = {}
        for name, value in changes.items():
            setattr(lab, name, value)
        return lab

    def derived(self, name: str, make: Callable[[], AnyLab]) -> AnyLab:
        """A lab made from this one, the same whenever it is asked for."""
        if name not in self.known:
            self.known[name] = make()
        lab: AnyLab = self.known[name]
        return lab


def once(method: Callable[..., Found]) -> Callable[..., Found]:
    """Let a method of a lab measure the same thing only once.

    Its arguments must be hashable; claims may then ask as often as they like.
    """
    parameters = signature(method)

    @wraps(method)
    def remembered(lab: Any, *args: Hashable, **options: Hashable) -> Found:
        given = parameters.bind(lab, *args, **options)
        given.apply_defaults()
        key = (method.__qualname__, *list(given.arguments.values())[1:])
        if key not in lab.known:
            lab.known[key] = method(lab, *args, **options)
        found: Found = lab.known[key]
        return found

    return remembered


class Lab(Remembering):
    """A trained run, opened for measuring. A study's own lab is a subclass.

    Attributes:
        study: what the run belongs to.
        run: the stored run.
        config: its configuration.
        arms: what was trained, by name.
        trained: whether models have their trained weights or their initial ones.
        twin: what the names of the arms end with that stand in for the real ones.
    """

    def __init__(self, study: "Study", run: Run) -> None:
        super().__init__()
        self.study, self.run = study, run
        self.config = study.config_of(run.manifest["config"])
        self.arms: dict[str, Arm] = {arm.name: arm for arm in study.arms(self.config)}
        self.trained, self.twin = True, ""

    @property
    def figures(self) -> "Figures":
        """Figure kinds and what draws each from this lab (imports matplotlib)."""
        return self.study.figures

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of the run."""
        return self.run.seeds

    @property
    def device(self) -> str:
        """Where the run was trained, and where it is measured."""
        return str(self.run.manifest["device"])

    def untrained(self: AnyLab) -> AnyLab:
        """The standard null: every model as it was before training."""
        return self.derived("untrained", lambda: self.other(trained=False))

    def shuffled(self: AnyLab) -> AnyLab:
        """The standard null: every model trained alike, on permuted answers."""
        return self.derived("shuffled", lambda: self.other(twin=SHUFFLED))

    def seeds_of(self, arm: str) -> tuple[int, ...]:
        """The seeds that an arm was trained with."""
        return tuple(self.run.record(self.arm(arm).name)["seeds"])

    def arm(self, name: str) -> Arm:
        """An arm that was trained, or the twin that stands in for it here."""
        found = self.arms.get(name + self.twin)
        if found is None or not self.run.is_stored(found.name):
            raise NotTested(f"this run has no arm {name}{self.twin}")
        for seed, reason in self.run.failed(found.name).items():
            raise NotTested(f"arm {found.name} lacks seed {seed}: {reason}")
        return found

    @once
    def model(self, arm: str, seed: int, step: int | None = None) -> Any:
        """One model at a saved step (default: the last), for measuring only."""
        if self.trained:
            model: nn.Module = restore(self.run, self.arm(arm), seed, step=step)
        else:
            model = self.arm(arm).build(seed).eval()
        return model.requires_grad_(False).to(self.device)

    def models(self, arm: str, step: int | None = None) -> "Models":
        """The models of all seeds of an arm."""
        return Models(self, arm, step)

    def metrics(self, arm: str) -> dict[str, Tensor]:
        """What was recorded while the arm trained: `step` and [seed, record] each."""
        if not self.trained:
            raise NotTested("an untrained model has no course of training")
        return self.run.metrics(self.arm(arm).name)

    def each(
        self, arm: str, quantity: Callable[[Any, int], float], step: int | None = None
    ) -> list[float]:
        """A quantity of (model, seed) for every seed of an arm."""
        return [
            float(quantity(self.model(arm, seed, step), seed))
            for seed in self.seeds_of(arm)
        ]

    def on_all(
        self, arm: str, quantity: Quantity, data: Data, step: int | None = None
    ) -> list[float]:
        """A quantity of (model, data) for every seed of an arm, on the same data.

        On an accelerator, which small matrices leave idle, models that may be stacked
        are one pass; on a CPU they are one after the other.
        """
        models = list(self.models(arm, step))
        if self.device == "cpu" or not self.arm(arm).stackable:
            return [float(quantity(model, data)) for model in models]
        found: list[float] = (
            Ensemble(models).values(quantity, stack([data] * len(models))).tolist()
        )
        return found

    def examples(self, arm: str, seed: int) -> Batch:
        """Prompts of the kind that an arm answers: what it was tested on."""
        held_out = self.arm(arm).held_out
        batch = held_out(seed) if held_out is not None else None
        if not isinstance(batch, Batch):
            raise NotTested(f"arm {arm} names no examples of its own")
        return batch.to(self.device)

    def confirm(self, only: str = "*") -> "Confirmation":
        """Judge the claims whose ids match a pattern such as 'lego.conc.*'."""
        from .confirm import confirm_lab

        return confirm_lab(self, only)


@dataclass(frozen=True)
class Models(Sequence[Any]):
    """The models of an arm, seed by seed."""

    lab: Lab
    arm: str
    step: int | None = None

    def __len__(self) -> int:
        return len(self.lab.seeds_of(self.arm))

    def __getitem__(self, index: Any) -> Any:
        seeds = self.lab.seeds_of(self.arm)[index]
        if isinstance(seeds, tuple):
            return [self.lab.model(self.arm, seed, self.step) for seed in seeds]
        return self.lab.model(self.arm, seeds, self.step)

    def __iter__(self) -> Iterator[Any]:
        return (self.lab.model(self.arm, s, self.step) for s in self.seeds)

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds, in order."""
        return self.lab.seeds_of(self.arm)

    def pattern(self, layer: int = 0) -> Measurement:
        """Where the heads of a layer look on the first example of each seed.

        Axes ("seed", "head", "query", "key").
        """
        site = Site("pattern", layer)
        found = []
        for seed, model in zip(self.seeds, self, strict=True):
            with torch.no_grad(), record(model, [site]) as seen:
                model(self.lab.examples(self.arm, seed).tokens[:1])
            found.append(seen[site][0].cpu())
        return Measurement(
            torch.stack(found),
            ("seed", "head", "query", "key"),
            {"seed": self.seeds},
            name=f"attention of {self.arm}, layer {layer}",
            provenance={"run": str(self.lab.run.path)},
        )


class LanguageLab(Remembering):
    """A pretrained model with a study's data. A study's own is a subclass.

    Attributes:
        model: the language model.
        settings: sizes of the study's experiment on it.
        seeds: each draws prompts of its own.
        data: the rows that it is about.
        keeper: stores what took long, so that it is measured once.
        study: what it belongs to; of one that `open_language` opened.
        preset: the one that was asked for; likewise.
    """

    study: "Study"
    preset: str = ""

    SCHEMA: ClassVar[Schema[Any] | None] = None
    TWIN_SEED = 0

    def __init__(
        self,
        model: LanguageModel,
        settings: Any,
        seeds: tuple[int, ...],
        *,
        data: Rows[Any] | None = None,
        keeper: Keeper | None = None,
    ) -> None:
        super().__init__()
        self.model, self.settings, self.seeds = model, settings, seeds
        self.data = data or (self.SCHEMA.own() if self.SCHEMA else None)
        self.keeper, self._random = keeper or Keeper(), False

    def twin(self: "AnyLanguageLab") -> "AnyLanguageLab":
        """The null: the same architecture with random weights, on the first seed.

        It has them only `in_use`, where the model itself wears them.
        """

        def make() -> "AnyLanguageLab":
            name = f"{self.model.name}, random weights {self.TWIN_SEED}"
            model = replace(self.model, name=name)
            # Nothing of it is kept: its numbers would pass for those of the model.
            return self.other(
                model=model, seeds=self.seeds[:1], keeper=Keeper(), _random=True
            )

        return self.derived("twin", make)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Where this lab may be measured; the model has a twin's weights meanwhile."""
        if not self._random:
            yield
            return
        with reinitialised(self.model, self.TWIN_SEED):
            yield

    @property
    def figures(self) -> "Figures":
        """Figure kinds and what draws each from this lab (imports matplotlib)."""
        return self.study.needs_language().figures

    @property
    def origin(self) -> str:
        """What a caption says of it: model, preset and seeds."""
        preset = f"preset {self.preset}; " if self.preset else ""
        return f"{self.model.name}; {preset}seeds {', '.join(map(str, self.seeds))}"

    def own_rows(self) -> Sequence[Any]:
        """The rows that it is about; a lab that draws them for its model says which."""
        if self.data is None:
            raise NotTested("this study has no rows")
        return self.data.rows

    def each(self, quantity: Callable[[int], float]) -> list[float]:
        """A quantity of every seed."""
        return [float(quantity(seed)) for seed in self.seeds]


AnyLanguageLab = TypeVar("AnyLanguageLab", bound=LanguageLab)

"""How the paper's experiment is trained, and how it trains itself (Section 7).

Adam at 1e-4 for 300 epochs on the next clause at the training length. The symmetry
task then goes on in the same arm: a round draws longer sentences, a frozen copy of the
model answers them greedily, once, and all parameters are trained on its answers. Two
nulls start where the rounds start and are then undone: as many updates of as many
queries at the first length on true answers, and a first round whose annotator cannot
match keys.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from trained.arm import Arm, Stage, adam, shuffled
from trained.seeding import generator as seeded

from .action import action
from .config import Config, Variant, first_of_kind
from .stages import BASE, CORRUPT, gold, taught
from .standard import Sizes, StandardModel
from .task import (
    Sentences,
    Vocabulary,
    clause_losses,
    draw_sentences,
    shuffle,
    table_of,
    verified_rollout,
)

AT_ONCE = 256
"""Sentences that an annotator answers at a time."""


class SelfTaught(nn.Module):
    """A transformer, and a frozen copy that answers what it learns from."""

    def __init__(self, student: StandardModel, annotator: StandardModel) -> None:
        super().__init__()
        self.student, self.annotator = student, annotator


@dataclass(frozen=True)
class Recipe:
    """How one transformer of the paper's experiment is trained."""

    config: Config
    group: str
    variant: Variant = "plain"

    @property
    def name(self) -> str:
        """The arm's."""
        return f"{action(self.group).slug}-standard-{self.variant}"

    @property
    def words(self) -> Vocabulary:
        """The vocabulary."""
        return Vocabulary.of(action(self.group), self.config.standard.n_variables)

    @property
    def rounds(self) -> tuple[int, ...]:
        """Lengths of the rounds that follow; only the symmetry task has any."""
        symmetric = first_of_kind(self.config.standard.groups, simply=False)
        own = self.group == symmetric and self.variant == "plain"
        return self.config.standard.rounds if own else ()

    @property
    def per_epoch(self) -> int:
        """Updates of an epoch."""
        recipe = self.config.standard
        return -(-recipe.n_sentences // recipe.batch)

    @property
    def kept(self) -> dict[int, int]:
        """Epoch -> the step at which weights are kept, the last epoch included."""
        recipe = self.config.standard
        epochs = (*(e for e in recipe.kept if e < recipe.epochs), recipe.epochs)
        return {epoch: epoch * self.per_epoch for epoch in epochs}

    @property
    def milestones(self) -> dict[str, int]:
        """The step at which each stage has ended."""
        ends = accumulate(stage.steps for stage in self.stages)
        return dict(zip((stage.name for stage in self.stages), ends, strict=True))

    @property
    def arm(self) -> Arm:
        """The arm."""
        return Arm(
            name=self.name,
            build=self.build,
            stages=self.stages,
            metrics={"held_out_loss": next_clause_loss},
            held_out=lambda seed: self._draw(
                seed, self.config.standard.n_held_out, "test"
            ),
            record_every=self.per_epoch,
            save_steps=(*self.kept.values(), *self.milestones.values()),
            max_seeds=self._most_seeds,
            # How often a batch is answered anew depends on the answers.
            stackable=not self.rounds,
        )

    @property
    def _most_seeds(self) -> int | None:
        own = self.config.standard
        few = own.null_seeds if self.variant == "positions" else 0
        return few or own.seeds or None

    @property
    def null(self) -> Arm:
        """The same training on values of other sentences; without rounds."""
        own = self.config.standard
        steps = (own.null_epochs or own.epochs) * self.per_epoch
        few = replace(
            self.arm,
            stages=(replace(self._base, steps=steps, trainable=("*",)),),
            build=self._build_one,
            save_steps=(),
            max_seeds=own.null_seeds or None,
        )
        return shuffled(few, shuffle)

    def build(self, seed: int) -> nn.Module:
        """The model before training, with its annotator if it has rounds."""
        if not self.rounds:
            return self._build_one(seed)
        return SelfTaught(self._build_one(seed), self._build_one(seed))

    def _build_one(self, seed: int) -> StandardModel:
        source = seeded(seed, "lego", "standard", action(self.group).slug)
        sizes = Sizes.of(self.config, self.variant)
        return StandardModel(self.words, sizes, generator=source)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The training at the first length, the nulls of the rounds, the rounds."""
        base, own = self._base, self.config.standard
        if not self.rounds:
            return (base,)
        base = replace(base, trainable=("student.*",))
        found = [base]
        further = replace(base, steps=own.round_steps, stop_below=None)
        for number, length in enumerate(self.rounds):
            prepare = None if number else _freeze_copy
            stage = replace(further, name=gold(length), prepare=prepare)
            found.append(self._sentences(stage, self.config.train_length))
        first = self.rounds[0]
        spoilt = self._round(CORRUPT, first, further, _return_and_spoil)
        found.append(spoilt)
        for length in self.rounds:
            prepare = _return_and_mend if length == first else _freeze_copy
            found.append(self._round(taught(length), length, further, prepare))
        return tuple(found)

    def _round(
        self,
        name: str,
        length: int,
        like: Stage,
        prepare: Callable[[dict[str, Tensor]], None],
    ) -> Stage:
        label = partial(annotated, table=table_of(action(self.group)))
        stage = replace(like, name=name, loss=self_labelled_loss, prepare=prepare)
        return replace(self._sentences(stage, length), label=label)

    def _sentences(self, stage: Stage, length: int) -> Stage:
        """A later stage's own sentences; every update has as many queries."""
        own, name = self.config.standard, stage.name
        count = max(1, own.batch * self.config.train_length // length)
        return replace(
            stage,
            data=lambda seed, _step: self._draw(seed, own.n_round, name, length),
            draw="once",
            batch_size=min(count, own.n_round),
        )

    @property
    def _base(self) -> Stage:
        own = self.config.standard
        stage = Stage(
            name=BASE,
            steps=own.epochs * self.per_epoch,
            optimiser=adam(own.rate),
            loss=next_clause_loss,
            data=lambda seed, _step: self._draw(seed, own.n_sentences, "train"),
            batch_size=own.batch,
            stop_below=own.stop or None,
        )
        if not own.fresh:
            return stage
        return replace(
            stage,
            data=lambda seed, step: self._draw(seed, own.batch, f"train {step}"),
            draw="each step",
            batch_size=None,
        )

    def _draw(
        self, seed: int, count: int, name: str, length: int | None = None
    ) -> Sentences:
        act = action(self.group)
        return draw_sentences(
            table_of(act),
            count,
            length or self.config.train_length,
            n_variables=self.config.standard.n_variables,
            generator=seeded(seed, "lego", act.slug, "standard", name),
        )


def standard_arms(config: Config) -> list[Arm]:
    """Every variant for every action, and what was trained on shuffled values.

    The models themselves come before their nulls.
    """
    own = config.standard
    recipes = [
        Recipe(config, group, variant)
        for variant in own.variants
        for group in own.groups
        if has_variant(config, group, variant)
    ]
    found = [recipe.arm for recipe in recipes]
    if own.null_seeds or config.twins:
        found += [recipe.null for recipe in recipes if recipe.variant == "plain"]
    return found


def has_variant(config: Config, group: str, variant: Variant) -> bool:
    """Learned positions are a null, which one action is enough for."""
    simple = first_of_kind(config.standard.groups, simply=True)
    return variant != "positions" or group == (simple or config.standard.groups[0])


def next_clause_loss(
    model: StandardModel | SelfTaught, sentences: Sentences
) -> Float[Tensor, ""]:
    """The sum of both slots' cross-entropies, mean over steps, true past given."""
    reader = model.student if isinstance(model, SelfTaught) else model
    prediction = reader(sentences.tokens(reader.vocabulary))
    return torch.stack(clause_losses(prediction, sentences)).sum()


class Annotated(NamedTuple):
    """Sentences, and the same with answers that the annotator wrote."""

    asked: Sentences
    written: Sentences


def annotated(
    model: SelfTaught, sentences: Sentences, *, table: Int[Tensor, "g y"]
) -> Annotated:
    """The sentences of a round; the annotator is frozen, so it answers them once."""
    words = model.student.vocabulary
    parts = [
        verified_rollout(model.annotator, part, words, table)
        for part in sentences.chunks(AT_ONCE)
    ]
    return Annotated(sentences, Sentences(*map(torch.cat, zip(*parts, strict=True))))


def self_labelled_loss(model: SelfTaught, data: Annotated) -> Float[Tensor, ""]:
    """The same on answers that the annotator wrote: no true label is used."""
    words, written = model.student.vocabulary, data.written
    clauses = [data.asked.predicates(words), written.answers(words)[..., :-1, :]]
    prediction = model.student(words.packed(torch.cat(clauses, -2)))
    return torch.stack(clause_losses(prediction, written)).sum()


def _copy(parameters: dict[str, Tensor], source: str, target: str) -> None:
    for name, tensor in parameters.items():
        if name.startswith(f"{source}."):
            parameters[target + name.removeprefix(source)].copy_(tensor)


def _freeze_copy(parameters: dict[str, Tensor]) -> None:
    """The annotator becomes the current model."""
    _copy(parameters, "student", "annotator")


_KEYS = "annotator.blocks.0.attn.W_K"


def _return_and_spoil(parameters: dict[str, Tensor]) -> None:
    """Back to the annotator, whose keys then match no query: their axes are rolled."""
    _copy(parameters, "annotator", "student")
    keys = parameters[_KEYS]
    keys.copy_(keys.roll(keys.shape[-1] // 2, -1))


def _return_and_mend(parameters: dict[str, Tensor]) -> None:
    """The annotator's keys as they were, and the current model equal to it."""
    keys = parameters[_KEYS]
    keys.copy_(keys.roll(-(keys.shape[-1] // 2), -1))
    _copy(parameters, "annotator", "student")

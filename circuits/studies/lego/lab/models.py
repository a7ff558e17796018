"""The models of a run, the sentences each is asked, and what is read off them."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from math import nan
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from circuits.claims import NotTested
from circuits.hooks import record
from circuits.interventions.ablation import ablate
from circuits.interventions.edit import Put, Rule
from circuits.interventions.part import Part
from circuits.interventions.weights import WeightEdit, edited
from circuits.lab import Lab, once
from probes.attention import attention_mass, balance_gap, concentration_error
from trained.arm import Arm
from trained.errors import or_intact
from trained.lego.action import Action, action
from trained.lego.arms import MAIN, saved_step, self_name
from trained.lego.config import Config, Variant
from trained.lego.model import Branches, ByVariable, FoldedModel, places
from trained.lego.standard import StandardModel
from trained.lego.standard_arms import Recipe, SelfTaught
from trained.lego.task import (
    Order,
    Prediction,
    Sentences,
    clause_losses,
    draw_sentences,
    right_steps,
    table_of,
)
from trained.lego.theory import TheoryModel
from trained.lego.theory_arms import Course
from trained.seeding import generator
from trained.task import Batch

from .readings import Marks, Tables, folded_tables

PATTERN = Part("pattern")
TABLES = "blocks.0.attn.key_query.{}"
"""The names of Q43 and Q44, of folded and of theory models."""

SOLVED = 0.99
"""Share of chains of the training length that a converged model solves (the gate)."""

AT_ONCE = 2_000_000
"""Most attention weights of a head in one pass."""

Edit = Callable[[Batch], Rule]
"""What happens to the attention on given sentences."""

Build = Callable[[str, int, int | None], Any]
"""(arm, seed, step) -> a model in place of the trained one; None: keep that."""


@dataclass(frozen=True)
class Specimen:
    """One trained model, its group and its seed."""

    group: str
    seed: int
    model: FoldedModel | StandardModel | TheoryModel

    @property
    def action(self) -> Action:
        """The group's action."""
        return action(self.group)

    @property
    def n_variables(self) -> int:
        """Variable names that the model knows."""
        return self.model.vocabulary.n_variables

    @property
    def tables(self) -> Tables:
        """Q43 and Q44: stored by folded and theory models, else the folded product."""
        if isinstance(self.model, StandardModel):
            return folded_tables(self.model)
        tables = self.model.tables
        return torch.stack([tables.Q43, tables.Q44])

    def with_tables(self, **edits: WeightEdit) -> "Specimen":
        """A copy in which Q43, Q44 or both (Q4x) were changed."""
        names = {"Q4x": "Q4?"}
        changes = {
            TABLES.format(names.get(name, name)): edit for name, edit in edits.items()
        }
        return or_intact(
            lambda: replace(self, model=edited(self.model, changes)), lambda: self
        )

    def sentences(
        self, length: int, count: int, *, order: Order = "in order"
    ) -> Sentences:
        """Test sentences; the same for every model of a group and seed."""
        source = generator(self.seed, "lego", "test", self.action.slug, length, order)
        return draw_sentences(
            table_of(self.action),
            count,
            length,
            n_variables=self.n_variables,
            order=order,
            generator=source,
        )

    def marks(self, sentences: Sentences, edit: Edit | None = None) -> Marks:
        """What it gets right, its attention edited or not."""
        return Marks(*right_steps(self.predictions(sentences, edit), sentences))

    @torch.no_grad()
    def predictions(self, sentences: Sentences, edit: Edit | None = None) -> Prediction:
        """What it predicts after every answer, its attention edited or not."""
        found = []
        for batch in self.batches(sentences):
            ways = (partial(self._read, batch, how) for how in (edit, None))
            found.append(or_intact(*ways))
        variables, values = zip(*found, strict=True)
        return Prediction(torch.cat(variables).cpu(), torch.cat(values).cpu())

    @torch.no_grad()
    def rows(
        self, sentences: Sentences, edit: Edit | None = None
    ) -> Float[Tensor, "sentence query key"]:
        """Where it attends, mean over heads."""
        found = []
        for batch in self.batches(sentences):
            with self._editing(batch, edit), record(self.model, [PATTERN.site]) as seen:
                self.model(batch.tokens)
            found.append(seen[PATTERN.site].mean(1).cpu())
        return torch.cat(found)

    def loss(self, sentences: Sentences) -> float:
        """The cross-entropy of the next clause, both slots, mean over steps."""
        return float(sum(clause_losses(self.predictions(sentences), sentences)))

    @torch.no_grad()
    def shifted(self, change: Tables) -> Edit:
        """Attention as if so much were added to Q43 and Q44, whatever holds them."""
        scores = ByVariable(*change.shape[1:3])
        scores.Q43.copy_(change[0])
        scores.Q44.copy_(change[1])

        def edit(batch: Batch) -> Rule:
            clauses = self.model.vocabulary.slots(batch.tokens)
            added = scores.to(clauses.device)(
                clauses, places(clauses, None, slice(None))
            )
            with record(self.model, [PATTERN.site]) as seen:
                self.model(batch.tokens)
            odds = seen[PATTERN.site] * added.exp()
            return Put(odds / odds.sum(-1, keepdim=True))

        return edit

    def mass(self, sentences: Sentences, edit: Edit | None = None) -> float:
        """Attention on the two targets, mean over heads, sentences and steps."""
        rows = self.rows(sentences, edit)
        return float(attention_mass(rows, targets(sentences)).mean())

    def error(self, sentences: Sentences, edit: Edit | None = None) -> float:
        """eps: the attention that misses them, mean likewise."""
        rows = self.rows(sentences, edit)
        return float(concentration_error(rows, targets(sentences)).mean())

    def gap(self, sentences: Sentences) -> float:
        """Delta: |attention on the predicate - on the answer|, mean likewise."""
        return float(balance_gap(self.rows(sentences), targets(sentences)).mean())

    def batches(self, sentences: Sentences, most: int = AT_ONCE) -> list[Batch]:
        """The sentences as the model reads them, in parts that fit into memory."""
        size = max(1, most // (2 * sentences.length**2))
        device = next(self.model.parameters()).device
        words = self.model.vocabulary
        return [part.batch(words).to(device) for part in sentences.chunks(size)]

    def _read(self, batch: Batch, edit: Edit | None) -> Prediction:
        with self._editing(batch, edit):
            return self.model(batch.tokens)

    def _editing(self, batch: Batch, edit: Edit | None) -> AbstractContextManager[None]:
        if edit is None:
            return nullcontext()
        return ablate(self.model, batch, [PATTERN], edit(batch))


def targets(what: Sentences | Batch) -> Int[Tensor, "sentence query 2"]:
    """The two keys that each query needs, its predicate and its answer."""
    roles = what.roles() if isinstance(what, Sentences) else what.roles
    return torch.stack([roles["predicate"], roles["answer"]], -1)


class LegoModels(Lab):
    """Loads the models of a run.

    Arms are called as the run calls them. Of those that hold several attentions
    (`C6`, `S5-self`) one is asked for as `S5-self/self40`; `C6` alone is its main one
    at the main budget.

    Attributes:
        attends: whether folded and theory models keep their tables; see `blind`.
        build: what takes the place of trained models; see `with_models`.
    """

    config: Config
    attends = True
    build: Build | None = None

    def blind(self) -> "LegoModels":
        """A null: every table zero, so that attention is uniform."""
        return self.derived("blind", lambda: self.other(attends=False))

    def with_models(self, build: Build) -> "LegoModels":
        """A lab with other models in the place of trained ones; the rest as it was."""
        return self.other(build=build)

    def metrics(self, arm: str) -> dict[str, Tensor]:
        """What was recorded while the arm trained."""
        if self.build is not None and self.build(arm, self.seeds[0], None) is not None:
            raise NotTested(f"no course of training leads to the models of {arm} here")
        return super().metrics(arm)

    def arm(self, name: str) -> Arm:
        """The arm of a model, whichever of its attentions is meant."""
        return super().arm(name.partition("/")[0])

    @once
    def model(self, arm: str, seed: int, step: int | None = None) -> Any:
        """One model at a saved step, for measuring only."""
        # Nulls of a substitute keep the weights of their own training, or none.
        if self.trained and not self.twin and self.build is not None:
            other = self.build(arm, seed, step)
            if other is not None:
                return other.eval().requires_grad_(False).to(self.device)
        name, _, branch = arm.partition("/")
        if step is None and not branch and self._has_budgets(name):
            step = saved_step(self.config, self.config.folded.steps)
        if step is not None and step not in (
            *self.arm(name).save_steps,
            self.arm(name).steps,
        ):
            raise NotTested(f"nothing of arm {name} is kept of step {step}")
        stored = super().model(name, seed, step)
        if isinstance(stored, SelfTaught):
            return stored.student
        if not isinstance(stored, Branches):
            return stored
        return stored.single(branch or MAIN).requires_grad_(False).to(self.device)

    def _has_budgets(self, arm: str) -> bool:
        groups = (*self.config.groups, *self.config.extra_groups)
        return arm in {action(group).slug for group in groups}

    def examples(self, arm: str, seed: int) -> Batch:
        """Sentences of the training length, which no model was trained on."""
        held_out = self.arm(arm).held_out
        drawn = held_out(seed) if held_out is not None else None
        if not isinstance(drawn, Sentences):
            return super().examples(arm, seed)
        return drawn.batch(self.model(arm, seed).vocabulary).to(self.device)

    @staticmethod
    def ratios(above: Sequence[float], below: Sequence[float]) -> list[float]:
        """Quotients, seed by seed; undefined where there is nothing to divide by."""
        return [a / b if b else nan for a, b in zip(above, below, strict=True)]

    @staticmethod
    def differences(first: Sequence[float], second: Sequence[float]) -> list[float]:
        """Differences, seed by seed."""
        return [a - b for a, b in zip(first, second, strict=True)]

    def unpaired(self, values: Sequence[float]) -> list[float]:
        """Every second seed over the one after it: what chance makes of a ratio."""
        return self.ratios(values[: len(values) // 2 * 2 : 2], values[1::2])

    def next_seed(self, values: Sequence[float]) -> list[float]:
        """Every seed over the next one, the last over the first."""
        return self.ratios(values, [*values[1:], values[0]])

    def folded(
        self, group: str, budget: int | None = None, branch: str = ""
    ) -> list[Specimen]:
        """A group's folded models: the main ones, after a budget, or a branch."""
        arm = action(group).slug + (f"/{branch}" if branch else "")
        step = None if budget is None else saved_step(self.config, budget)
        return self._specimens(group, arm, step)

    def self_trained(self, branch: str) -> list[Specimen]:
        """The folded models of a self-training branch."""
        group = self.config.self_group
        assert group is not None
        return self._specimens(group, f"{self_name(group)}/{branch}")

    def standard(self, group: str, variant: Variant) -> list[Specimen]:
        """A group's transformers, trained by the paper's recipe, before any round."""
        recipe = Recipe(self.config, group, variant)
        step = None if self.twin else recipe.kept[self.config.standard.epochs]
        return self._specimens(group, recipe.name, step)

    @once
    def converged(self, group: str) -> list[Specimen]:
        """The experiment's models that are through the gate; all, if none is."""
        found = self.standard(group, "plain")
        return [s for s in found if self._is_through(s)] or found

    def gate(self, groups: Sequence[str]) -> list[float]:
        """Whether a seed's model of every group is through the gate, as 0 or 1."""
        by_group = [
            [self._is_through(s) for s in self.standard(group, "plain")]
            for group in groups
        ]
        return [float(all(seed)) for seed in zip(*by_group, strict=True)]

    def _is_through(self, specimen: Specimen) -> bool:
        sentences, gate = self.short(specimen), self.config.standard.gate
        solved = specimen.marks(sentences).all >= SOLVED
        return solved and specimen.loss(sentences) < gate

    def theory(self, group: str, stage: str) -> list[Specimen]:
        """A group's theory models at the end of a stage."""
        course = Course(self.config, group)
        return self._specimens(group, course.arm.name, course.milestones[stage])

    @once
    def _specimens(
        self, group: str, arm: str, step: int | None = None
    ) -> list[Specimen]:
        found = [
            Specimen(group, seed, self.model(arm, seed, step))
            for seed in self.seeds_of(arm)
        ]
        return found if self.attends else [uniform(s) for s in found]

    @once
    def curve(self, specimen: Specimen) -> dict[int, Marks]:
        """A model's marks at every test length that its variables allow."""
        count = self.config.test.n_sentences
        lengths = [n for n in self.config.lengths if n < specimen.n_variables]
        return {n: specimen.marks(specimen.sentences(n, count)) for n in lengths}

    def short(self, specimen: Specimen) -> Sentences:
        """Test sentences of the training length, enough of them for any reading."""
        count = max(self.config.test.n_short, self.config.test.n_sentences)
        return specimen.sentences(self.config.train_length, count)

    def long(self, specimen: Specimen) -> Sentences:
        """Test sentences of the largest length."""
        count = self.config.test.n_sentences
        return specimen.sentences(self.config.lengths[-1], count)


def uniform(specimen: Specimen) -> Specimen:
    """The same FFN with Q = 0."""
    return specimen.with_tables(Q4x=torch.zeros_like)


def shuffled_columns(specimen: Specimen) -> Specimen:
    """The columns of both tables in another order: no entry belongs to a variable."""
    source = generator(specimen.seed, "lego", "shuffled")
    order = torch.randperm(specimen.n_variables, generator=source)
    return specimen.with_tables(Q4x=lambda table: table[..., order])

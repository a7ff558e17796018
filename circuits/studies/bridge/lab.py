"""Trained bridge models, opened for measuring, and the program they are held against.

`lab.specimens(recipe)` gives an arm's models, seed by seed, each with its world and its
quantities; `lab.instead(task="none")` is the same lab with another arm wherever an arm
is asked for: a null; `lab.wired(build)` has models whose weights are set by hand.

Bridges without the identity task count only where none has it. States are exchanged
after one block, since at the embedding the edit would just be another prompt. Donors
always have another answer, so that following and staying exclude each other; prompts
whose donor shares the answer are left out.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import normalize

from circuits.claims import NotTested
from circuits.interventions.ablation import ablate
from circuits.interventions.edit import Mean, Rule, Transplant
from circuits.interventions.part import Part, columns
from circuits.interventions.passes import activations, answer_logits
from circuits.interventions.weights import edited
from circuits.lab import Lab, once
from circuits.sites import Site
from probes.alignment import paired_cosine
from probes.weights import diagonal_excess
from trained.arm import SHUFFLED
from trained.bridge.arms import covered, permutation, world_of
from trained.bridge.config import Config, Recipe, Task, direction, recipes
from trained.bridge.model import EmbMLP, net_cosine, reread
from trained.bridge.program import (
    Constraints,
    Norm,
    Optimum,
    one_hop_constraints,
    solve,
    train_margin,
    two_hop_margins,
)
from trained.bridge.task import Facts, World, cycle, one_hop_facts
from trained.errors import NothingChanged
from trained.seeding import generator
from trained.store import Run
from trained.task import Batch

if TYPE_CHECKING:
    from circuits.study import Study

Logits = Float[Tensor, "pair d_vocab"]
States = Float[Tensor, "pair d_model"]
Matrix = Float[Tensor, "input output"]

Wiring = Callable[[Config, Recipe, int], nn.Module | None]
"""(configuration, recipe, seed) -> a model in an arm's place, if there is one."""


class Followed(NamedTuple):
    """Shares of answers that are what an edit or a relabelling asks for, and not."""

    follow: float
    stay: float


class Retaught(NamedTuple):
    """Shares of a retaught read-out's answers: of bridges, of two-hop queries."""

    told: float
    follow: float


@dataclass(frozen=True)
class Specimen:
    """One trained model and the world it was trained in."""

    config: Config
    recipe: Recipe
    seed: int
    model: nn.Module

    @cached_property
    def world(self) -> World:
        """Tokens and maps."""
        return world_of(self.config, self.recipe, self.seed)

    @cached_property
    def _device(self) -> torch.device:
        return next(self.model.parameters()).device

    def prompts(self, batch: Batch) -> Batch:
        """A batch of the world, where the model is."""
        return batch.to(self._device)

    @cached_property
    def covered(self) -> Bool[Tensor, " pair"]:
        """Which bridges have the identity task."""
        return covered(self.config, self.recipe, self.seed).to(self._device)

    @cached_property
    def _logits(self) -> Logits:
        return answer_logits(self.model, self.prompts(self.world.two_hop()))

    @cached_property
    def _answers(self) -> Int[Tensor, " pair"]:
        return self.world.answer.to(self._device)

    @cached_property
    def judged(self) -> Bool[Tensor, " pair"]:
        """Pairs whose bridge has the identity task; all, where none has it."""
        return self.covered if self.covered.any() else ~self.covered

    def _share(
        self,
        logits: Logits,
        wanted: Int[Tensor, " pair"],
        among: slice = slice(None),
    ) -> float:
        """Share of judged pairs whose best token, among some, is the wanted one."""
        return float(hits(logits, wanted, among)[self.judged].mean())

    @property
    def ood(self) -> float:
        """Accuracy on two-hop queries over the whole vocabulary, in [0, 1]."""
        return self._share(self._logits, self._answers)

    @property
    def uncovered(self) -> float:
        """The same over the bridges without the identity task."""
        return float(hits(self._logits, self._answers)[~self.covered].mean())

    @property
    def ood_obj(self) -> float:
        """Accuracy on two-hop queries among the objects only; chance is 1 / N."""
        return self._share(self._logits, self._answers, self.world.object_tokens)

    @property
    def permuted(self) -> Followed:
        """Shares of two-hop answers f2(s^-1(b)) and f2(b) under [b_j] -> b_{s(j)}."""
        order = permutation(self.config, self.recipe, self.seed).to(self._device)
        wanted = (self._answers[order.argsort()], self._answers)
        return Followed(*(self._share(self._logits, labels) for labels in wanted))

    @cached_property
    def _omitted(self) -> Logits:
        return answer_logits(self.model, self.prompts(self.world.omitted()))

    @property
    def omitted_accuracy(self) -> float:
        """Accuracy among objects after [a, r2], scored against each of its objects."""
        return self._share(self._omitted, self._answers, self.world.object_tokens)

    @property
    def omitted_probability(self) -> float:
        """Mean probability of the object after [a, r2], in [0, 1]."""
        chances = self._omitted.double().softmax(-1)
        return float(chances.gather(1, self._answers[:, None])[self.judged].mean())


@dataclass(frozen=True)
class TrainedEmbedding(Specimen):
    """A trained Emb-MLP: what its Z says, and what its read-out can learn."""

    model: EmbMLP

    @cached_property
    def matrix(self) -> Matrix:
        """Z, in double precision."""
        return self.model.logit_matrix.detach().double()

    @cached_property
    def _excess(self) -> dict[str, float]:
        """Diagonal excess of the four entity blocks of Z, ordered so that pairs meet.

        `a->b` names rows a and columns b; column i of c is the object of subject i.
        """
        assert self.world.complexity == 1, "square with one object per subject only"
        n = self.world.n_subjects
        rows = {"a": slice(0, n), "b": slice(n, 2 * n)}
        objects = n + self.world.objects[0].to(self._device)
        outputs: dict[str, Tensor | slice] = {"b": slice(0, n), "c": objects}
        return {
            f"{x}->{y}": float(diagonal_excess(self.matrix[row][:, output]))
            for x, row in rows.items()
            for y, output in outputs.items()
        }

    @property
    def peak(self) -> float:
        """excess(a->b): how much a subject prefers its own bridge, in logits."""
        return self._excess["a->b"]

    @property
    def class_lead(self) -> float:
        """The lesser of r1's lead of bridges and r2's of objects, over excess(a->b)."""
        n = self.world.n_subjects
        relations = self.matrix[2 * n :]
        leads = relations[:, :n].mean(1) - relations[:, n:].mean(1)
        return self._over_peak(float(torch.minimum(leads[0], -leads[1])))

    @property
    def bridge_peak(self) -> float:
        """The lesser of excess(b->b) and excess(b->c), over excess(a->b)."""
        found = self._excess
        return self._over_peak(min(found["b->b"], found["b->c"]))

    @property
    def inheritance(self) -> float:
        """excess(a->c) over excess(a->b): how much a subject prefers its own object."""
        return self._over_peak(self._excess["a->c"])

    def _over_peak(self, value: float) -> float:
        """A multiple of excess(a->b); undefined for the empty Z before training."""
        return value / self.peak if self.peak else math.nan

    def cosine(self, target: Matrix) -> float:
        """Cosine of Z with another matrix, rows centred, in [-1, 1]."""
        own, other = _row_centred(self.matrix), _row_centred(target.to(self._device))
        return float((own * other).sum() / (own.norm() * other.norm()))

    @property
    def positive_margins(self) -> float:
        """Share of two-hop queries with a positive margin, in [0, 1]."""
        margins = two_hop_margins(self.matrix, self.world.n_subjects)
        return float((margins > 0).double().mean())

    @property
    def least_margin(self) -> float:
        """Smallest margin over the training facts; positive if all are fitted."""
        return train_margin(self.matrix.cpu(), self._facts)

    @property
    def truncated(self) -> float:
        """Least training margin with Z cut to rank N, over that of Z itself; at most 1.

        Accuracy would not do: a random projection of an identity matrix still has its
        largest entries on the diagonal.
        """
        n = self.world.n_subjects
        left, sizes, right = torch.linalg.svd(self.matrix, full_matrices=False)
        cut = (left[:, :n] * sizes[:n]) @ right[:n]
        return train_margin(cut.cpu(), self._facts) / self.least_margin

    @cached_property
    def _facts(self) -> Constraints:
        identity = self.recipe.task == "identity"
        return one_hop_constraints(self.world.n_subjects, 1, identity=identity)

    @cached_property
    def retaught(self) -> Retaught:
        """What follows when the read-out is taught other objects of the bridges.

        The embedding is frozen; only the read-out is trained on, on bridge prompts: the
        next object after [b, r2], and [b] -> b. It can tell of a subject what it was
        told of its bridge only if the two share a direction.
        """
        n, recipe = self.world.n_subjects, self.config.embedding
        other = World((self.world.objects + 1) % n)
        whole = one_hop_facts(other, other.bridge)
        taught = (column[other.n_bridges :] for column in whole)
        facts = Facts(*(column.to(self._device) for column in taught))
        model = reread(self.model, facts, steps=recipe.steps, lr=recipe.lr)
        told, asked = (
            self._share(answer_logits(model, batch), batch.targets)
            for batch in map(self.prompts, (other.hop2(), other.two_hop()))
        )
        return Retaught(told, asked)

    def unrelated(self) -> "TrainedEmbedding":
        """The same with random subject embeddings of equal norms."""
        source = generator(self.seed, "bridge", "unrelated subjects")
        n = self.world.n_subjects

        def drawn(rows: Tensor) -> Tensor:
            draw = torch.randn(rows[:n].shape, generator=source).to(rows)
            rows[:n] = normalize(draw, dim=1) * rows[:n].norm(dim=1, keepdim=True)
            return rows

        return replace(self, model=edited(self.model, {"W_E": drawn}))


@dataclass(frozen=True)
class TrainedGpt(Specimen):
    """A trained GPT: where its states point, and what follows if they are exchanged."""

    def pair_states(self, layer: int = 0) -> tuple[States, States]:
        """The states after a block at the end of [a, r1] and of [b], pair by pair."""
        site = Site("resid_post", layer)
        found = []
        for batch in (self.world.hop1(), self.world.zero_hop()):
            prompts = self.prompts(batch)
            states = activations(self.model, prompts, [site])[site]
            rows = torch.arange(len(prompts), device=self._device)[:, None]
            found.append(states[rows, columns(prompts, "bridge")][:, 0])
        return found[0], found[1]

    def cosines(self, layer: int) -> Float[Tensor, " pair"]:
        """Cosine of every (a, r1) with its bridge after a block, in [-1, 1]."""
        return paired_cosine(*self.pair_states(layer))

    @property
    def net_cosine(self) -> float:
        """Mean cosine of (a, r1) with its bridge minus that with all other bridges."""
        return float(net_cosine(*self.pair_states()))

    @cached_property
    def donors(self) -> Int[Tensor, " pair"]:
        """Another pair for every pair."""
        source = generator(self.seed, "bridge", "donors")
        return cycle(self.world.n_bridges, generator=source).to(self._device)

    def exchanged(self, role: str) -> Followed:
        """The state at a role of a two-hop query comes from the donor's query."""
        query = self.prompts(self.world.two_hop())
        return self._followed(query, role, Transplant(query.rows(self.donors)))

    def other_bridge(self) -> Followed:
        """The state of the donor's bridge alone, [b], in place of (a, r1)'s."""
        alone = self.prompts(self.world.zero_hop()).rows(self.donors)
        query = self.prompts(self.world.two_hop())
        return self._followed(query, "bridge", Transplant(alone))

    def into_second_hop(self) -> Followed:
        """The state of the donor's (a, r1) in place of the bridge in [b, r2]."""
        first = self.prompts(self.world.hop1()).rows(self.donors)
        query = self.prompts(self.world.hop2())
        return self._followed(query, "bridge", Transplant(first))

    def own_bridge(self) -> float:
        """Ood with the state of the bridge alone, [b], in place of (a, r1)'s."""
        alone = self.prompts(self.world.zero_hop())
        return self._right("bridge", Transplant(alone))

    def averaged(self, role: str) -> float:
        """Ood with the state at a role replaced by its mean over queries."""
        query = self.prompts(self.world.two_hop())
        return self._right(role, Mean([query]))

    def _right(self, role: str, rule: Rule) -> float:
        query = self.prompts(self.world.two_hop())
        return self._share(self._edited(query, role, rule), self._answers)

    def _followed(self, batch: Batch, role: str, rule: Rule) -> Followed:
        logits, own = self._edited(batch, role, rule), self._answers
        other = own[self.donors]
        told = (other != own) & self.judged & self.judged[self.donors]
        shares = (hits(logits, wanted)[told] for wanted in (other, own))
        return Followed(*(float(share.mean()) for share in shares))

    def _edited(self, batch: Batch, role: str, rule: Rule) -> Logits:
        """The logits after an edit; where it changed nothing, as they were."""
        part = Part("resid_post", 0, positions=role)
        try:
            with ablate(self.model, batch, [part], rule):
                return answer_logits(self.model, batch)
        except NothingChanged:
            return answer_logits(self.model, batch)


class BridgeLab(Lab):
    """A trained run of the bridge study."""

    config: Config

    def __init__(self, study: "Study", run: Run) -> None:
        super().__init__(study, run)
        self.changes: dict[str, Any] = {}
        self.wiring: Wiring | None = None

    def instead(self, **changes: Any) -> "BridgeLab":
        """The null in which arms differ in some fields of their recipes."""
        return self.derived(repr(changes), lambda: self.other(changes=changes))

    def wired(self, wiring: Wiring) -> "BridgeLab":
        """The lab with other models in place of the trained ones, and no others."""
        return self.other(wiring=wiring)

    @once
    def model(self, arm: str, seed: int, step: int | None = None) -> Any:
        """One model for measuring: trained, untrained, or set by hand."""
        if self.wiring is None or not self.trained:
            return super().model(arm, seed, step)
        found = self.wiring(self.config, self._recipe(arm), seed)
        if found is None:
            raise NotTested(f"arm {arm} was not set by hand")
        return found.eval().requires_grad_(False).to(self.device)

    def metrics(self, arm: str) -> dict[str, Tensor]:
        """What was recorded while an arm trained."""
        if self.wiring is not None:
            raise NotTested("a model set by hand has no course of training")
        return super().metrics(arm)

    @once
    def specimens(self, recipe: Recipe) -> Sequence[Any]:
        """The models of an arm, seed by seed: `TrainedEmbedding` or `TrainedGpt`."""
        chosen = replace(recipe, **self.changes)
        kind = TrainedGpt if chosen.model == "gpt" else TrainedEmbedding
        return [
            kind(self.config, chosen, seed, self.model(chosen.name, seed))
            for seed in self.seeds_of(chosen.name)
        ]

    def has(self, recipe: Recipe) -> bool:
        """Whether the run trains this arm."""
        return recipe.name + self.twin in self.arms

    def examples(self, arm: str, seed: int) -> Batch:
        """The two-hop queries of an arm."""
        world = world_of(self.config, self._recipe(self.arm(arm).name), seed)
        return world.two_hop().to(self.device)

    def _recipe(self, arm: str) -> Recipe:
        """Of an arm or of its shuffled twin."""
        name = arm.removesuffix(SHUFFLED)
        return next(r for r in recipes(self.config) if r.name == name)

    def first_steps(self, recipe: Recipe, name: str, level: float) -> list[float]:
        """The first recorded step at which a metric reaches a level, seed by seed."""
        metrics = self.metrics(replace(recipe, **self.changes).name)
        steps = metrics["step"].float()
        return [first_step(steps, curve, level) for curve in metrics[name]]

    def time_above(self, recipe: Recipe, name: str, level: float) -> list[float]:
        """Share of records in which a metric has reached a level, seed by seed."""
        curves = self.metrics(replace(recipe, **self.changes).name)[name]
        return [float((curve >= level).float().mean()) for curve in curves]

    @property
    def drawn_size(self) -> int:
        """An N of the program that no list has chosen: drawn by the run's seeds."""
        source = generator(sum(self.seeds), "bridge", "size")
        others = sorted({*range(4, 17)} - {*self.config.theory.sizes})
        return others[int(torch.randint(len(others), (), generator=source))]

    def optimum(
        self,
        size: int,
        complexity: int = 1,
        *,
        identity: bool = True,
        norm: Norm = "nuclear",
    ) -> Optimum:
        """The solved program of a training set; the same in every lab."""
        return _solved(size, complexity, identity, norm)

    def cosines(self, task: Task, target: Task) -> list[float]:
        """Of the trained direction with the optimum for a task, seed by seed."""
        size = self.config.direction.n_subjects
        optimum = self.optimum(size, identity=target == "identity")
        matrix = optimum.solution.matrix
        return [s.cosine(matrix) for s in self.specimens(direction(task))]


@cache
def _solved(size: int, complexity: int, identity: bool, norm: Norm) -> Optimum:
    facts = one_hop_constraints(size, complexity, identity=identity)
    return Optimum(size, complexity, identity, solve(facts, norm=norm))


@torch.no_grad()
def hits(
    logits: Logits, targets: Int[Tensor, " pair"], among: slice = slice(None)
) -> Float[Tensor, " pair"]:
    """1 where the best token, among some, is the target, else 0."""
    best = logits[:, among].argmax(-1) + (among.start or 0)
    return (best == targets).double()


def first_step(
    steps: Float[Tensor, " record"], curve: Float[Tensor, " record"], level: float
) -> float:
    """The first recorded step at which a curve is at least a level; nan if never.

    >>> first_step(torch.tensor([0.0, 5.0]), torch.tensor([0.2, 0.9]), 0.8)
    5.0
    """
    reached = (curve >= level).nonzero()
    return float(steps[reached[0, 0]]) if len(reached) else float("nan")


def _row_centred(matrix: Matrix) -> Matrix:
    """A constant added to a row of Z changes no answer."""
    return matrix - matrix.mean(dim=1, keepdim=True)

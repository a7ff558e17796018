"""One trained model of the bridge study, and what can be read off it.

Bridges without the identity task count only where none has it, and those whose two-hop
item was trained on never count as unseen.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import normalize

from circuits.conditions import Share
from circuits.interventions.passes import answer_logits
from circuits.interventions.weights import edited
from probes.weights import diagonal_excess
from trained.bridge.arms import covered, permutation, shown, world_of
from trained.bridge.config import Config, Recipe
from trained.bridge.model import EmbMLP, reread
from trained.bridge.program import (
    Constraints,
    one_hop_constraints,
    train_margin,
    two_hop_margins,
)
from trained.bridge.task import Facts, World, one_hop_facts
from trained.seeding import generator
from trained.task import Batch

Logits = Float[Tensor, "pair d_vocab"]
Matrix = Float[Tensor, "input output"]


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
    def shown(self) -> Bool[Tensor, " pair"]:
        """Which bridges have their two-hop item trained on."""
        return shown(self.config, self.recipe, self.seed).to(self._device)

    @cached_property
    def judged(self) -> Bool[Tensor, " pair"]:
        """Unseen pairs whose bridge has the identity task; all, where none has it."""
        chosen = self.covered if self.covered.any() else ~self.covered
        return chosen & ~self.shown

    @cached_property
    def _logits(self) -> Logits:
        return answer_logits(self.model, self.prompts(self.world.two_hop()))

    @cached_property
    def _answers(self) -> Int[Tensor, " pair"]:
        return self.world.answer.to(self._device)

    @cached_property
    def _right(self) -> Float[Tensor, " pair"]:
        return hits(self._logits, self._answers)

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
        return float(self._right[self.judged].mean())

    @property
    def ood_hits(self) -> Share:
        """The same as hits among queries."""
        return Share(int(self._right[self.judged].sum()), int(self.judged.sum()))

    @property
    def uncovered(self) -> float:
        """The same over the bridges without the identity task."""
        return float(self._right[~self.covered].mean())

    @property
    def seen(self) -> float:
        """The same over the items that were trained on; nan if none was."""
        return float(self._right[self.shown].mean())

    @property
    def ood_obj(self) -> float:
        """Accuracy on two-hop queries among the objects only; chance is 1 / N."""
        return self._share(self._logits, self._answers, self.world.object_tokens)

    @property
    def bridge_answers(self) -> float:
        """Share of two-hop queries that are answered with a bridge, in [0, 1]."""
        best, span = self._logits.argmax(-1), self.world.bridge_tokens
        is_bridge = (best >= span.start) & (best < span.stop)
        return float(is_bridge[self.judged].double().mean())

    @property
    def single_hops(self) -> float:
        """Accuracy on the trained single hops, the lesser of hop 1 and hop 2."""
        batches = map(self.prompts, (self.world.hop1(), self.world.hop2()))
        found = [hits(answer_logits(self.model, b), b.targets) for b in batches]
        return min(float(right.mean()) for right in found)

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
    def _blocks(self) -> dict[str, Matrix]:
        """The four entity blocks of Z, ordered so that pairs meet on the diagonal.

        `a->b` names rows a and columns b; column i of c is the object of subject i.
        """
        assert self.world.complexity == 1, "square with one object per subject only"
        n = self.world.n_subjects
        rows = {"a": slice(0, n), "b": slice(n, 2 * n)}
        objects = n + self.world.objects[0].to(self._device)
        outputs: dict[str, Tensor | slice] = {"b": slice(0, n), "c": objects}
        return {
            f"{x}->{y}": self.matrix[row][:, output]
            for x, row in rows.items()
            for y, output in outputs.items()
        }

    @cached_property
    def _excess(self) -> dict[str, float]:
        """Diagonal excess of the four entity blocks of Z."""
        return {
            name: float(diagonal_excess(block)) for name, block in self._blocks.items()
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

    @property
    def unevenness(self) -> float:
        """Mean within-row std of Z[a, c], where no label is, over |excess(a->b)|."""
        spread = float(self._blocks["a->c"].std(dim=1).mean())
        return abs(self._over_peak(spread))

    def _over_peak(self, value: float) -> float:
        """A multiple of excess(a->b); undefined for the empty Z before training."""
        return value / self.peak if self.peak else math.nan

    def cosine(self, target: Matrix) -> float:
        """Cosine of Z with another matrix, rows centred, in [-1, 1].

        Undefined for the empty Z of the unfactorised model before training.
        """
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


@torch.no_grad()
def hits(
    logits: Logits, targets: Int[Tensor, " pair"], among: slice = slice(None)
) -> Float[Tensor, " pair"]:
    """1 where the best token, among some, is the target, else 0."""
    best = logits[:, among].argmax(-1) + (among.start or 0)
    return (best == targets).double()


def _row_centred(matrix: Matrix) -> Matrix:
    """A constant added to a row of Z changes no answer."""
    return matrix - matrix.mean(dim=1, keepdim=True)

"""Subjects, bridges and objects: one-hop facts to train on, two-hop queries to test.

A subject a_i and a first relation r1_k name a bridge b_{k,i}; the bridge and r2 name an
object c_{pi_k(i)}. Training shows both hops and, with the identity task, [b] -> b.
Worked example, N=3, kappa=2: subjects are the tokens 0-2, bridges 3-8 (slice 0: 3-5,
slice 1: 6-8), objects 9-11, r1 12-13, r2 14. Trained: [0, 12] -> 3, [0, 13] -> 6,
[3, 14] -> 9, [6, 14] -> 10, [3] -> 3, [6] -> 6. Asked: [0, 12, 14] -> 9,
[0, 13, 14] -> 10. Section 3.1 of "Identity Bridge"; the shift map is our reading of it.

Roles: `subject` is where a stands, `bridge` where the bridge is known: at b itself, or
at r1, which has read a.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from trained.config import require
from trained.task import Batch, positions

from .config import Maps

UNLABELLED = -1
"""The target of a position that carries no loss."""


class Facts(NamedTuple):
    """A training set: targets after some of the tokens of every prompt.

    The identity prompt [b] is the first token of the hop-2 prompt [b, r2]: in a causal
    model the logits there do not depend on what follows.
    """

    tokens: Int[Tensor, "*seed batch pos"]
    targets: Int[Tensor, "*seed batch pos"]
    offset: Int[Tensor, "*seed batch"]
    """Added to the absolute positions of each prompt."""


@dataclass(frozen=True)
class World:
    """The token ids and both maps. Pairs (k, i) are listed slice-major everywhere."""

    objects: Int[Tensor, "relation subject"]
    """pi_k(i): the index of the object of bridge (k, i)."""

    @property
    def n_subjects(self) -> int:
        """N, the number of subjects and of objects."""
        return self.objects.shape[1]

    @property
    def complexity(self) -> int:
        """Kappa, the number of first relations and of bridge slices."""
        return self.objects.shape[0]

    @property
    def n_bridges(self) -> int:
        """Kappa N."""
        return self.objects.numel()

    @property
    def first_object(self) -> int:
        """The token of c_0."""
        return self.n_subjects + self.n_bridges

    @property
    def object_tokens(self) -> slice:
        """Where the objects are in the vocabulary."""
        return slice(self.first_object, self.first_object + self.n_subjects)

    @property
    def bridge_tokens(self) -> slice:
        """Where the bridges are in the vocabulary."""
        return slice(self.n_subjects, self.first_object)

    @property
    def second_relation(self) -> int:
        """The token r2, the last one."""
        return self.first_object + self.n_subjects + self.complexity

    @property
    def d_vocab(self) -> int:
        """Number of tokens."""
        return self.second_relation + 1

    @property
    def subject(self) -> Int[Tensor, " pair"]:
        """The token of a_i for every pair."""
        return torch.arange(self.n_subjects).repeat(self.complexity)

    @property
    def relation(self) -> Int[Tensor, " pair"]:
        """The token of r1_k for every pair."""
        first = self.first_object + self.n_subjects
        slices = torch.arange(first, first + self.complexity)
        return slices.repeat_interleave(self.n_subjects)

    @property
    def bridge(self) -> Int[Tensor, " pair"]:
        """The token of b_{k,i} for every pair."""
        return torch.arange(self.n_subjects, self.first_object)

    @property
    def answer(self) -> Int[Tensor, " pair"]:
        """The token of the object of every pair."""
        return self.first_object + self.objects.flatten()

    def distinct_objects(self) -> float:
        """Mean number of objects that a subject reaches; the complexity if shifted."""
        columns = self.objects.T.tolist()
        return sum(len(set(column)) for column in columns) / len(columns)

    def hop1(self) -> Batch:
        """[a_i, r1_k] -> b_{k,i}."""
        columns = [self.subject, self.relation]
        return _batch(columns, self.bridge, subject=0, bridge=1)

    def hop2(self) -> Batch:
        """[b_{k,i}, r2] -> its object."""
        return _batch([self.bridge, self._second()], self.answer, bridge=0)

    def zero_hop(self) -> Batch:
        """[b_{k,i}] -> b_{k,i}."""
        return _batch([self.bridge], self.bridge, bridge=0)

    def two_hop(self) -> Batch:
        """[a_i, r1_k, r2] -> the object; never trained on."""
        columns = [self.subject, self.relation, self._second()]
        return _batch(columns, self.answer, subject=0, bridge=1)

    def omitted(self) -> Batch:
        """[a_i, r2] -> the object of each pair; one of kappa answers can be right."""
        return _batch([self.subject, self._second()], self.answer, subject=0)

    def _second(self) -> Tensor:
        return torch.full((self.n_bridges,), self.second_relation)


def _batch(columns: list[Tensor], targets: Tensor, **roles: int) -> Batch:
    tokens = torch.stack(columns, dim=1)
    named = {name: positions([place], tokens) for name, place in roles.items()}
    return Batch(tokens, targets, roles=named)


def make_world(
    n_subjects: int, complexity: int, maps: Maps, *, generator: torch.Generator
) -> World:
    """The facts of a map; the complexity of the shift map is checked."""
    n, kappa = n_subjects, complexity
    require(1 <= kappa < n, f"complexity {kappa} needs more than {kappa} subjects")
    if maps == "random":
        rows = [torch.randperm(n, generator=generator) for _ in range(kappa)]
        return World(torch.stack(rows))
    step = torch.arange(kappa)[:, None] if maps == "shift" else torch.zeros(kappa, 1)
    world = World((torch.arange(n) + step.long()) % n)
    expected = kappa if maps == "shift" else 1
    assert world.distinct_objects() == expected, "the map repeats an object"
    return world


def covered_bridges(
    world: World, share: float, *, generator: torch.Generator
) -> Bool[Tensor, " pair"]:
    """A random share of the bridges: those that get the identity task."""
    order = torch.randperm(world.n_bridges, generator=generator)
    return order < round(share * world.n_bridges)


def identity_labels(
    world: World, covered: Bool[Tensor, " pair"]
) -> Int[Tensor, " pair"]:
    """The target of every prompt [b]: b itself where covered, else UNLABELLED."""
    return torch.where(covered, world.bridge, UNLABELLED)


def cycle(size: int, *, generator: torch.Generator) -> Int[Tensor, " item"]:
    """A permutation that is one cycle, so it moves every item: j -> its successor."""
    order = torch.randperm(size, generator=generator)
    successor = torch.empty_like(order)
    successor[order] = order.roll(-1)
    return successor


def one_hop_facts(world: World, labels: Int[Tensor, " pair"]) -> Facts:
    """Hop 1, hop 2 and the given identity labels, at offset 0."""
    first, second = world.hop1(), world.hop2()
    nothing = torch.full_like(labels, UNLABELLED)
    tokens = torch.cat([first.tokens, second.tokens])
    early = torch.cat([nothing, labels])
    last = torch.cat([first.targets, second.targets])
    facts = Facts(tokens, torch.stack([early, last], 1), torch.zeros_like(last))
    assert_out_of_distribution(world, facts)
    return facts


def with_two_hops(world: World, facts: Facts, shown: Bool[Tensor, " pair"]) -> Facts:
    """The facts and the two-hop items of some bridges; shorter prompts are padded.

    What follows a prompt's last token does not matter in a causal model.
    """
    items = world.two_hop().rows(shown.nonzero()[:, 0])
    padding = torch.full_like(facts.targets[:, :1], UNLABELLED)
    first = torch.full_like(items.tokens, UNLABELLED)
    targets = torch.cat([first[:, :2], items.targets[:, None]], 1)
    return Facts(
        torch.cat([torch.cat([facts.tokens, padding.clamp(min=0)], 1), items.tokens]),
        torch.cat([torch.cat([facts.targets, padding], 1), targets]),
        torch.cat([facts.offset, torch.zeros_like(items.targets)]),
    )


def shuffle(facts: Facts, source: torch.Generator) -> Facts:
    """The same prompts with all answers permuted over the labelled positions.

    Hops and identity trade answers too, so that not even their classes can be learned.
    """
    labelled = facts.targets != UNLABELLED
    answers = facts.targets[labelled]
    targets = facts.targets.clone()
    targets[labelled] = answers[torch.randperm(len(answers), generator=source)]
    return facts._replace(targets=targets)


def assert_out_of_distribution(world: World, facts: Facts) -> None:
    """Every two-hop query's bridge occurs in no two-hop training prompt.

    Here the stronger property holds: no training prompt has two relations, and none
    joins a subject with r2 or an object with anything.
    """
    prompts = facts.tokens
    assert prompts.shape[1] < world.two_hop().tokens.shape[1], "a two-hop prompt"
    joined = (prompts[:, 0] < world.n_subjects) & (
        prompts[:, 1] == world.second_relation
    )
    assert not joined.any(), "a subject was trained with r2"
    span = world.object_tokens
    assert not ((prompts >= span.start) & (prompts < span.stop)).any(), "an object"

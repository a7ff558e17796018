"""Premises of analogy and two-hop tasks, and the order in which they are taught.

A fact is (entity, relation, attribute): a prompt of two tokens and the answer after
it. With n = 2 the analogy vocabulary is a0 a1 t0 t1 b0 b1 c0 c1 r1 r2 and

    S_src   [a0 r1] -> b0    the source has a property           trained
    S_tgt   [t0 r1] -> b0    the target has the same one         trained
    A       [a0 r2] -> c0    the source has a further property   trained
    test    [t0 r2] -> c0    so the target has it too            never trained

Two-hop reasoning is the same with the bridge b as the source and a as the target:

    H1      [a0 r1] -> b0
    ID      [b0 r_id] -> b0  the identity bridge
    H2      [b0 r2] -> c0
    test    [a0 r2] -> c0    there is no prompt "r1, then r2"
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from trained.arm import Draw
from trained.errors import unknown

Phase = Mapping[str, int]
"""What one phase teaches: the multiplicity of every premise set."""

REPLAYED = "A"
"""The set that a replay run keeps teaching in the second phase."""


class Premises(NamedTuple):
    """Prompts, answers, and how often each stands in the multiset."""

    tokens: Int[Tensor, "*seed fact pos"]
    targets: Int[Tensor, "*seed fact"]
    weights: Float[Tensor, "*seed fact"]
    """Multiplicities as shares of the multiset: they sum to 1. Equal to copies only
    because every step sees all facts."""


class Conclusions(NamedTuple):
    """What the test asks: does target i get source i's further property?"""

    source: Int[Tensor, "*seed pair"]
    target: Int[Tensor, "*seed pair"]
    shared: Int[Tensor, "*seed pair"]
    answer: Int[Tensor, "*seed pair"]
    asked: Int[Tensor, "*seed pair"]
    """The relation r2, once per pair."""

    @property
    def test(self) -> Int[Tensor, "*seed pair pos"]:
        """Prompts (target, r2), which no phase teaches."""
        return torch.stack([self.target, self.asked], -1)

    @property
    def known(self) -> Int[Tensor, "*seed pair pos"]:
        """Prompts (source, r2), which the attribution premises answer."""
        return torch.stack([self.source, self.asked], -1)


@dataclass(frozen=True)
class World:
    """The token numbers and premise sets of n tuples."""

    n: int
    kinds: tuple[str, ...]
    relations: tuple[str, ...]
    sets: Mapping[str, tuple[str, str, str, int]]
    """By name: entity kind, relation, attribute kind, and the attribute's shift."""
    roles: tuple[str, str, str, str]
    """The kinds of source, target, shared property and answer."""

    @property
    def size(self) -> int:
        """Number of tokens; every one is also an output class."""
        return len(self.kinds) * self.n + len(self.relations)

    def tokens(self, kind: str) -> Int[Tensor, " pair"]:
        """The n tokens of a kind, in the order of the tuples."""
        return self.kinds.index(kind) * self.n + torch.arange(self.n)

    def relation(self, name: str) -> Int[Tensor, ""]:
        """The token of a relation."""
        return torch.tensor(
            len(self.kinds) * self.n + self.relations.index(name), dtype=torch.long
        )

    def premises(self, name: str) -> tuple[Tensor, Tensor]:
        """Prompts and answers of one premise set; `X/2` is the first half of X."""
        base, half, _ = name.partition("/2")
        if base not in self.sets:
            raise unknown("premise set", name, self.sets)
        entity, relation, attribute, shift = self.sets[base]
        count = self.n // 2 if half else self.n
        asked = self.relation(relation).expand(self.n)
        prompts = torch.stack([self.tokens(entity), asked], -1)
        return prompts[:count], self.tokens(attribute).roll(-shift)[:count]

    def phase(self, phase: Phase) -> Premises:
        """The premises of a phase, weighted by their multiplicities."""
        parts = [self.premises(name) for name in phase]
        counts = [
            torch.full((len(targets),), float(times))
            for (_, targets), times in zip(parts, phase.values(), strict=True)
        ]
        weights = torch.cat(counts)
        return Premises(
            torch.cat([prompts for prompts, _ in parts]),
            torch.cat([targets for _, targets in parts]),
            weights / weights.sum(),
        )

    def draw(self, phase: Phase) -> Draw:
        """The phase as a stage wants it: the same for every seed and step."""
        return lambda _seed, _step: self.phase(phase)

    def conclusions(self) -> Conclusions:
        """The test of all tuples."""
        source, target, shared, answer = (self.tokens(kind) for kind in self.roles)
        asked = self.relation("r2").expand(self.n).clone()
        return Conclusions(source, target, shared, answer, asked)


def analogy_world(n: int) -> World:
    """Sources a, targets t, shared properties b, further properties c."""
    sets = {
        "S_src": ("a", "r1", "b", 0),
        "S_tgt": ("t", "r1", "b", 0),
        "S_tgt+1": ("t", "r1", "b", 1),
        "A": ("a", "r2", "c", 0),
    }
    return World(n, ("a", "t", "b", "c"), ("r1", "r2"), sets, ("a", "t", "b", "c"))


def two_hop_world(n: int) -> World:
    """Entities a, bridges b, answers c; the bridge is the source."""
    sets = {
        "H1": ("a", "r1", "b", 0),
        "H2": ("b", "r2", "c", 0),
        "ID": ("b", "r_id", "b", 0),
        "ID+1": ("b", "r_id", "b", 1),
    }
    relations = ("r1", "r2", "r_id")
    return World(n, ("a", "b", "c"), relations, sets, ("b", "a", "b", "c"))


@dataclass(frozen=True)
class Curriculum:
    """A task and the phases in which its premises are taught."""

    task: str
    phases: tuple[Phase, ...]

    def world(self, n: int) -> World:
        """Its tokens and premise sets."""
        return analogy_world(n) if self.task == "analogy" else two_hop_world(n)

    def with_replay(self) -> "Curriculum":
        """The same with the attribution premises also in the last phase."""
        *earlier, last = self.phases
        return Curriculum(self.task, (*earlier, {**last, REPLAYED: 1}))

    @property
    def taught(self) -> tuple[str, ...]:
        """The names of all premise sets, in order of teaching."""
        return tuple(dict.fromkeys(name for phase in self.phases for name in phase))


def curriculum(name: str, k: int) -> Curriculum:
    """A curriculum by name; k is the multiplicity of the joint ones.

    AS_T and AS_E are the two readings of "attribution, then similarity": the data of
    Theorem 3 and the description of Section 5.
    """
    joint = {"S_src": k, "S_tgt": k, "A": 1}
    every = {
        "joint": Curriculum("analogy", (joint,)),
        "SA": Curriculum("analogy", ({"S_src": 1, "S_tgt": 1}, {"A": 1})),
        "AS_T": Curriculum("analogy", ({"S_src": 1, "A": 1}, {"S_tgt": 1})),
        "AS_E": Curriculum("analogy", ({"A": 1}, {"S_src": 1, "S_tgt": 1})),
        "permuted": Curriculum("analogy", ({"S_src": k, "S_tgt+1": k, "A": 1},)),
        "bridge": Curriculum("two-hop", ({"H1": k, "ID": k, "H2": 1},)),
        "no_bridge": Curriculum("two-hop", ({"H1": k, "H2": 1},)),
        "permuted_bridge": Curriculum("two-hop", ({"H1": k, "ID+1": k, "H2": 1},)),
        "half_bridge": Curriculum("two-hop", ({"H1": k, "ID/2": k, "H2": 1},)),
    }
    if name not in every:
        raise unknown("curriculum", name, every)
    return every[name]

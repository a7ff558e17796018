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

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor
from torch.nn.functional import cross_entropy
from torch.utils import _pytree as pytree

from probes.alignment import paired_cosine
from trained.arm import Draw
from trained.decoder import answer
from trained.errors import unknown
from trained.task import Batch, positions

Phase = Mapping[str, int]
"""What one phase teaches: the multiplicity of every premise set."""

REPLAYED = "A"
"""The set that a replay run keeps teaching in the second phase."""


class Premises(NamedTuple):
    """Prompts with their answers, and how often each stands in the multiset."""

    facts: Batch
    weights: Float[Tensor, "*seed fact"]
    """Multiplicities as shares of the multiset: they sum to 1. Equal to copies only
    because every step sees all facts."""


def shuffle(data: Premises | Batch, source: Generator) -> Premises | Batch:
    """The same prompts with their answers permuted: no two share what they should."""
    facts = data.facts if isinstance(data, Premises) else data
    order = torch.randperm(len(facts), generator=source)
    mixed = facts.with_targets(facts.targets[order])
    return data._replace(facts=mixed) if isinstance(data, Premises) else mixed


class Conclusions(NamedTuple):
    """What the test asks: does target i get source i's further property?"""

    test: Batch
    """Prompts (target, r2), which no phase teaches; role `entity` is the target."""
    known: Batch
    """Prompts (source, r2), which the attribution premises answer."""
    shared: Int[Tensor, "*seed pair"]
    """The properties that source and target share."""


@dataclass(frozen=True)
class World:
    """The token numbers and premise sets of n tuples."""

    n: int
    kinds: tuple[str, ...]
    relations: tuple[str, ...]
    sets: Mapping[str, tuple[str, str, str, int]]
    """By name: entity kind, relation, attribute kind, and the attribute's shift."""
    parts: tuple[str, str, str, str]
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

    def premises(self, name: str) -> Batch:
        """Prompts and answers of one premise set; `X/2` is the first half of X."""
        base, half, _ = name.partition("/2")
        if base not in self.sets:
            raise unknown("premise set", name, self.sets)
        entity, relation, attribute, shift = self.sets[base]
        answers = self.tokens(attribute).roll(-shift)
        facts = self._facts(self.tokens(entity), relation, answers)
        return facts.rows(slice(self.n // 2)) if half else facts

    def phase(self, phase: Phase) -> Premises:
        """The premises of a phase, weighted by their multiplicities."""
        parts = [self.premises(name) for name in phase]
        counts = [
            torch.full((len(part),), float(times))
            for part, times in zip(parts, phase.values(), strict=True)
        ]
        weights = torch.cat(counts)
        facts = pytree.tree_map(lambda *leaves: torch.cat(leaves), *parts)
        return Premises(facts, weights / weights.sum())

    def draw(self, phase: Phase) -> Draw:
        """The phase as a stage wants it: the same for every seed and step."""
        return lambda _seed, _step: self.phase(phase)

    def conclusions(self) -> Conclusions:
        """The test of all tuples."""
        source, target, shared, answer = (self.tokens(kind) for kind in self.parts)
        return Conclusions(
            self._facts(target, "r2", answer),
            self._facts(source, "r2", answer),
            shared,
        )

    def _facts(self, entities: Tensor, relation: str, answers: Tensor) -> Batch:
        asked = self.relation(relation).expand(len(entities))
        tokens = torch.stack([entities, asked], -1)
        return Batch(tokens, answers, roles={"entity": positions([0], tokens)})


def analogy_world(n: int) -> World:
    """Sources a, targets t, shared properties b, further properties c."""
    sets = {
        "S_src": ("a", "r1", "b", 0),
        "S_tgt": ("t", "r1", "b", 0),
        "S_tgt+1": ("t", "r1", "b", 1),
        "A": ("a", "r2", "c", 0),
    }
    return World(n, ("a", "t", "b", "c"), ("r1", "r2"), sets, ("a", "t", "b", "c"))


def two_hop_world(n: int, *more: str) -> World:
    """Entities a, bridges b, answers c; the bridge is the source.

    Args:
        n: tuples.
        more: further kinds of tokens: `d`, the answers of decoys.
    """
    sets = {
        "H1": ("a", "r1", "b", 0),
        "H2": ("b", "r2", "c", 0),
        "ID": ("b", "r_id", "b", 0),
        "ID+1": ("b", "r_id", "b", 1),
        "decoy": ("b", "r_id", "d", 0),
    }
    relations = ("r1", "r2", "r_id")
    return World(n, ("a", "b", "c", *more), relations, sets, ("b", "a", "b", "c"))


@dataclass(frozen=True)
class Curriculum:
    """A task and the phases in which its premises are taught."""

    task: str
    phases: tuple[Phase, ...]

    def world(self, n: int) -> World:
        """Its tokens and premise sets."""
        if self.task == "analogy":
            return analogy_world(n)
        return two_hop_world(n, *(("d",) if "decoy" in self.taught else ()))

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
    Theorem 3 and the description of Section 5; `given` is AS_T whose first phase knows
    the targets already.
    """
    joint = {"S_src": k, "S_tgt": k, "A": 1}
    every = {
        "joint": Curriculum("analogy", (joint,)),
        "SA": Curriculum("analogy", ({"S_src": 1, "S_tgt": 1}, {"A": 1})),
        "AS_T": Curriculum("analogy", ({"S_src": 1, "A": 1}, {"S_tgt": 1})),
        "AS_E": Curriculum("analogy", ({"A": 1}, {"S_src": 1, "S_tgt": 1})),
        "given": Curriculum(
            "analogy", ({"S_src": 1, "A": 1, "S_tgt": 1}, {"S_tgt": 1})
        ),
        "permuted": Curriculum("analogy", ({"S_src": k, "S_tgt+1": k, "A": 1},)),
        "omitted": Curriculum("analogy", ({"S_src": k, "A": 1},)),
        "bridge": Curriculum("two-hop", ({"H1": k, "ID": k, "H2": 1},)),
        "no_bridge": Curriculum("two-hop", ({"H1": k, "H2": 1},)),
        "permuted_bridge": Curriculum("two-hop", ({"H1": k, "ID+1": k, "H2": 1},)),
        "half_bridge": Curriculum("two-hop", ({"H1": k, "ID/2": k, "H2": 1},)),
        "decoy": Curriculum("two-hop", ({"H1": k, "decoy": k, "H2": 1},)),
    }
    if name not in every:
        raise unknown("curriculum", name, every)
    return every[name]


Logits = Float[Tensor, "fact d_vocab"]
Features = Float[Tensor, "fact d_model"]
"""The representation that the study compares."""

Reading = Callable[[Any, Batch], tuple[Logits, Features]]
"""(model, prompts) -> both, from one pass where that can be."""


def answer_logits(model: Any, prompts: Batch) -> Logits:
    """Logits after the last token."""
    return answer(model, prompts.tokens)


def premise_loss(model: Any, data: Premises) -> Float[Tensor, ""]:
    """Cross-entropy over the multiset of premises."""
    logits = answer_logits(model, data.facts)
    losses = cross_entropy(logits, data.facts.targets, reduction="none")
    return (data.weights * losses).sum()


def hits(model: Any, facts: Batch) -> Float[Tensor, ""]:
    """Share of prompts whose argmax over the whole vocabulary is the answer."""
    return _hits(answer_logits(model, facts), facts)


def _hits(logits: Logits, facts: Batch) -> Float[Tensor, ""]:
    return (logits.argmax(-1) == facts.targets).float().mean()


def hits_among(model: Any, facts: Batch) -> Float[Tensor, ""]:
    """The same with the argmax taken among the answers of all tuples only."""
    return _hits_among(answer_logits(model, facts), facts)


def _hits_among(logits: Logits, facts: Batch) -> Float[Tensor, ""]:
    own = torch.arange(len(facts), device=logits.device)
    return (logits[:, facts.targets].argmax(-1) == own).float().mean()


def scores(read: Reading, model: Any, data: Conclusions) -> dict[str, Tensor]:
    """What every arm records over training; one pass over each kind of prompt.

    Success alone cannot tell missing alignment from forgetting and from output drift,
    so it never stands alone: `c_only` restricts the answer to the further properties,
    `known` asks whether the source's own attribution survived.
    """
    said, target = read(model, data.test)
    known, source = read(model, data.known)
    return {
        "success": _hits(said, data.test),
        "c_only": _hits_among(said, data.test),
        "known": _hits(known, data.known),
        "similarity": paired_cosine(source, target).mean(),
    }


def block_reading(model: Any, prompts: Batch) -> tuple[Logits, Features]:
    """A block's answers, and V z of each prompt's entity."""
    return answer_logits(model, prompts), value_features(model, prompts)


def gpt_reading(model: Any, prompts: Batch) -> tuple[Logits, Features]:
    """GPT-2's answers, and its states after the final norm at the last token."""
    residual = model.last(prompts.tokens)
    return model.readout(residual)[:, 0], model.final_norm(residual)[:, 0]


def value_features(model: Any, prompts: Batch) -> Features:
    """V z of each prompt's entity: the one-layer block's feature."""
    entities = prompts.tokens.gather(-1, prompts.role("entity"))[:, 0]
    return model.value_vectors(entities)

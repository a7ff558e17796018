"""The lego study's signals on a pretrained language model.

Heads are chosen on chains of their own; a seed draws the chains that are judged.
"""

import itertools
import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from circuits.claims import NotTested
from circuits.hooks import Signal, measure
from circuits.interventions.ablation import Edges, ablate, knock_out
from circuits.interventions.edit import Sharpen
from circuits.interventions.part import Part
from circuits.lab import LanguageLab, once
from circuits.models.language_model import LanguageModel
from circuits.studies.lego.law import diluted_error, sharpness
from probes.attention import attention_mass
from trained.task import Batch

from .data import Exercise, as_row, exercises, given, n_steps, value_tokens, written
from .rows import SCHEMA, ChainRow, Group
from .settings import Settings

Change = Callable[[LanguageModel, Batch], AbstractContextManager[None]]
"""Changes the model for the passes over some prompts."""

Heads = list[tuple[int, int]]
"""(layer, head)"""

Shares = Float[Tensor, "layer head step"]


@dataclass(frozen=True)
class Steps:
    """What is said at the "=" of each step, mean over all steps.

    Attributes:
        accuracy: share of steps whose right value beats the other two.
        log_prob: log-probability of the right value among the whole vocabulary.
    """

    accuracy: float
    log_prob: float


@dataclass(frozen=True)
class Looks:
    """Attention at the "=" of each step, as shares of that to all clauses before it.

    Attributes:
        predicate: on the predicate that is due.
        other_predicate: on another one, mean.
        answer: on the last answer line.
        other_answer: on an earlier one, mean; 0 at the first step, which has none.
    """

    predicate: Shares
    other_predicate: Shares
    answer: Shares
    other_answer: Shares


@dataclass(frozen=True)
class Drawn:
    """The chains of a seed, by length, and what else it draws, in this order."""

    cyclic: dict[int, list[Exercise]]
    symmetric: dict[int, list[Exercise]]
    not_due: list[int]
    """For each step of a short chain, the number of another predicate than its own."""
    source: random.Random


class LegoLanguageLab(LanguageLab):
    """Chains written out by a language model."""

    SCHEMA = SCHEMA
    settings: Settings

    @once
    def drawn(self, seed: int) -> Drawn:
        """What a seed draws."""
        s, source = self.settings, random.Random(seed)
        lengths = (s.shortest, s.short, s.long)
        cyclic = {n: self._exercises("C3", n, source) for n in lengths}
        others = (s.shortest, s.long)
        symmetric = {n: self._exercises("S3", n, source) for n in others}
        return Drawn(cyclic, symmetric, not_due(s.short, source), source)

    def own_rows(self) -> list[ChainRow]:
        """The chains of the first seed."""
        drawn = self.drawn(self.seeds[0])
        groups: dict[Group, dict[int, list[Exercise]]] = {
            "C3": drawn.cyclic,
            "S3": drawn.symmetric,
        }
        return [
            as_row(group, exercise)
            for group, lengths in groups.items()
            for several in lengths.values()
            for exercise in several
        ]

    def _exercises(
        self, group: Group, length: int, source: random.Random
    ) -> list[Exercise]:
        """Chains of a length: the file's, if there is one, or drawn."""
        if self.data is None:
            return exercises(self.settings, group, length, source)
        rows = [
            row
            for row in self.data.rows
            if row.group == group and len(row.actions) == length
        ]
        if len(rows) < self.settings.count(length):
            raise NotTested(
                f"{self.data.name} has {len(rows)} chains of {group} and length "
                f"{length}; {self.settings.count(length)} are needed"
            )
        return given(self.settings, rows, source)

    @once
    def best(self, what: Literal["predicate", "answer"]) -> Heads:
        """The heads that look most at a clause, on chains that are not judged."""
        shares = getattr(self._choosing(), what)
        return best_heads(shares, self.settings.n_best)

    @once
    def _choosing(self) -> Looks:
        source = random.Random(self.settings.choosing_seed)
        several = exercises(self.settings, "C3", self.settings.short, source)
        return look(self.model, several, self.settings.at_once)[1]

    @once
    def looked(self, seed: int, length: int) -> tuple[Steps, Looks]:
        """What the model says of a seed's C3 chains, and where it looks."""
        several = self.drawn(seed).cyclic[length]
        return look(self.model, several, self.settings.at_once)

    def say(self, several: Sequence[Exercise], change: Change | None = None) -> Steps:
        """What the model says, as it is or changed."""
        return say(self.model, several, change, self.settings.at_once)

    def accuracy(self, seed: int) -> float:
        """Share of steps of short chains that are right."""
        return self.looked(seed, self.settings.short)[0].accuracy

    def group_gap(self, seed: int, length: int) -> float:
        """Step accuracy, C3 minus S3."""
        drawn = self.drawn(seed)
        if length == self.settings.long:
            cyclic = self.looked(seed, length)[0]
        else:
            cyclic = self.say(drawn.cyclic[length])
        return cyclic.accuracy - self.say(drawn.symmetric[length]).accuracy

    def share(self, what: str, seed: int) -> float:
        """The best heads' share on a clause, or on another one of its kind."""
        looks = self.looked(seed, self.settings.short)[1]
        kind = what.removeprefix("other_")
        # The first step has no earlier answer.
        first = 2 if kind == "answer" else 1
        return mean_over(getattr(looks, what), self.best(kind), first=first)

    def law_error(self, seed: int) -> float:
        """Relative error of the miss that the law predicts for long chains."""
        return self._errors(seed, constant=False)

    def constant_error(self, seed: int) -> float:
        """That of a miss that stays as it is for short ones."""
        return self._errors(seed, constant=True)

    def _errors(self, seed: int, *, constant: bool) -> float:
        lengths = (self.settings.short, self.settings.long)
        counts = [other_clauses(length) for length in lengths]
        found = []
        for head in self.best("predicate"):
            before, after = (
                missed(self.looked(seed, length)[1].predicate, head)
                for length in lengths
            )
            weight = sharpness(before, counts[0])
            predicted = before if constant else diluted_error(weight, counts[1])
            found.append(abs(predicted - after) / after)
        return sum(found) / len(found)

    @once
    def hidden(self, seed: int, heads: Literal["all", "best"], *, due: bool) -> float:
        """Log-probability lost without the predicate that is due, or another one."""
        drawn, length = self.drawn(seed), self.settings.short
        several = drawn.cyclic[length][: self.settings.n_hidden]
        numbers = list(range(1, length + 1)) if due else drawn.not_due
        chosen = self.best("predicate") if heads == "best" else None
        without = self.say(several, hide_predicates(numbers, chosen))
        return self._whole(seed) - without.log_prob

    @once
    def _whole(self, seed: int) -> float:
        several = self.drawn(seed).cyclic[self.settings.short]
        return self.say(several[: self.settings.n_hidden]).log_prob

    def sharpened(self, seed: int, *, best: bool) -> float:
        """Accuracy gained on long chains with the scores of some heads multiplied."""
        length = self.settings.long
        heads = self._retrieving() if best else self._others(seed)
        change = sharpen(heads, self.settings.sharpening)
        after = self.say(self.drawn(seed).cyclic[length], change)
        return after.accuracy - self.looked(seed, length)[0].accuracy

    def _retrieving(self) -> Heads:
        return list(dict.fromkeys([*self.best("predicate"), *self.best("answer")]))

    @once
    def _others(self, seed: int) -> Heads:
        heads = self._retrieving()
        every = itertools.product(range(self.model.n_layers), range(self.model.n_heads))
        rest = [head for head in every if head not in heads]
        return self.drawn(seed).source.sample(rest, min(len(heads), len(rest)))


@torch.no_grad()
def say(
    model: LanguageModel,
    several: Sequence[Exercise],
    change: Change | None = None,
    at_once: int = 4,
) -> Steps:
    """What a model says, as it is or changed."""
    tokens = value_tokens(model)
    said = []
    for prompts in batches(model, several, at_once):
        with change(model, prompts) if change else nullcontext():
            logits = model(prompts.tokens, prompts.mask)
        said.append(step_scores(logits, prompts, tokens))
    accuracy, log_prob = torch.cat(said).mean((0, 1)).tolist()
    return Steps(accuracy, log_prob)


def look(
    model: LanguageModel, several: Sequence[Exercise], at_once: int = 4
) -> tuple[Steps, Looks]:
    """What the model says and where it looks, in one pass."""
    tokens = value_tokens(model)

    def scores(logits: Tensor, prompts: Batch) -> Tensor:
        return step_scores(logits, prompts, tokens)

    measured = measure(
        model,
        batches(model, several, at_once),
        {
            "said": Signal("logits", scores, ("step", "score")),
            "looks": Signal("pattern", clause_shares, ("head", "step", "clause")),
        },
    )
    said = measured["said"].values[0, 0].mean(0).tolist()
    shares = measured["looks"].values[0].unbind(-1)
    return Steps(*said), Looks(*shares)


def batches(
    model: LanguageModel, several: Sequence[Exercise], at_once: int
) -> list[Batch]:
    """The exercises as prompts, a few in each batch."""
    return [
        written(model, several[start : start + at_once])
        for start in range(0, len(several), at_once)
    ]


def step_scores(
    logits: Float[Tensor, "batch pos d_vocab"],
    prompts: Batch,
    values: Int[Tensor, " value"],
) -> Float[Tensor, "batch step 2"]:
    """Whether the right value beats the others at a step, and its log-probability."""
    rows = torch.arange(len(logits), device=logits.device)
    scores = []
    for step in range(1, n_steps(prompts) + 1):
        said = logits[rows, prompts.role(f"equals{step}")[:, -1]]
        right = prompts.tokens[rows, prompts.role(f"value{step}")[:, 0]]
        hit = values[said[:, values].argmax(-1)] == right
        scores.append(torch.stack([hit.float(), said.log_softmax(-1)[rows, right]], -1))
    return torch.stack(scores, 1)


def clause_shares(
    pattern: Float[Tensor, "batch head query key"], prompts: Batch
) -> Float[Tensor, "batch head step 4"]:
    """Shares of the attention to clauses at each step, as the fields of `Looks`."""
    rows = torch.arange(len(pattern), device=pattern.device)
    length = n_steps(prompts)
    shares = []
    for step in range(1, length + 1):
        looks = pattern[rows, :, prompts.role(f"equals{step}")[:, -1]]
        on = {
            role: attention_mass(looks, prompts.role(role)[:, None])
            for role in (
                *(f"predicate{i}" for i in range(1, length + 1)),
                *(f"answer{i}" for i in range(step)),
            )
        }
        due, last = on.pop(f"predicate{step}"), on.pop(f"answer{step - 1}")
        predicates = _mean([m for role, m in on.items() if role[0] == "p"], like=due)
        answers = _mean([m for role, m in on.items() if role[0] == "a"], like=due)
        total = due + last + sum(on.values())
        four = torch.stack([due, predicates, last, answers], -1)
        shares.append(four / total.clamp(min=1e-12)[..., None])
    return torch.stack(shares, 2)


def best_heads(shares: Shares, count: int) -> Heads:
    """The heads with the largest shares, mean over steps."""
    ranked = shares.mean(-1).flatten().argsort(descending=True)[:count]
    return [divmod(int(place), shares.shape[1]) for place in ranked]


def mean_over(shares: Shares, heads: Heads, *, first: int = 1) -> float:
    """Mean share of some heads over the steps from `first` on."""
    return float(torch.stack([shares[place][first - 1 :] for place in heads]).mean())


def missed(shares: Shares, head: tuple[int, int]) -> float:
    """The share of a head's attention to clauses that misses one, mean over steps."""
    return float(torch.tensor(1 - mean_over(shares, [head])))


def other_clauses(length: int) -> Float[Tensor, " step"]:
    """Clauses beside one predicate that step l of a chain can see.

    L - 1 other predicates and the answers 0 to l - 1.

    >>> other_clauses(2).tolist()
    [2.0, 3.0]
    """
    return length - 1 + torch.arange(1, length + 1, dtype=torch.float64)


def hide_predicates(hidden: Sequence[int], heads: Heads | None = None) -> Change:
    """Hide one predicate from each answer line, up to and at its "=".

    Args:
        hidden: for each step from the first on, the number of the hidden predicate.
        heads: in which heads; None for all.
    """

    def change(model: LanguageModel, prompts: Batch) -> AbstractContextManager[None]:
        places = by_layer(heads) if heads else dict.fromkeys(range(model.n_layers))
        edges = [
            Edges(layer, f"asking{step}", f"predicate{number}", chosen)
            for layer, chosen in places.items()
            for step, number in enumerate(hidden, 1)
        ]
        return knock_out(model, prompts, edges)

    return change


def sharpen(heads: Heads, factor: float) -> Change:
    """Multiply the scores of some heads by a factor, at every step."""
    parts = [
        Part("pattern", layer, chosen, positions="asking")
        for layer, chosen in by_layer(heads).items()
    ]
    return lambda model, prompts: ablate(model, prompts, parts, Sharpen(factor))


def not_due(length: int, source: random.Random) -> list[int]:
    """For each step another predicate, drawn at random."""
    return [
        source.choice([i for i in range(1, length + 1) if i != step])
        for step in range(1, length + 1)
    ]


def by_layer(heads: Heads) -> dict[int, tuple[int, ...]]:
    """The heads of every layer that has some."""
    layers = sorted({layer for layer, _ in heads})
    return {n: tuple(head for layer, head in heads if layer == n) for n in layers}


def _mean(masses: Sequence[Tensor], *, like: Tensor) -> Tensor:
    return torch.stack(list(masses)).mean(0) if masses else torch.zeros_like(like)

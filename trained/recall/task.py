"""In-context recall: relation tables, prompts with their roles, facts.

A relation table's rows are bijections: `table[r, s]` is the answer of relation r to
subject s. The affine table makes every two (subject, answer) pairs fit exactly one
relation, the theorem's hardest case; a random table with more than n(n-1) rows cannot
satisfy the paper's Assumption 1.

A prompt shows k (subject, answer) pairs of one hidden relation and a query subject.
Worked example, n=3, k=2, relations in the order of `all_bijections(3)`: subjects are
the tokens 0-2, answers 3-5, relations 6-11, EoS is 12. The relation 0->0, 1->1, 2->2
is token 6, and the prompt (0, 3, 1, 4, 2, 12) has the targets 6, then (with 6
appended) 5.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import permutations, product

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from trained import seeding
from trained.errors import BadInput
from trained.task import Batch, positions

from .config import prime_base

Table = Int[Tensor, "relation subject"]

MOST_DRAWS = 100
"""Attempts to find prompts outside a training set."""


def all_bijections(n_subjects: int) -> Table:
    """Every bijection, in lexicographic order (the paper's Table 1 for n=3)."""
    return torch.tensor(list(permutations(range(n_subjects))))


def random_table(
    n_subjects: int, n_relations: int, *, generator: torch.Generator
) -> Table:
    """Distinct bijections drawn uniformly."""
    rows: dict[tuple[int, ...], None] = {}
    while len(rows) < n_relations:
        rows[tuple(torch.randperm(n_subjects, generator=generator).tolist())] = None
    return torch.tensor(list(rows))


def affine_table(n_subjects: int, *, generator: torch.Generator) -> Table:
    """The maps x -> ax + b over the field with n elements, a != 0, relabelled.

    Subjects, answers and rows are permuted at random; there are n(n-1) rows.
    """
    addition, multiplication = _field(n_subjects)
    scale, shift = torch.meshgrid(
        torch.arange(1, n_subjects), torch.arange(n_subjects), indexing="ij"
    )
    table = addition[multiplication[scale.reshape(-1)], shift.reshape(-1, 1)]
    subjects, answers = (
        torch.randperm(n_subjects, generator=generator) for _ in range(2)
    )
    rows = torch.randperm(len(table), generator=generator)
    return answers[table[rows][:, subjects]]


def _field(size: int) -> tuple[Tensor, Tensor]:
    """Addition and multiplication tables of the field with `size` elements.

    Elements are polynomials over the prime field, written as digits in base p.
    """
    prime = prime_base(size)
    degree = next(e for e in range(1, size) if prime**e == size)
    digits = torch.tensor(list(product(range(prime), repeat=degree))).flip(1)
    weights = torch.tensor([prime**i for i in range(degree)])
    addition = ((digits[:, None] + digits[None]) % prime * weights).sum(-1)
    for tail in product(range(prime), repeat=degree):
        multiplication = _multiplication(digits, torch.tensor(tail), prime, weights)
        if (multiplication[1:, 1:] != 0).all():
            return addition, multiplication
    raise AssertionError(f"no irreducible polynomial of degree {degree} over {prime}")


def _multiplication(
    digits: Tensor, tail: Tensor, prime: int, weights: Tensor
) -> Tensor:
    """Products modulo the monic polynomial x^degree - tail."""
    degree = digits.shape[1]
    result = torch.zeros(len(digits), len(digits), degree, dtype=torch.long)
    power = digits.clone()
    for i in range(degree):
        result += digits[None, :, i, None] * power[:, None, :]
        carry = power[:, -1:]
        power = torch.cat([torch.zeros_like(carry), power[:, :-1]], 1) + carry * tail
        power %= prime
    return (result % prime * weights).sum(-1)


@cache
def relation_table(kind: str, n_subjects: int, n_relations: int, seed: int) -> Table:
    """The relation table of a seed: `affine` (all of its rows) or `random`."""
    source = seeding.generator(seed, "recall", "table", kind, n_subjects)
    if kind == "affine":
        return affine_table(n_subjects, generator=source)
    return random_table(n_subjects, n_relations, generator=source)


@dataclass(frozen=True)
class Vocabulary:
    """Token ids: subjects, answers, relations, then the end-of-sequence token."""

    n_subjects: int
    n_relations: int

    @property
    def size(self) -> int:
        """Number of tokens."""
        return 2 * self.n_subjects + self.n_relations + 1

    @property
    def end(self) -> int:
        """The end-of-sequence token."""
        return self.size - 1

    @property
    def answers(self) -> slice:
        """Where the answers are."""
        return slice(self.n_subjects, 2 * self.n_subjects)

    @property
    def relations(self) -> slice:
        """Where the relations are."""
        return slice(2 * self.n_subjects, self.end)

    @classmethod
    def of(cls, table: Table) -> "Vocabulary":
        """The vocabulary of a relation table."""
        return cls(table.shape[1], table.shape[0])


@dataclass(frozen=True)
class Episodes:
    """Prompts before they are written in tokens: which relation, which subjects.

    Roles of the prompts: subject0, answer0 and so on, subjects and answers for those of
    all examples, query, end and, at the second step, relation.
    """

    table: Table
    relation: Int[Tensor, " batch"]
    subjects: Int[Tensor, "batch subject_pos"]
    """k example subjects, then the query subject; distinct within a prompt."""

    @property
    def answers(self) -> Int[Tensor, "batch subject_pos"]:
        """The hidden relation's answers to the subjects."""
        return self.table[self.relation[:, None], self.subjects]

    @property
    def n_examples(self) -> int:
        """In-context examples per prompt."""
        return self.subjects.shape[1] - 1

    def relation_step(self) -> Batch:
        """Step 1: (s1, a1, ..., query, EoS) -> the relation."""
        words = Vocabulary.of(self.table)
        pairs = torch.stack([self.subjects, self.answers + words.n_subjects], dim=-1)
        tokens = pairs.flatten(1)
        tokens[:, -1] = words.end
        targets = words.relations.start + self.relation
        return Batch(tokens, targets, roles=_roles(tokens, self.n_examples))

    def answer_step(self) -> Batch:
        """Step 2: the prompt with its true relation appended -> the answer."""
        first = self.relation_step()
        tokens = torch.cat([first.tokens, first.targets[:, None]], dim=1)
        targets = self.answers[:, -1] + self.table.shape[1]
        return Batch(tokens, targets, roles=_roles(tokens, self.n_examples))

    def steps(self) -> dict[str, Batch]:
        """Both steps, as the loss and the arms want them."""
        return {"relation": self.relation_step(), "answer": self.answer_step()}

    @property
    def codes(self) -> Int[Tensor, " batch"]:
        """A number for each episode, the same for equal ones only."""
        code = self.relation
        for subject in self.subjects.unbind(1):
            code = code * self.table.shape[1] + subject
        return code

    def where(
        self, chosen: Bool[Tensor, " batch"] | Int[Tensor, " batch2"]
    ) -> "Episodes":
        """Some of the episodes."""
        return Episodes(self.table, self.relation[chosen], self.subjects[chosen])


def draw_episodes(
    table: Table, n_examples: int, count: int, *, generator: torch.Generator
) -> Episodes:
    """Episodes of a uniform relation and distinct uniform subjects."""
    n_relations, n_subjects = table.shape
    relation = torch.randint(n_relations, (count,), generator=generator)
    noise = torch.rand(count, n_subjects, generator=generator)
    return Episodes(table, relation, noise.argsort(1)[:, : n_examples + 1])


def all_episodes(table: Table, n_examples: int) -> Episodes:
    """Every episode of a small table once."""
    n_relations, n = table.shape
    orders = torch.tensor(list(permutations(range(n), n_examples + 1)))
    relation = torch.arange(n_relations).repeat_interleave(len(orders))
    return Episodes(table, relation, orders.repeat(n_relations, 1))


def unseen_episodes(
    table: Table,
    n_examples: int,
    count: int,
    seed: int,
    *,
    seen: Episodes | None = None,
) -> Episodes:
    """Episodes of the same table, other than those of a fixed training set.

    Args:
        table: what they are about.
        n_examples: in each of them.
        count: how many.
        seed: of the draw.
        seen: a fixed training set; without one, prompts are fresh at every step.
    """
    source = seeding.generator(seed, "recall", "test")
    if seen is None:
        return draw_episodes(table, n_examples, count, generator=source)
    known = seen.codes
    found: list[Episodes] = []
    for _ in range(MOST_DRAWS):
        drawn = draw_episodes(table, n_examples, count, generator=source)
        found.append(drawn.where(~torch.isin(drawn.codes, known)))
        if sum(len(kept.relation) for kept in found) >= count:
            return joined(found).where(torch.arange(count))
    raise BadInput(f"{len(known)} prompts leave too few to be tested on")


def joined(several: Sequence[Episodes]) -> Episodes:
    """Episodes of one table after each other."""
    relation = torch.cat([episodes.relation for episodes in several])
    subjects = torch.cat([episodes.subjects for episodes in several])
    return Episodes(several[0].table, relation, subjects)


def shuffle(data: dict[str, Batch], source: torch.Generator) -> dict[str, Batch]:
    """Both steps' prompts with their answers permuted over all of them."""
    order = torch.randperm(len(data["relation"]), generator=source)
    return {
        name: batch.with_targets(batch.targets[order]) for name, batch in data.items()
    }


def shuffle_copies(
    data: dict[str, Tensor], source: torch.Generator
) -> dict[str, Tensor]:
    """Copies' prompts with both steps' answers permuted over each copy's prompts.

    `pattern` is the match pattern of another prompt's relation; `answer` says which of
    a prompt's own answers another's is: those of its subjects in order, or none.
    """
    answers, crossed = data["answers"], data["crossed"]
    order = torch.randperm(answers.shape[1], generator=source)
    shown = answers == answers[:, order, -1:]
    column = torch.where(shown.any(-1), shown.double().argmax(-1), answers.shape[-1])
    pattern = crossed[:, torch.arange(len(order)), order]
    return {**data, "pattern": pattern, "answer": column}


def shuffle_counts(
    data: dict[str, Tensor], _source: torch.Generator
) -> dict[str, Tensor]:
    """Pattern counts with what permuting the answers of all prompts gives on average.

    Every relation is as likely to be called the right one as any other.
    """
    counts = data["counts"]
    return {**data, "targets": (counts / counts.sum(-1, keepdim=True))[0]}


def draw_facts(table: Table, count: int, *, generator: torch.Generator) -> Batch:
    """Two tokens of a fact in random order -> the third; what a memory learns from."""
    n_relations, n_subjects = table.shape
    relation = torch.randint(n_relations, (count,), generator=generator)
    subject = torch.randint(n_subjects, (count,), generator=generator)
    fact = torch.stack(
        [
            subject,
            table[relation, subject] + n_subjects,
            relation + 2 * n_subjects,
        ],
        dim=1,
    )
    order = torch.rand(count, 3, generator=generator).argsort(1)
    shuffled = fact.gather(1, order)
    return Batch(shuffled[:, :2], shuffled[:, 2])


def confusing_relations(episodes: Episodes) -> Bool[Tensor, "batch relation"]:
    """Relations that swap the answers of the two examples: r(s1)=a2, r(s2)=a1."""
    images, answers = _images(episodes), episodes.answers
    first = images[:, :, 0] == answers[:, None, 1]
    second = images[:, :, 1] == answers[:, None, 0]
    return first & second


def mismatched(episodes: Episodes) -> Bool[Tensor, " batch"]:
    """Prompts where some relation fits two of the pairs and uses the query subject.

    Two examples: r maps the query to one of the two answers and an example's subject to
    the other.
    """
    images, answers = _images(episodes), episodes.answers[:, None]
    query = images[:, :, 2:] == answers[..., :2]
    example = (images[:, :, :2, None] == answers[..., None, :2]).any(2)
    return (query & example.flip(-1)).flatten(1).any(1)


def consistent_relations(episodes: Episodes) -> Bool[Tensor, "batch relation"]:
    """Relations that agree with every example; the true one always does."""
    images, answers = _images(episodes), episodes.answers
    k = episodes.n_examples
    return (images[:, :, :k] == answers[:, None, :k]).all(-1)


def bayes_ceiling(episodes: Episodes) -> float:
    """Best possible accuracy on the relation: one over the consistent relations."""
    return float((1 / consistent_relations(episodes).sum(1)).mean())


def _images(episodes: Episodes) -> Int[Tensor, "batch relation subject_pos"]:
    return episodes.table.T[episodes.subjects].transpose(1, 2)


def _roles(tokens: Tensor, n_examples: int) -> dict[str, Tensor]:
    subjects = [2 * i for i in range(n_examples)]
    answers = [2 * i + 1 for i in range(n_examples)]
    named = {
        "subjects": subjects,
        "answers": answers,
        "query": [2 * n_examples],
        "end": [2 * n_examples + 1],
        "relation": [2 * n_examples + 2],
        **{f"subject{i}": [subjects[i]] for i in range(n_examples)},
        **{f"answer{i}": [answers[i]] for i in range(n_examples)},
    }
    if tokens.shape[1] == 2 * n_examples + 2:
        del named["relation"]
    return {name: positions(columns, tokens) for name, columns in named.items()}

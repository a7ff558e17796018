"""Relation tables: each row is a bijection from subjects to answers.

`table[r, s]` is the answer of relation r to subject s. The affine table makes every
two (subject, answer) pairs fit exactly one relation, the theorem's hardest case; a
random table with more than n(n-1) rows cannot satisfy the paper's Assumption 1.
"""

from itertools import permutations, product

import torch
from jaxtyping import Int
from torch import Tensor

from .config import prime_base

Table = Int[Tensor, "relation subject"]


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

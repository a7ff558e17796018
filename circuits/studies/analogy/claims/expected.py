"""Expectations that many claims of the study share. Free of torch."""

from math import floor

from circuits.claims import Null
from circuits.conditions import Chance, Each, Measure, chance
from trained.analogy.config import Config

SEEDS = 3
"""Replicates that the paper's spreads suggest; bounds are stated for as many."""


def transfers(n: int) -> str:
    """Success in nearly all of n tuples; one miss is allowed where they are few."""
    least = min(0.95, (n - 1) / n) if n <= 24 else 0.95
    return f">= {floor(least * 1000) / 1000:.4g}"


def at_chance(
    name: str, n: int, measure: Measure, examples: int | None = None
) -> Chance:
    """The condition that success is what guessing among n answers gives."""
    examples = examples or n
    return Chance(name, chance(n, examples, SEEDS), measure, n, examples)


def succeeds(name: str, n: int, measure: Measure) -> Each:
    """The condition that nearly all tuples succeed, in every seed."""
    return Each(name, transfers(n), measure)


def untrained(n: int) -> Null:
    """Before training, success is what guessing gives."""
    return Null("untrained", on=lambda lab: lab.untrained(), bound=chance(n, n, SEEDS))


def fails(name: str, n: int, measure: Measure, seeds: int = SEEDS) -> Null:
    """Without the mechanism, success is what guessing gives."""
    return Null(name, measure=measure, bound=chance(n, n, min(seeds, SEEDS)))


def gpt_2(config: Config) -> str:
    """The model and its size, whose width, steps and init the paper leaves open."""
    sizes = config.gpt
    return (
        f"GPT-2 ({sizes.layers} layers, {sizes.heads} heads, width {sizes.width},"
        f" {sizes.n_entities} tuples, {sizes.steps} steps a phase)"
    )


def absolute(values: list[float]) -> list[float]:
    """The sizes of values."""
    return [abs(value) for value in values]


def difference(larger: list[float], smaller: list[float]) -> list[float]:
    """Seed by seed."""
    return [a - b for a, b in zip(larger, smaller, strict=True)]

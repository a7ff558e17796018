"""What is answered: identity unlocks two-hop queries, less so with complexity."""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from circuits.claims import UNTRAINED, Claim, Null, under
from circuits.conditions import Each, Mean, Measure
from trained.bridge.config import Config, Recipe, embedding, tied

later = partial(Claim, not_tested="not measured yet")
"""A leaf of the paper's tree that nothing measures yet."""


def seeds(recipe: Recipe, quantity: Callable[[Any], float]) -> Measure:
    """A quantity of an arm's specimens, seed by seed."""
    return lambda lab: [quantity(specimen) for specimen in lab.specimens(recipe)]


def no_identity(bound: str | None = None) -> Null:
    """The arms that were trained without the zero-hop task."""
    name = "no identity task"
    return Null(name, on=lambda lab: lab.instead(task="none"), bound=bound)


def absent(
    name: str, recipe: Recipe, quantity: Callable[[Any], float], bound: str
) -> Null:
    """A quantity, seed by seed, that shows the mechanism's absence."""
    return Null(name, measure=seeds(recipe, quantity), bound=bound)


UNFACTORISED = Null("Z trained unfactorised", on=lambda lab: lab.instead(factors="one"))


def band(config: Config, complexity: int = 1, n_seeds: int = 3) -> float:
    """Accuracy that chance, 1/N, stays below: two standard errors above it."""
    chance = 1 / config.n_subjects
    queries = complexity * config.n_subjects * n_seeds
    return chance + 2 * math.sqrt(chance * (1 - chance) / queries)


def chance(config: Config, complexity: int = 1) -> str:
    """The bound of what should answer no better than by chance; 0.15 is ours."""
    return f"<= {max(0.15, band(config, complexity)):.3g}"


def answers(config: Config) -> Iterator[Claim]:
    """Headlines A and B."""
    unlocked = "Identity unlocks two-hop reasoning out of distribution"
    yield from under(unlocked, _unlocked(config))
    yield from under("Complexity, and what slows the decline", _decline())


def _small(config: Config) -> Claim:
    return Claim(
        "bridge.ood.small.k1",
        "Small-initialisation GPT-2 (tied head, no offset) with identity answers"
        " two-hop queries with one object per subject.",
        "Section 4.1, Figure 2",
        "behaviour",
        conditions=(
            Mean("ood", ">= 0.5", seeds(tied(), lambda s: s.ood)),
            Each("ood above the same seed without identity", "> 0", _lead),
        ),
        nulls=(
            no_identity(),
            absent(
                "identity labels permuted in one cycle: the true object",
                tied(1, "permuted"),
                lambda s: s.permuted.stay,
                f"<= {band(config):.3g}",
            ),
            UNTRAINED,
        ),
        weight=5,
        revised="small gamma, rate and steps were picked by two-hop accuracy in a"
        " prototype (other seeds); 0.5 instead of 0.75, nulls and 3 seeds instead of 1"
        " come from the rubric (Step 7), written after 0.25 to 0.75 had been seen",
    )


def _unlocked(config: Config) -> Iterator[Claim]:
    yield _small(config)
    yield later(
        "bridge.ood.standard.k1",
        "Standard GPT-2 does well with one object per subject too.",
        "Section 4.1, Figure 2",
        "behaviour",
        weight=4,
    )
    yield _embedding(config)
    yield later(
        "bridge.ood.none-fails",
        "Without identity the models completely fail.",
        "Abstract, Section 4.1",
        "behaviour",
        weight=4,
    )
    yield later(
        "bridge.ood.nonzero",
        "Identity gives non-zero accuracy in every model at every complexity.",
        "Section 4.1",
        "behaviour",
        weight=3,
    )
    yield later(
        "bridge.ood.in-distribution",
        "Two-hop data on other bridges does not give two-hop reasoning out of"
        " distribution; identity does.",
        "Sections 2 and 3.2, Figure 1b",
        "behaviour",
        weight=3,
    )


def _embedding(config: Config) -> Claim:
    ood = seeds(embedding(), lambda s: s.ood)
    return Claim(
        "bridge.ood.embmlp.k1",
        "Emb-MLP with identity answers two-hop queries with one object per subject."
        " (Without identity it must be at chance, by symmetry: a leak test.)",
        "Section 4.1, Figure 2",
        "behaviour",
        conditions=(Mean("ood", ">= 0.5", ood), Each("ood, each seed", ">= 0.5", ood)),
        nulls=(UNFACTORISED, no_identity(f"<= {band(config):.3g}"), UNTRAINED),
        weight=4,
        revised="0.5 instead of 0.95 (rubric, Step 7: the paper shows a picture), after"
        " 1.0 had been seen; the null's bound is the band of chance instead of 0.05"
        " (Step 8: 0.05 is less than chance where N < 20)",
    )


def _lead(lab: Any) -> list[float]:
    """Ood with identity minus without, seed by seed."""
    pairs = zip(lab.specimens(tied()), lab.specimens(tied(1, "none")), strict=True)
    return [own.ood - twin.ood for own, twin in pairs]


def _decline() -> Iterator[Claim]:
    yield later(
        "bridge.decline.together",
        "Standard GPT-2 and Emb-MLP decline with complexity together.",
        "Section 4.1",
        "behaviour",
        weight=3,
    )
    yield later(
        "bridge.decline.graceful",
        "Small initialisation declines more slowly than standard.",
        "Sections 4.1 and 4.4",
        "behaviour",
        weight=4,
    )
    yield later(
        "bridge.decline.decay",
        "Weight decay substantially recovers accuracy at high complexity.",
        "Section 4.4",
        "behaviour",
        weight=4,
    )
    yield later(
        "bridge.decline.small-recovers",
        "So does small initialisation.",
        "Section 4.4",
        "behaviour",
        weight=3,
    )

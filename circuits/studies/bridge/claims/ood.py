"""A. Identity unlocks two-hop queries whose bridges no two-hop item has shown.

`ood` is accuracy over the whole vocabulary; `ood_obj`, among objects only, and the
share of answers that are bridges are shown beside it (ours), never instead.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from circuits.claims import UNTRAINED, Claim, Null
from circuits.conditions import Each, Mean, Measure
from trained.bridge.config import Config, Recipe, Regime, Task, embedding, gpt, shown

from .fisher import Contrast, Fisher
from .quantities import (
    FEWER_TWINS,
    UNFACTORISED,
    at_chance,
    beyond_chance,
    difference,
    largest,
    least,
    no_identity,
    seeds,
)

PERFORM_WELL = (
    "0.5 is the weakest reading of 'perform well' and a picture; it comes from the"
    " rubric, written after 0.25 to 1.0 (small), 0.0 (standard) and 1.0 (Emb-MLP) had"
    " been seen on other seeds"
)

MODELS: dict[str, Callable[[int, Task], Recipe]] = {
    "small": gpt,
    "standard": partial(gpt, regime="standard"),
    "embmlp": embedding,
}
"""The three models of Figure 2: (complexity, task) -> the arm."""


def unlocked(config: Config) -> Iterator[Claim]:
    """Headline A."""
    yield _gpt(config, "small", "Small-initialisation", weight=5)
    yield _gpt(config, "standard", "Standard", weight=4)
    yield _embedding(config)
    yield _none_fails(config)
    yield _nonzero(config)
    yield _in_distribution(config)


def _single_hops(specimen: Any) -> float:
    """The lesser accuracy of both hops: a twin that has not learned is no twin."""
    return float(specimen.single_hops)


def _gpt(config: Config, regime: Regime, title: str, weight: int) -> Claim:
    own, plain = gpt(regime=regime), gpt(1, "none", regime)
    sizes = config.gpt
    gamma = sizes.gamma if regime == "small" else sizes.standard_gamma
    return Claim(
        f"bridge.ood.{regime}.k1",
        f"{title} GPT-2 with identity answers two-hop queries with one object per"
        f" subject (tied head, no offset, gamma = {gamma:g}, rate {sizes.lr:g},"
        f" {sizes.steps} steps).",
        "Section 4.1, Figure 2",
        "behaviour",
        conditions=(
            Mean("ood", ">= 0.5", seeds(own)),
            Each(
                "ood above the same seed without identity",
                "> 0",
                difference(seeds(own), seeds(plain)),
            ),
        ),
        preconditions=(
            Each(
                "trained single hops, with identity and without",
                ">= 0.99",
                least([seeds(arm, _single_hops) for arm in (own, plain)]),
            ),
        ),
        nulls=(
            no_identity(),
            at_chance(
                "identity labels permuted in one cycle: the true object",
                config,
                gpt(1, "permuted", regime),
                lambda s: s.permuted.stay,
            ),
            UNTRAINED,
        ),
        weight=weight,
        revised=f"{PERFORM_WELL}; precondition added after a twin without identity that"
        " had not learned its single hops was seen on seeds 900 to 902",
    )


def _embedding(config: Config) -> Claim:
    ood = seeds(embedding())
    return Claim(
        "bridge.ood.embmlp.k1",
        "Emb-MLP with identity answers two-hop queries with one object per subject."
        " (Without identity it must be at chance, by symmetry: a leak test.)",
        "Section 4.1, Figure 2",
        "behaviour",
        conditions=(Mean("ood", ">= 0.5", ood), Each("ood, each seed", ">= 0.5", ood)),
        nulls=(
            UNFACTORISED,
            at_chance("no identity task", config, embedding(1, "none")),
            UNTRAINED,
        ),
        weight=4,
        revised=PERFORM_WELL,
    )


def _cells(config: Config, task: Task) -> dict[str, Recipe]:
    """Every model at every complexity that is trained both ways, by name."""
    return {
        f"{name}, kappa = {kappa}": arm(kappa, task)
        for name, arm in MODELS.items()
        for kappa in (config.kappas if name == "embmlp" else config.compared)
    }


def _none_fails(config: Config) -> Claim:
    plain = _cells(config, "none")
    hops = [seeds(arm, _single_hops) for arm in plain.values()]
    taught = _cells(config, "identity")
    return Claim(
        "bridge.ood.none-fails",
        "Without identity the models completely fail: ood minus the band of chance,"
        f" three models, kappa in {config.compared} (Emb-MLP {config.kappas}).",
        "Abstract, Section 4.1",
        "behaviour",
        conditions=tuple(
            Mean(f"{name}: ood beyond chance", "<= 0", beyond_chance(config, arm))
            for name, arm in plain.items()
        ),
        preconditions=(Each("trained single hops", ">= 0.99", least(hops)),),
        controls=(
            Each(
                "with identity: the largest ood beyond chance",
                "> 0",
                largest([beyond_chance(config, arm) for arm in taught.values()]),
            ),
        ),
        nulls=(Null("with identity", on=lambda lab: lab.instead(task="identity")),),
        weight=4,
        revised=FEWER_TWINS,
    )


def _contrast(one: Recipe, other: Recipe) -> Measure:
    """Hits of two arms, seed by seed."""

    def measure(lab: Any) -> list[Contrast]:
        pairs = zip(lab.specimens(one), lab.specimens(other), strict=True)
        return [Contrast(a.ood_hits, b.ood_hits) for a, b in pairs]

    return measure


def _against_itself(arm: Recipe) -> Measure:
    """Hits of an arm's first seeds against those of its last ones."""

    def measure(lab: Any) -> list[Contrast]:
        found = [specimen.ood_hits for specimen in lab.specimens(arm)]
        half = len(found) // 2 or 1
        pairs = zip(found[:half], found[::-1], strict=False)
        return [Contrast(a, b) for a, b in pairs]

    return measure


def _nonzero(config: Config) -> Claim:
    taught, plain = _cells(config, "identity"), _cells(config, "none")
    return Claim(
        "bridge.ood.nonzero",
        "Identity gives non-zero accuracy in every model at every complexity: more hits"
        " than without it, Fisher's test on the hits of all seeds (one hit is not"
        f" non-zero); kappa in {config.compared} (Emb-MLP {config.kappas}).",
        "Section 4.1",
        "behaviour",
        conditions=tuple(
            Fisher(name, "> 0", _contrast(taught[name], plain[name])) for name in taught
        ),
        nulls=(
            *(
                Null(
                    f"{name}, no identity against itself, other seeds",
                    measure=_against_itself(arm),
                )
                for name, arm in plain.items()
            ),
            UNTRAINED,
        ),
        weight=3,
        revised=FEWER_TWINS,
    )


def _in_distribution(config: Config) -> Claim:
    own, plain = shown(), shown("none")
    # The other half of the bridges is judged.
    beyond, lead = (beyond_chance(config, x, share=0.5) for x in (plain, own))
    return Claim(
        "bridge.ood.in-distribution",
        "Two-hop items of a random half of the bridges do not give two-hop reasoning"
        " over the other half; with identity they do. Small initialisation, ood on the"
        " other half minus the band of chance (standard: see ours).",
        "Sections 2 and 3.2, Figure 1b",
        "behaviour",
        conditions=(
            Mean("without identity: ood beyond chance", "<= 0", beyond),
            Each("with identity: ood beyond chance", "> 0", lead),
        ),
        preconditions=(
            Each(
                "trained two-hop items, both arms",
                ">= 0.95",
                least([seeds(arm, lambda s: s.seen) for arm in (own, plain)]),
            ),
        ),
        nulls=(no_identity(), UNTRAINED),
        weight=3,
    )

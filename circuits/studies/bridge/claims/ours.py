"""Ours: shown apart, never gated.

The program's closed forms, what stands beside `ood`, and Emb-MLP. The GPT with an
untied head is in `untied`.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from circuits.claims import UNTRAINED, Claim, Kind, Null
from circuits.conditions import Condition, Each, Mean
from trained.bridge.config import Config, Regime, direction, embedding, gpt, shown

from .quantities import (
    absent,
    at_chance,
    band,
    beyond_chance,
    least,
    no_identity,
    seeds,
)
from .theory import by_size


def claim(
    kind: Kind,
    id: str,
    statement: str,
    conditions: Condition | tuple[Condition, ...],
    *nulls: Null,
    **more: Any,
) -> Claim:
    """A claim of ours; one condition need not be a tuple."""
    several = (conditions,) if isinstance(conditions, Condition) else conditions
    return Claim(id, statement, "ours", kind, several, nulls, origin="ours", **more)


behaviour = partial(claim, "behaviour")
signal = partial(claim, "signal")
causal = partial(claim, "causal")
theory = partial(claim, "theory")


def chance(config: Config, complexity: int = 1) -> str:
    """The bound of what should answer no better than by chance; 0.15 is ours."""
    return f"<= {max(0.15, band(config, complexity, 3)):.3g}"


def program(config: Config) -> Iterator[Claim]:
    """What the program gives beyond the theorems."""
    yield from _margins(config)
    yield from _optimum(config)


def _margins(config: Config) -> Iterator[Claim]:
    distance = by_size(config, lambda o: o.from_closed_form, identity=False)
    yield theory(
        "bridge.ours.closed-form",
        "Without identity every margin is -N/(N+1) (largest distance from it; one value"
        " per N).",
        Each("distance", "<= 0.001", distance),
        Null(
            "with identity",
            measure=by_size(config, lambda o: o.from_closed_form),
            bound=">= 1",
        ),
    )
    distances = (
        by_size(config, lambda o: o.from_symmetric(identity=True)),
        by_size(config, lambda o: o.from_symmetric(identity=False)),
    )
    yield theory(
        "bridge.ours.reduction",
        "The 12-variable symmetric program gives the same least margin as the full one"
        " (distance; one value per N).",
        Each("distance", "<= 0.001", distances[0]),
        Null(
            "the symmetric program without identity",
            measure=distances[1],
            bound=">= 1",
        ),
    )
    tie = config.theory.tie_size
    yield theory(
        "bridge.ours.tie",
        "With two objects per subject identity leaves an exact tie: largest |margin|"
        f" (N = {tie}), so sharing alone predicts accuracy 1/kappa.",
        Each("|margin|", "<= 1e-06", lambda lab: [lab.optimum(tie, 2).largest_size]),
        Null(
            "no identity task",
            measure=lambda lab: [lab.optimum(tie, 2, identity=False).largest_size],
            bound=">= 1",
        ),
    )


def _optimum(config: Config) -> Iterator[Claim]:
    gaps = [
        by_size(config, lambda o: o.relative_gap, identity=x) for x in (True, False)
    ]
    yield theory(
        "bridge.ours.certificate",
        "Weak duality bounds the relative error of the optimum (larger of both arms;"
        " one value per N).",
        Each(
            "relative duality gap",
            "<= 1e-05",
            lambda lab: list(map(max, *(gap(lab) for gap in gaps))),
        ),
        Null(
            "the multipliers in reverse order",
            measure=by_size(config, lambda o: o.spoiled().relative_gap),
            bound=">= 0.001",
        ),
    )
    yield theory(
        "bridge.ours.rank",
        "Sharing makes the optimum low-rank: rank / N is 1 with identity and 2 - 1/N"
        " without (one value per N).",
        Each("rank / N", "in [1, 1]", by_size(config, lambda o: o.relative_rank)),
        Null(
            "no identity task",
            measure=by_size(config, lambda o: o.relative_rank, identity=False),
            bound="in [1.66, 2]",
        ),
    )


def rows(config: Config) -> Iterator[Claim]:
    """What Emb-MLP does beyond the paper's leaves."""
    few = [kappa for kappa in config.kappas if 2 <= kappa <= 4]

    def from_candidates(lab: Any) -> list[float]:
        """Largest |ood_obj - 1/kappa| of every seed."""
        found = [
            [abs(s.ood_obj - 1 / kappa) for s in lab.specimens(embedding(kappa))]
            for kappa in few
        ]
        return [max(column) for column in zip(*found, strict=True)]

    yield behaviour(
        "bridge.ours.objects",
        "Emb-MLP, one object per subject: accuracy among objects only (chance 1/N).",
        Mean("ood_obj", ">= 0.95", seeds(embedding(), lambda s: s.ood_obj)),
        no_identity(chance(config)),
        UNTRAINED,
    )
    yield behaviour(
        "bridge.ours.candidates",
        "Sharing narrows the answer to kappa candidates: largest |ood_obj - 1/kappa|"
        " over kappa up to 4.",
        Mean("distance", "<= 0.15", from_candidates),
        no_identity(),
        UNTRAINED,
        not_tested="" if few else "no complexity is 2 to 4",
    )
    missing = "" if "decayed" in config.variants else "variants lacks decayed"
    yield from (replace(found, not_tested=missing) for found in _decayed())


def _decayed() -> Iterator[Claim]:
    own, plain = direction(descent="decayed"), direction("none", "decayed")

    def cosine(lab: Any) -> list[float]:
        """With the arm's own optimum, the lesser of both arms."""
        pairs = (lab.cosines(own, identity=True), lab.cosines(plain, identity=False))
        return list(map(min, *pairs))

    def other_cosine(lab: Any) -> list[float]:
        """With the other arm's optimum, the larger of both arms."""
        pairs = (lab.cosines(own, identity=False), lab.cosines(plain, identity=True))
        return list(map(max, *pairs))

    def positive(specimen: Any) -> float:
        """Share of queries with a positive margin."""
        return float(specimen.positive_margins)

    yield signal(
        "bridge.ours.decayed-direction",
        "With explicit weight decay, Emb-MLP points at the program's optimum"
        " (row-centred cosine, the lesser of both arms), and its margins have the"
        " theorems' signs.",
        (
            Mean("cosine", ">= 0.95", cosine),
            Each("positive margins", ">= 1", seeds(own, positive)),
        ),
        Null("the other arm's optimum", measure=other_cosine, bound="<= 0.7"),
        UNTRAINED,
        controls=(
            Each("positive margins without identity", "<= 0", seeds(plain, positive)),
        ),
    )
    yield signal(
        "bridge.ours.truncation",
        "Its Z cut to rank N keeps the least training margin (share); without identity"
        " it needs rank 2N - 1.",
        (
            Mean("share", ">= 0.9", seeds(own, lambda s: s.truncated)),
            Each("least training margin", "> 0", seeds(own, lambda s: s.least_margin)),
        ),
        no_identity("<= 0.5"),
        UNTRAINED,
        revised="condition on the training margin added in Step 8: of untrained weights"
        " the share of a negative margin had met the expectation",
    )


def beside(config: Config) -> Iterator[Claim]:
    """What stands beside the leaves of the paper's GPT."""
    # Decay is not trained without identity at one object per subject.
    for regime in config.gpt.regimes:
        if regime != "decay":
            yield _among_objects(config, regime)
    yield behaviour(
        "bridge.ours.tied-permuted",
        "Permuted identity, small initialisation: two-hop answers follow f2(s^-1(b)).",
        Mean(
            "follows", ">= 0.5", seeds(gpt(1, "permuted"), lambda s: s.permuted.follow)
        ),
        absent(
            "the true object",
            gpt(1, "permuted"),
            lambda s: s.permuted.stay,
            chance(config),
        ),
        UNTRAINED,
    )
    yield _weak_bridge(config)
    yield _shown_standard(config)
    yield _confound(config)


def _among_objects(config: Config, regime: Regime) -> Claim:
    own = gpt(regime=regime)
    return behaviour(
        f"bridge.ours.objects.{regime}",
        f"GPT, {regime}, one object per subject: accuracy among objects only (chance"
        " 1/N). Where ood is less, the answer is a bridge: the class is not settled on"
        " prompts of a length that training has not shown.",
        (
            Mean("ood_obj", ">= 0.5", seeds(own, lambda s: s.ood_obj)),
            Mean("right or a bridge", ">= 0.9", seeds(own, _right_or_bridge)),
        ),
        at_chance("no identity", config, gpt(1, "none", regime), lambda s: s.ood_obj),
        UNTRAINED,
    )


def _right_or_bridge(specimen: Any) -> float:
    """Share of two-hop answers that are right or bridges."""
    return float(specimen.ood + specimen.bridge_answers)


def _weak_bridge(config: Config) -> Claim:
    plain = gpt(1, "none")
    return behaviour(
        "bridge.ours.tied-head",
        "A tied head is a weak bridge of its own: without identity, small"
        " initialisation is above chance among objects, one object per subject.",
        Each(
            "ood_obj beyond the band of chance",
            "> 0",
            beyond_chance(config, plain, lambda s: s.ood_obj),
        ),
        Null(
            "untied head",
            measure=lambda lab: beyond_chance(
                config, replace(plain, head="untied"), lambda s: s.ood_obj
            )(lab),
            bound="<= 0",
        ),
        UNTRAINED,
        not_tested="" if "untied" in config.variants else "variants lacks untied",
    )


def _shown_standard(config: Config) -> Claim:
    own, plain = shown(regime="standard"), shown("none", "standard")
    return behaviour(
        "bridge.ours.in-distribution.standard",
        "Two-hop items of a random half of the bridges, standard initialisation: ood on"
        " the other half minus the band of chance, with identity.",
        Each(
            "with identity: ood beyond chance",
            "> 0",
            beyond_chance(config, own, share=0.5),
        ),
        Null(
            "without identity",
            measure=beyond_chance(config, plain, share=0.5),
            bound="<= 0",
        ),
        UNTRAINED,
        preconditions=(
            Each(
                "trained two-hop items, both arms",
                ">= 0.95",
                least([seeds(arm, lambda s: s.seen) for arm in (own, plain)]),
            ),
        ),
        not_tested="" if "shown" in config.variants else "variants lacks shown",
    )


def _confound(config: Config) -> Claim:
    arm = gpt(config.complexity)

    def between(lab: Any) -> list[float]:
        """Steps from half the final hop 2 to half the final ood."""
        late, early = (lab.half_way(arm, name) for name in ("ood", "hop2"))
        return [b - a for a, b in zip(early, late, strict=True)]

    return signal(
        "bridge.ours.confound",
        "Accuracy on two hops does not rise before hop 2 is learned either: steps from"
        f" half the final hop 2 to half the final ood, kappa = {config.complexity}.",
        Each("steps", ">= 0", between),
        Null(
            "ood to hop 2",
            measure=lambda lab: [-steps for steps in between(lab)],
            bound="<= 0",
        ),
    )

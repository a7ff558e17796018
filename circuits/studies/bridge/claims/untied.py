"""Ours: the GPT with an untied head and random position offsets, unlike the paper's.

Without identity it is at chance by symmetry, so that null only shows that nothing
leaks; what informs are initialisation and exchanged states. The paper makes no edits:
0.5 for "follows" and "largely repaired", 0.75 for "kept" and 0.2 for "does not" are our
thresholds.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from circuits.claims import UNTRAINED, Claim
from circuits.conditions import Condition, Mean
from trained.bridge.config import Config, Recipe, gpt, untied

from .ours import behaviour, causal, chance
from .quantities import absent, no_identity, seeds


def untied_head(config: Config) -> Iterator[Claim]:
    """What the untied head shows, where it is trained."""
    missing = "" if "untied" in config.variants else "variants lacks untied"
    for found in (*_answers(config), *_exchanged(config), *_bridge_states(config)):
        yield replace(found, not_tested=missing)
    yield _donor(config, "bridge.ours.tied-donor", gpt())
    lacking = "" if "random" in config.variants else "variants lacks random"
    yield replace(_random(config), not_tested=lacking)


def _answers(config: Config) -> Iterator[Claim]:
    for kappa in (1, config.complexity):
        yield _composes(config, kappa)
    half, plain = untied(1, "half"), untied(1, "none")
    yield behaviour(
        "bridge.ours.untied.half",
        "Identity on a random half of the bridges: those compose.",
        Mean("ood", ">= 0.9", seeds(half)),
        absent("the other half", half, lambda s: s.uncovered, chance(config)),
        UNTRAINED,
    )

    def probability(specimen: Any) -> float:
        """Of the object after [a, r2]."""
        return float(specimen.omitted_probability)

    yield behaviour(
        "bridge.ours.untied.omit",
        "The prompt [a, r2] that omits the first relation already gives the object, one"
        " object per subject.",
        (
            Mean(
                "accuracy among objects",
                ">= 0.9",
                seeds(untied(), lambda s: s.omitted_accuracy),
            ),
            Mean("probability", ">= 0.5", seeds(untied(), probability)),
        ),
        no_identity(chance(config)),
        absent("no identity task, probability", plain, probability, chance(config)),
        UNTRAINED,
        revised="nulls held to the band of chance, not to 0.2 (Step 8: it must follow"
        " N), with values in view",
    )


def _composes(config: Config, kappa: int) -> Claim:
    """Two-hop accuracy with identity, over all tokens and among objects."""
    own, plain = untied(kappa), untied(kappa, "none")
    expected = ">= 0.9" if kappa == 1 else f"> {1 / kappa:.3g}"
    level = "" if kappa == 1 else "; more than a tie among that many would give"
    return behaviour(
        f"bridge.ours.untied.k{kappa}",
        f"Two-hop accuracy, objects per subject: {kappa}{level}.",
        (
            Mean("ood", expected, seeds(own)),
            Mean("ood_obj", expected, seeds(own, lambda s: s.ood_obj)),
        ),
        no_identity(chance(config, kappa)),
        absent(
            "no identity, ood_obj", plain, lambda s: s.ood_obj, chance(config, kappa)
        ),
        UNTRAINED,
        revised=None
        if kappa == 1
        else "1 / kappa instead of 0.75 (Step 8: the level must follow kappa), after"
        " 0.9 had been seen at kappa = 3",
    )


def _solved(recipe: Recipe) -> tuple[Condition]:
    """Where queries are not answered, no state can be seen to carry the answer."""
    return (Mean(f"ood, kappa = {recipe.complexity}", ">= 0.5", seeds(recipe)),)


def _donor(config: Config, id: str, recipe: Recipe) -> Claim:
    kappa, head = recipe.complexity, recipe.head
    # A tied head is a weak bridge of its own: there it is not at chance.
    level = chance(config, kappa) if head == "untied" else None
    return causal(
        id,
        "[a, r1, r2]: r1's state from another prompt makes the answer that prompt's"
        f" object, kappa = {kappa}, {head} head.",
        Mean("follows", ">= 0.5", seeds(recipe, _follows)),
        no_identity(level),
        UNTRAINED,
        preconditions=_solved(recipe),
    )


def _follows(specimen: Any) -> float:
    """Share of the donor's answers after r1's state was exchanged."""
    return float(specimen.exchanged("bridge").follow)


def _kept(specimen: Any) -> float:
    """Ood with the state of the bridge alone over ood; undefined if that is 0."""
    ood = float(specimen.ood)
    return float(specimen.own_bridge()) / ood if ood else math.nan


def _exchanged(config: Config) -> Iterator[Claim]:
    model = untied(config.complexity)
    solved = _solved(model)
    yield _donor(config, "bridge.ours.donor.k1", untied())
    yield _donor(config, f"bridge.ours.donor.k{config.complexity}", model)
    yield causal(
        "bridge.ours.subject-spent",
        "The subject's own state from another prompt leaves the answer: it has moved on"
        " to r1 (share of unchanged labels).",
        Mean("stays", ">= 0.5", seeds(model, lambda s: s.exchanged("subject").stay)),
        absent(
            "r1's state exchanged",
            model,
            lambda s: s.exchanged("bridge").stay,
            "<= 0.2",
        ),
        UNTRAINED,
        preconditions=solved,
    )
    yield causal(
        "bridge.ours.mean-ablation",
        "Mean-ablating r1's state after one block destroys the answer, kappa ="
        f" {config.complexity}: ood lost.",
        Mean("loss", ">= 0.4", seeds(model, lambda s: s.ood - s.averaged("bridge"))),
        absent(
            "mean-ablating the subject's state",
            model,
            lambda s: s.ood - s.averaged("subject"),
            "<= 0.2",
        ),
        UNTRAINED,
        preconditions=solved,
        revised="the loss instead of what is left (Step 8: an untrained model has"
        " little left as well), after a loss of 0.67 had been seen",
    )


def _bridge_states(config: Config) -> Iterator[Claim]:
    model, plain = untied(config.complexity), untied(config.complexity, "none")
    level = chance(config, config.complexity)
    yield causal(
        "bridge.ours.bridge-state",
        "The state of the bridge alone, [b], in place of r1's keeps the answer; that of"
        " another bridge makes it that bridge's object.",
        (
            Mean("share kept, own bridge", ">= 0.75", seeds(model, _kept)),
            Mean(
                "follows another bridge",
                ">= 0.5",
                seeds(model, lambda s: s.other_bridge().follow),
            ),
        ),
        absent(
            "another bridge's state: the original label",
            model,
            lambda s: s.other_bridge().stay,
            "<= 0.2",
        ),
        UNTRAINED,
        preconditions=_solved(model),
        revised="the share kept instead of ood itself (Step 8: it must follow kappa),"
        " after 0.92 of 0.93 had been seen",
    )
    yield causal(
        "bridge.ours.rescue",
        "The same edit repairs the model without identity: its hop 2 is intact, what"
        " lacks is a state of (a, r1) that it can read.",
        Mean("ood", ">= 0.5", seeds(plain, lambda s: s.own_bridge())),
        absent("not edited", plain, lambda s: s.ood, level),
        UNTRAINED,
    )
    yield causal(
        "bridge.ours.second-hop",
        "Backwards: the state of (a, r1) in place of the bridge in [b', r2] makes the"
        " answer the object of (a, r1).",
        Mean("follows", ">= 0.5", seeds(model, lambda s: s.into_second_hop().follow)),
        no_identity(level),
        UNTRAINED,
        preconditions=_solved(model),
    )


def _random(config: Config) -> Claim:
    kappa = config.complexity
    random = replace(untied(kappa), maps="random")
    return behaviour(
        "bridge.ours.random",
        f"Random maps instead of shifts, kappa = {kappa}: ood.",
        Mean("ood", f"> {1 / kappa:.3g}", seeds(random)),
        no_identity(chance(config, kappa)),
        UNTRAINED,
        revised="more than 1/kappa instead of 0.75 (Step 8: it must follow kappa), with"
        " values in view",
    )

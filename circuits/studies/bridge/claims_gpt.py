"""The small GPT: what should hold, fixed before this code ran."""

from collections.abc import Iterator
from dataclasses import replace

from circuits.claims import Claim, Control, near
from trained.bridge.config import Config

from .claims_embedding import NONE


def transformers(config: Config) -> Iterator[Claim]:
    """Accuracy, initialisation, the prompt without first relation, the timeline."""
    yield from _one_object()
    yield from _several(config)
    yield from _initialisation(config)
    yield from _omitted(config)
    yield from _timeline(config)


def _one_object() -> Iterator[Claim]:
    one = Claim(
        "bridge.gpt.one-object",
        "Identity unlocks two-hop queries in a small-initialisation GPT, one object per"
        " subject: ood, every seed.",
        "Figure 2",
        "behaviour",
        ">= 0.9",
        Control(NONE, "<= 0.15"),
        every_seed=True,
    )
    yield one
    yield replace(
        one,
        id="bridge.gpt.one-object.objects",
        statement="The same among objects only: ood_obj (chance 1/N).",
        gated=False,
    )


def _several(config: Config) -> Iterator[Claim]:
    several = config.complexity
    more = Claim(
        "bridge.gpt.several-objects",
        f"And with {several} objects per subject: mean ood.",
        "Figure 2",
        "behaviour",
        ">= 0.75",
        Control(NONE, "<= 0.15"),
    )
    yield more
    yield replace(
        more,
        id="bridge.gpt.several-objects.each",
        statement=f"And with {several} objects per subject: ood in every seed.",
        expected=">= 0.6",
        every_seed=True,
    )
    yield replace(
        more,
        id="bridge.gpt.several-objects.objects",
        statement=f"With {several} objects, among objects only: ood_obj.",
        gated=False,
    )
    yield Claim(
        "bridge.gpt.bridge-answers",
        f"Share of answers that are bridges, {several} objects per subject; without"
        " identity the subject's own bridge was expected.",
        "ours",
        "behaviour",
        "<= 0.25",
        Control(NONE, ">= 0.5"),
        gated=False,
    )
    for kappa in sorted(set(config.sweep) - {1, several}):
        yield replace(
            more,
            id=f"bridge.gpt.k{kappa}",
            statement=f"With {kappa} objects per subject: mean ood.",
            gated=False,
        )


def _initialisation(config: Config) -> Iterator[Claim]:
    standard, several = config.standard_gamma, config.complexity
    lead = f"gamma = {config.gamma:g} minus gamma = {standard:g}, kappa = {several}"
    none = f"the small one with {NONE}"
    yield Claim(
        "bridge.initialisation.accuracy",
        f"Smaller initialisation declines more slowly: ood_obj, {lead}.",
        "Figure 2",
        "behaviour",
        ">= 0.4",
        Control(none, "<= 0.15"),
    )
    yield Claim(
        "bridge.initialisation.alignment",
        f"And aligns (a, r1) with its bridge after one block: mean cosine, {lead}.",
        "Figure 6",
        "signal",
        ">= 0.4",
        Control(none, "<= 0.15"),
    )
    yield Claim(
        "bridge.initialisation.net-alignment",
        f"Tighter also net of the cosine with other bridges: {lead}.",
        "Figure 6",
        "signal",
        ">= 0.3",
        Control(f"net cosine of the small one with {NONE}", "<= 0.1"),
    )
    if "standard" in config.variants and config.small_gammas:
        yield Claim(
            "bridge.initialisation.range",
            "One object per subject: least ood_obj over gamma ="
            f" {', '.join(f'{gamma:g}' for gamma in config.small_gammas)}.",
            "ours",
            "behaviour",
            ">= 0.9",
            Control(NONE, "<= 0.15"),
            gated=False,
        )


def _omitted(config: Config) -> Iterator[Claim]:
    several = config.complexity
    yield Claim(
        "bridge.omit.one-object",
        "The prompt [a, r2] that omits the first relation already gives the object:"
        " accuracy among objects, one object per subject.",
        "Figure 8, analogue",
        "behaviour",
        ">= 0.9",
        Control(NONE, "<= 0.2"),
    )
    yield Claim(
        "bridge.omit.probability",
        "The probability of the object after that prompt.",
        "Figure 8, analogue",
        "behaviour",
        ">= 0.5",
        Control(NONE, "<= 0.2"),
        gated=False,
    )
    yield Claim(
        "bridge.omit.several-objects",
        f"With {several} objects it can only name one of them: accuracy near"
        f" 1/{several}.",
        "Figure 8, analogue",
        "behaviour",
        near(1 / several, 0.05),
        Control(NONE, "<= 0.2"),
    )


def _timeline(config: Config) -> Iterator[Claim]:
    kappa = config.complexity
    yield Claim(
        "bridge.timeline.alignment-first",
        "Alignment comes before accuracy: steps from the nearest bridge being the true"
        f" one for 80 % to ood of 0.5, kappa = {kappa}, every seed (consistent with a"
        " cause; hop 2 is learned in between).",
        "Figure 7",
        "signal",
        "> 0",
        Control(f"share of records with 80 % and {NONE}", "<= 0"),
        every_seed=True,
    )
    yield Claim(
        "bridge.timeline.hop2-between",
        "The confound: steps from hop 2 at 80 % to ood of 0.5.",
        "Figure 7",
        "signal",
        "> 0",
        Control("steps from alignment to hop 2", "> 0"),
        gated=False,
    )

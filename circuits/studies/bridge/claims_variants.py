"""What is reported and does not decide: C10, C11, Section 8, the tied head."""

from collections.abc import Iterator
from dataclasses import replace

from circuits.claims import Claim, Control
from trained.bridge.config import Config

from .claims_embedding import NONE


def variants(config: Config) -> Iterator[Claim]:
    """The claims of whatever variants the configuration asks for."""
    if "tied" in config.variants:
        yield from _tied("one-object", "one object per subject")
        yield Claim(
            "bridge.tied.permuted",
            "Tied head, permuted identity: two-hop answers follow f2(s^-1(b)).",
            "ours",
            "causal",
            ">= 0.5",
            Control("the true object", "<= 0.15"),
            gated=False,
        )
    if "tied_several" in config.variants:
        yield from _tied("several-objects", f"{config.complexity} objects per subject")
    if "standard" in config.variants:
        yield from _standard(config)
    if "decay" in config.variants:
        yield from _decay(config)
    if "fixed" in config.variants:
        yield Claim(
            "bridge.fixed.accuracy",
            "Without position offsets a standard initialisation does not compose: ood,"
            " one object per subject.",
            "ours",
            "behaviour",
            "<= 0.1",
            Control("small initialisation, also without offsets", ">= 0.5"),
            gated=False,
        )
    if "random" in config.variants:
        yield Claim(
            "bridge.random.accuracy",
            f"Random maps instead of shifts, kappa = {config.complexity}: ood.",
            "ours",
            "behaviour",
            ">= 0.75",
            Control(NONE, "<= 0.15"),
            gated=False,
        )


def _tied(name: str, what: str) -> Iterator[Claim]:
    for kind, expected in (("accuracy", ">= 0.75"), ("objects", ">= 0.8")):
        quantity = "ood" if kind == "accuracy" else "ood_obj"
        yield Claim(
            f"bridge.tied.{name}.{kind}",
            f"Tied head, {what}: {quantity}. The tied head is itself a weak identity"
            " bridge, so its control is above chance.",
            "Figure 2",
            "behaviour",
            expected,
            Control(NONE, "> 0.1"),
            gated=False,
        )


def _standard(config: Config) -> Iterator[Claim]:
    std = Claim(
        "bridge.standard.accuracy",
        "Standard GPT (std 0.02) does well with one object per subject: ood.",
        "Figure 2",
        "behaviour",
        ">= 0.4",
        Control(NONE, "<= 0.15"),
        gated=False,
    )
    yield std
    yield replace(
        std,
        id="bridge.standard.objects",
        statement="Standard GPT (std 0.02), one object per subject: ood_obj.",
        expected=">= 0.9",
    )
    yield replace(
        std,
        id="bridge.standard.decline",
        statement="It declines faster: ood_obj of small minus standard (std 0.02),"
        f" kappa = {config.complexity}.",
        expected=">= 0.2",
        control=Control("one object per subject", "<= 0.1"),
    )
    yield replace(
        std,
        id="bridge.standard.large-gamma",
        statement=f"gamma = {config.standard_gamma:g}, one object per subject: ood"
        " (the paper: does well).",
        expected=">= 0.4",
    )


def _decay(config: Config) -> Iterator[Claim]:
    for decay in config.weight_decays:
        claim = Claim(
            f"bridge.decay.w{decay:g}.objects",
            f"Weight decay {decay:g} recovers two-hop queries at gamma ="
            f" {config.standard_gamma:g}: gain in ood_obj at equal steps.",
            "Section 5",
            "behaviour",
            ">= 0.2",
            Control("ood_obj without decay", "<= 0.8"),
            gated=False,
        )
        yield claim
        yield replace(
            claim,
            id=f"bridge.decay.w{decay:g}.accuracy",
            statement=f"Weight decay {decay:g}: gain in ood.",
            control=Control("ood without decay", "<= 0.5"),
        )
        yield replace(
            claim,
            id=f"bridge.decay.w{decay:g}.alignment",
            statement=f"Weight decay {decay:g}: gain in net cosine after one block.",
            expected="> 0",
            control=Control("net cosine without decay", "<= 0.8"),
        )

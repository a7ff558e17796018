"""What the paper says about the features of its FFN, as claims (eqs. 17 and 18)."""

from collections.abc import Iterator

from circuits.claims import Claim, Control
from trained.lego.action import Action, action
from trained.lego.config import Config

from .claims_theory import kinds

CONVERGES_QUICKLY = 100
"""Most pairs of an action and a value whose features converge at any preset's steps;
S5 has 600 and is only reported."""


def learned_features(config: Config) -> Iterator[Claim]:
    """Every claim about features."""
    simple, other = kinds(config)
    if not config.theory_groups:
        return
    for text in config.theory_groups:
        yield _signs(action(text).slug)
    if simple:
        yield from _simple(simple.slug)
    if simple and other:
        yield _equal(simple.slug, other.slug)
        texts = dict.fromkeys((*config.feature_groups, *config.theory_groups))
        for text in texts:
            if not action(text).is_simply_transitive:
                yield from _ratio(action(text), simple.slug)
    if config.feature_groups:
        yield _conserved(action(config.feature_groups[0]).slug)


def _signs(name: str) -> Claim:
    return Claim(
        f"lego.features.signs.{name.lower()}",
        f"{name}: right halves push a neuron up, wrong ones down: the least of the"
        " means of V(g), V(y), -V(g'), -V(y') in units of B.",
        "eqs. 17a-b, 18a-b",
        "theory",
        "> 0",
        Control("read with another class's actions", "< 0"),
        every_seed=True,
    )


def _simple(name: str) -> Iterator[Claim]:
    yield Claim(
        "lego.features.mixed",
        f"{name}: a right half cancels a wrong one: mean |V(g') + V(y)|,"
        " |V(g) + V(y')| in units of B.",
        "eq. 17c",
        "theory",
        "< 0.25",
        Control("both right: V(g) + V(y)", ">= 1"),
        paper=0.0,
    )
    yield Claim(
        "lego.features.single",
        f"{name}: one neuron serves each pair (g, y): share of the right logit that the"
        " strongest one gives.",
        "Theorem B.1",
        "theory",
        ">= 0.95",
        Control("before training", "<= 0.5"),
        paper=1.0,
        gated=False,
    )


def _equal(simple: str, other: str) -> Claim:
    return Claim(
        "lego.features.equal",
        f"{simple}: both halves are equally large: V(g) / V(y).",
        "Theorem B.1",
        "theory",
        "in [0.97, 1.03]",
        Control(other, ">= 1.1"),
        paper=1.0,
    )


def _ratio(act: Action, simple: str) -> Iterator[Claim]:
    name, quick = act.slug, act.n_actions * act.n_values <= CONVERGES_QUICKLY
    yield Claim(
        f"lego.features.ratio.{name.lower()}",
        f"{name}: V(g) / V(y) tends to C_alpha, which grows with the number of values:"
        " the ratio in units of C_alpha.",
        "Theorem C.1",
        "theory",
        "in [0.9, 1.1]",
        Control(f"{simple}'s V(g) / V(y) in the same units", "< 0.9"),
        paper=1.0,
        gated=quick,
    )
    yield Claim(
        f"lego.features.rising.{name.lower()}",
        f"{name}: the ratio rises towards it: its growth over the last three"
        " quarters of training.",
        "Theorem C.1",
        "theory",
        "> 0",
        Control(f"{simple}: no growth", "in [-0.05, 0.05]"),
        gated=quick,
    )


def _conserved(name: str) -> Claim:
    return Claim(
        "lego.features.conserved",
        f"{name}: sum of V(g) minus sum of V(y) is conserved in every neuron, which is"
        " why C_alpha is not 1: largest change.",
        "ours, behind Theorem C.1",
        "theory",
        "< 0.001",
        Control("trained with Adam", "> 0.01"),
        # An identity of gradient descent: it checks the training, not the paper.
        gated=False,
    )

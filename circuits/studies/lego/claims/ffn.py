"""FFN features of the theory's model (H5)."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from circuits.claims import UNTRAINED, Claim, Null
from circuits.conditions import Each, Mean, near
from trained.lego.action import action
from trained.lego.config import Config, first_of_kind

from .learn import later


def ffn(config: Config) -> Iterator[Claim]:
    """Claims about the weights of T's FFN."""
    theory = config.theory
    simple = first_of_kind(theory.groups, simply=True) or "C6"
    other = first_of_kind(theory.groups, simply=False) or "S5"
    yield later(
        "lego.ffn.copy",
        "T: the active sum of the copying weights grows with log d; others stay within"
        " 5 sigma_0.",
        "Appendix A, Lemma A.12",
        "signal",
        weight=2,
    )
    yield _shape(simple, other)
    yield _single(simple)
    yield later(
        "lego.ffn.order",
        "T: features are learned in the greedy order of their initial values: Spearman"
        " correlation > 0.",
        "Definition B.3",
        "signal",
        weight=2,
    )
    yield _equal(simple, other)
    for group in dict.fromkeys((*theory.feature_groups, other)):
        if not action(group).is_simply_transitive:
            yield _ratio(config, group, simple)


def _shape(simple: str, other: str) -> Claim:
    parts = (("V(g) + V(y)", "in [1.8, 2.2]", "matched"), ("mixed", "<= 0.1", "mixed"))
    return Claim(
        "lego.ffn.shape",
        "T: right halves of a neuron together give the clip (V(g) + V(y) = 2B), a right"
        " and a wrong one cancel (|sum| <= .1 B), in units of B. Doubly wrong halves"
        " and distinct neurons are not measured yet.",
        "Theorems B.1 A-C, C.1 A-B; eqs. 17, 18",
        "signal",
        conditions=tuple(
            Mean(f"{group}: {name}", expected, partial(_of, what, group))
            for group in (simple, other)
            for name, expected, what in parts
        ),
        nulls=(
            UNTRAINED,
            Null(
                "another class's fibers",
                measure=lambda lab: lab.matched(simple, shift=1),
            ),
        ),
        weight=3,
    )


def _of(what: str, group: str, lab: Any) -> list[float]:
    found: list[float] = getattr(lab, what)(group)
    return found


def _single(simple: str) -> Claim:
    return Claim(
        "lego.ffn.single",
        f"T, {simple}: one neuron serves each pair (g, y): share of the right logit"
        " that the strongest one gives. Whether it rises in d is not measured yet.",
        "Section 6.1.2",
        "signal",
        conditions=(Mean("share", ">= 0.9", lambda lab: lab.strongest(simple)),),
        nulls=(UNTRAINED,),
        weight=2,
        paper=1.0,
    )


def _equal(simple: str, other: str) -> Claim:
    return Claim(
        f"lego.ffn.ratio.{action(simple).slug.lower()}",
        f"T, {simple}: both halves are equally large: V(g) / V(y), of the means and"
        " neuron by neuron.",
        "Theorem B.1",
        "signal",
        conditions=(
            Mean("ratio", near(1.0, 0.03), lambda lab: lab.ratio(simple)),
            Mean("|ratio - 1| of a neuron", "<= 0.1", lambda lab: lab.uneven(simple)),
        ),
        nulls=(
            UNTRAINED,
            Null(other, measure=lambda lab: lab.ratio(other), bound=">= 1.1"),
        ),
        paper=1.0,
        revised="Step 8: `of a neuron` was added, with values (.015 to .04) in view,"
        " after initial weights had met the ratio of the means by symmetry",
    )


def _ratio(config: Config, group: str, simple: str) -> Claim:
    nulls = [
        UNTRAINED,
        Null(
            f"{simple}'s in the same units",
            measure=lambda lab: lab.relative_ratio(simple, group),
            bound="< 0.9",
        ),
    ]
    if group in config.theory.feature_groups[:1]:
        nulls.append(Null("Adam", measure=lambda lab: lab.adam_ratio(group)))
    return Claim(
        f"lego.ffn.ratio.{action(group).slug.lower()}",
        f"T, {group}: V(g) / V(y) tends to C_alpha, which grows with the number of"
        " values: the ratio in units of C_alpha.",
        "Theorem C.1 C",
        "signal",
        conditions=(
            Mean(
                "ratio / C_alpha",
                near(1.0, 0.1),
                lambda lab: lab.relative_ratio(group, group),
            ),
        ),
        preconditions=(
            Each("growing still", "<= 0.2", lambda lab: lab.ratio_growth(group)),
        ),
        nulls=tuple(nulls),
        paper=1.0,
        revised="Step 7: a ratio that still grows is not judged; set with S5's in view",
    )

"""Attention concentration is the mechanism (H3)."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from circuits.claims import UNTRAINED, Claim, Null
from circuits.conditions import Condition, Count, Each, Mean
from trained.lego.action import action
from trained.lego.config import Config, Standard, first_of_kind

from .learn import later

PAPER_RATE = 1e-4

STAGE = "attention"
"""Algorithm 1's, the same for both kinds of action."""


def concentration(config: Config) -> Iterator[Claim]:
    """Claims about attention; a run without the theory's models tests none of T's."""
    simple = first_of_kind(config.theory.groups, simply=True) or "C6"
    other = first_of_kind(config.theory.groups, simply=False) or "S5"
    yield from _grid()
    yield _phases(simple)
    yield from _fig2(config)
    yield from _experiment()
    yield _contrast(config.theory.attention.rule, simple, other)
    yield later(
        "lego.conc.contrast.joint",
        "E: S5 concentrates less than C6 at convergence: K(S5) / K(C6) < 1.",
        "Section 5",
        "signal",
        weight=2,
    )
    yield later(
        "lego.conc.cause",
        "E: scaling the learned scores of C so that K equals S's moves its length at"
        " least halfway to S's; times 1.25 both reach farther. T: exchanged Q.",
        "Theorem 1.2",
        "causal",
        weight=5,
    )


def _grid() -> Iterator[Claim]:
    yield later(
        "lego.conc.eps.d-grid",
        "T, C_n, L = 2: eps falls with d, slope in log-log < 0.",
        "eq. 8",
        "signal",
        weight=4,
    )
    yield later(
        "lego.conc.logd",
        "T, C_n: both diagonals of Q grow with log d, Delta falls in d, all other"
        " entries stay below a tenth of the diagonal.",
        "Section 6.2.1 Stage 2.3, Lemma D.45",
        "signal",
        weight=3,
    )


def _phases(simple: str) -> Claim:
    return Claim(
        "lego.conc.phases",
        f"T, {simple}, uncapped: Q43 leads Q44, then the lead shrinks. Whether it peaks"
        " before Q44 has half its end value is not recorded finely enough yet.",
        "Section 6.2.1",
        "signal",
        conditions=(
            Mean("peak lead of Q43", "> 0", lambda lab: lab.peak_lead(simple)),
            Mean("end / peak", "<= 0.5", lambda lab: lab.left_lead(simple)),
        ),
        nulls=(
            UNTRAINED,
            Null("only step 2 trained", on=lambda lab: lab.second_only()),
        ),
        weight=2,
    )


def _fig2(config: Config) -> Iterator[Claim]:
    """The bands of Figure 2, and what becomes of the steps that lose them."""
    groups, length = config.standard.groups, config.train_length
    names = " and ".join(groups)
    gate, reason = _gate(config.standard)
    chances = [action(group).guess for group in groups]
    blunt = "" if max(chances) < 0.6 else "1.5 times chance is what other steps reach"
    yield Claim(
        "lego.conc.fig2",
        f"E, {names}, L = {length}: the two targets are the largest entries of every"
        " query's row (mean of heads and sentences), and p + a is at least halfway from"
        " uniform to 1.",
        "Figure 2",
        "signal",
        conditions=tuple(
            condition
            for group in groups
            for condition in (
                Each(f"{group}: rows", ">= 1", partial(_experiments, "banded", group)),
                Mean(
                    f"{group}: p + a",
                    f">= {halfway(length):.3g}",
                    partial(_experiments, "mass", group),
                ),
            )
        ),
        nulls=(UNTRAINED,),
        weight=2,
        preconditions=(gate,),
        not_tested=reason,
    )
    yield Claim(
        "lego.conc.fig2.cause",
        f"E, {names}: with the diagonals of each head's folded Q43 and Q44 at the mean"
        " of their rows' other entries for a random half of X, steps at these variables"
        " fall to 1.5 times chance, the others stay.",
        "Figure 2",
        "causal",
        conditions=tuple(
            condition
            for group in groups
            for condition in (
                Mean(
                    f"{group}: steps at these",
                    f"<= {1.5 * action(group).guess:.3g}",
                    partial(_experiments, "levelled", group, there=True),
                ),
                Mean(
                    f"{group}: other steps",
                    ">= 0.9",
                    partial(_experiments, "levelled", group, there=False),
                ),
            )
        ),
        nulls=(
            UNTRAINED,
            Null(
                "as many and as large off-diagonal edits",
                measure=partial(
                    _experiments, "levelled", groups[0], there=True, elsewhere=True
                ),
                bound=">= 0.9",
            ),
        ),
        weight=2,
        preconditions=(gate,),
        not_tested=reason or blunt,
    )


def _gate(standard: Standard) -> tuple[Condition, str]:
    """The gate of E, and why it cannot be asked for: the paper offers one rate only."""
    through = Count(
        "seeds through the gate",
        ">= 1",
        lambda lab: lab.gate(standard.groups),
        least=2,
        of=3,
    )
    other = f"Adam's rate is {standard.rate}, the paper's {PAPER_RATE}"
    return through, other if standard.rate != PAPER_RATE else ""


def _experiments(what: str, group: str, lab: Any, **how: bool) -> list[float]:
    found: list[float] = getattr(lab, what)(lab.converged(group), **how)
    return found


def halfway(length: int) -> float:
    """Halfway to 1 from what uniform attention has on both targets.

    The query of answer l sees L + l + 1 clauses.

    >>> round(halfway(5), 2)
    0.63
    """
    uniform = sum(2 / (length + step + 1) for step in range(length)) / length
    return (1 + uniform) / 2


def _experiment() -> Iterator[Claim]:
    yield later(
        "lego.conc.dilution",
        "T and E: K fitted at L = 5 predicts eps at the longest L within 10 %; p and a"
        " are lower at 20 than at 10.",
        "Section 6.2.1, Section 7",
        "signal",
        weight=3,
    )
    yield later(
        "lego.conc.fig5",
        "E, permuted predicates: p + a changes < .02 and all@5 >= .95, where learned"
        " positions lose >= .2.",
        "Figure 5",
        "signal",
        weight=3,
    )
    yield later(
        "lego.conc.position",
        "E, L = 20: attention to the predicate falls more with position in S5, to the"
        " answer more in C6.",
        "Figures 6 and 7",
        "signal",
        weight=3,
    )


def _contrast(rule: float, simple: str, other: str) -> Claim:
    return Claim(
        "lego.conc.contrast.theory",
        f"T: {other} concentrates less than {simple}: K({other}) / K({simple}), each at"
        f" {rule} times its own loss floor, and after equally many steps.",
        "Section 5",
        "signal",
        conditions=(
            Mean(
                "at the floor",
                "< 1",
                lambda lab: lab.ratios(
                    lab.matched_sharpness(other), lab.matched_sharpness(simple)
                ),
            ),
            Mean(
                "equal steps",
                "< 1",
                lambda lab: lab.ratios(
                    *(lab.sharpness(lab.theory(g, STAGE)) for g in (other, simple))
                ),
            ),
        ),
        nulls=(
            UNTRAINED,
            Null(
                f"{simple} against {simple}, disjoint seeds",
                measure=lambda lab: lab.unpaired(lab.matched_sharpness(simple)),
                bound="in [0.8, 1.25]",
            ),
        ),
        weight=2,
    )

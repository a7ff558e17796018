"""What we add to the paper; never gated.

Most of it is about the folded model, whose FFN is frozen and whose attention is two
tables. `all` is the share of sentences whose greedy rollout is right throughout.
Thresholds were written after a prototype's results on seeds 0 to 2 were known; the
settings of this code were chosen on seeds 100 to 102.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from circuits.claims import UNTRAINED, Claim, Null
from circuits.conditions import Each, Mean
from trained.lego.action import action
from trained.lego.config import Config, first_of_kind

from .common import halfway
from .our_rounds import Own, our_rounds
from .our_variants import variants

BLIND = Null("uniform attention", on=lambda lab: lab.blind())

FAR = 16
"""L* over the training length that counts as far: 80 from 5."""


def ours(config: Config) -> Iterator[Claim]:
    """Every claim of ours."""
    for group in config.groups:
        yield from _learned(config, group)
        yield from _tables(config, group)
        yield from _edits(config, group)
        if config.lengths[-1] > config.train_length:
            yield from _law(config, group)
        if config.folded.masked_steps:
            yield _masked(group)
    yield from variants(config)
    yield from _compared(config)
    for group in config.extra_groups:
        yield _extra(config, group)
    yield from our_rounds(config)
    simple = first_of_kind(config.theory.groups, simply=True)
    other = first_of_kind(config.theory.groups, simply=False)
    if simple and other:
        yield _balance(simple, other)


def _learned(config: Config, group: str) -> Iterator[Claim]:
    name, length = action(group).slug, config.train_length
    yield Own(
        f"lego.ours.learned.{name.lower()}",
        f"{name}: chains of the training length {length} are solved (all).",
        kind="behaviour",
        conditions=(
            Each("all", ">= 0.99", lambda lab: lab.learned(lab.folded(group))),
        ),
        nulls=(BLIND, UNTRAINED),
    )
    if group == config.simple:
        far = min(FAR * length, config.lengths[-1])
        yield Own(
            f"lego.ours.length.{name.lower()}",
            f"{name}: far beyond the training length {length}: the largest tested"
            f" length up to which all >= {config.test.solved}.",
            kind="behaviour",
            conditions=(
                Each("L*", f">= {far}", lambda lab: lab.reach(lab.folded(group))),
            ),
            nulls=(BLIND, UNTRAINED),
        )


def _tables(config: Config, group: str) -> Iterator[Claim]:
    name = action(group).slug
    yield Own(
        f"lego.ours.mass.{name.lower()}",
        f"{name}: at length {config.train_length} attention is on predicate l + 1 and"
        " answer l (sum of both).",
        kind="signal",
        conditions=(
            Each(
                "mass",
                f">= {halfway(config.train_length):.3g}",
                lambda lab: lab.mass(lab.folded(group)),
            ),
        ),
        nulls=(BLIND, UNTRAINED),
        revised="Step 8: .95 held for one budget only; now Figure 2's bar",
    )
    yield Own(
        f"lego.ours.lookup.{name.lower()}",
        f"{name}: retrieval is by variable: diagonal minus off-diagonal mean of Q43 and"
        " Q44, the least.",
        kind="signal",
        conditions=(Each("excess", "> 3", lambda lab: lab.lookup(lab.folded(group))),),
        nulls=(
            UNTRAINED,
            Null(
                "columns shuffled, absolute",
                measure=lambda lab: lab.shuffled_lookup(lab.folded(group)),
                bound="<= 0.5",
            ),
        ),
    )


def _edits(config: Config, group: str) -> Iterator[Claim]:
    act, length, test = action(group), config.lengths[-1], config.test
    name, factor = act.slug, test.sharper
    yield Own(
        f"lego.ours.half.{name.lower()}",
        f"{name}: with the diagonals of Q43 and Q44 levelled for half of the variables,"
        " steps at these are at chance, the others stay right.",
        kind="causal",
        conditions=(
            Mean(
                "steps at these",
                f"<= {act.guess + 0.1:.3g}",
                lambda lab: lab.levelled(lab.folded(group), there=True),
            ),
            Mean(
                "other steps",
                ">= 0.99",
                lambda lab: lab.levelled(lab.folded(group), there=False),
            ),
        ),
        nulls=(
            UNTRAINED,
            Null(
                "as many and as large off-diagonal edits",
                measure=lambda lab: lab.levelled(
                    lab.folded(group), there=True, elsewhere=True
                ),
                bound=">= 0.9",
            ),
        ),
        revised="Step 8: Q44 is levelled too, and what was a control is a condition, so"
        " that an untrained model fails",
    )
    yield Own(
        f"lego.ours.sharper.{name.lower()}",
        f"{name}: scores times {factor} solve length {length} (all).",
        kind="causal",
        conditions=(
            Mean("all", ">= 0.99", lambda lab: lab.sharper(lab.folded(group), factor)),
        ),
        nulls=(
            UNTRAINED,
            Null(
                f"scores divided by {factor}",
                measure=lambda lab: lab.sharper(lab.folded(group), 1 / factor),
                bound="<= 0.1",
            ),
        ),
    )
    yield from _doses(config, group)


def _doses(config: Config, group: str) -> Iterator[Claim]:
    name, (least, *_, most) = action(group).slug, (*config.test.doses, 0.9)
    yield Own(
        f"lego.ours.dose.{name.lower()}",
        f"{name}: {least:g} of the attention spread elsewhere is harmless (per step);"
        " attention is set by hand, so this is about the FFN.",
        kind="behaviour",
        conditions=(
            Mean("step", ">= 0.99", lambda lab: lab.dosed(lab.folded(group), least)),
        ),
        nulls=(
            UNTRAINED,
            Null(
                f"{most:g} of it",
                measure=lambda lab: lab.dosed(lab.folded(group), most),
                bound="<= 0.6",
            ),
        ),
    )
    yield Own(
        f"lego.ours.leak.{name.lower()}",
        f"{name}: {config.test.leak:g} of the attention leaked onto other answers hurts"
        " more than onto predicates: difference at late steps; set by hand, so about"
        " the FFN.",
        kind="behaviour",
        conditions=(
            Mean("late", "> 0", lambda lab: lab.leak(lab.folded(group), late=True)),
        ),
        nulls=(replace(UNTRAINED, bound="in [-0.05, 0.05]"),),
        controls=(
            Mean(
                "early, where answers are few",
                "> 0",
                lambda lab: lab.leak(lab.folded(group), late=False),
            ),
        ),
    )


def _law(config: Config, group: str) -> Iterator[Claim]:
    name, length, first = action(group).slug, config.train_length, config.folded
    yield Own(
        f"lego.ours.dilution.{name.lower()}",
        f"{name}: eps = n / (n + K), K fitted at length {length}, predicts eps at"
        f" length {config.lengths[-1]}: relative error.",
        kind="signal",
        conditions=(
            Mean("error", "< 0.05", lambda lab: lab.law_error(lab.folded(group))),
        ),
        nulls=(
            Null(
                "scores growing with log length",
                measure=lambda lab: lab.law_error(lab.folded(group), growing=True),
            ),
        ),
    )
    yield Own(
        f"lego.ours.predicted.{name.lower()}",
        f"{name}: K at length {length} and the tolerated dose predict where all falls"
        f" through {config.test.solved}, within a factor 1.5: |log2 ratio| (one-sided"
        " beyond the tested lengths).",
        kind="signal",
        conditions=(
            Mean(
                "|log2 ratio|",
                "<= 0.585",
                lambda lab: lab.prediction_error(lab.folded(group), lab.folded(group)),
            ),
        ),
        nulls=(
            Null(
                f"K after {first.budgets[0]} steps",
                measure=lambda lab: lab.prediction_error(
                    lab.folded(group), lab.folded(group, first.budgets[0])
                ),
            ),
        ),
    )


def _masked(group: str) -> Claim:
    def sharper(mask: str) -> Callable[[Any], list[float]]:
        return lambda lab: lab.ratios(
            *(lab.sharpness(lab.folded(group, branch=b)) for b in (mask, "any"))
        )

    name = action(group).slug
    return Own(
        f"lego.ours.masked.{name.lower()}",
        f"{name}: trained only on steps without a distractor, attention gets sharper:"
        " K over that of any steps.",
        kind="signal",
        conditions=(Mean("K ratio", "> 1", sharper("without")),),
        nulls=(Null("only on steps with one", measure=sharper("with")),),
    )


def _compared(config: Config) -> Iterator[Claim]:
    simple, symmetric = config.simple, config.symmetric
    if not (simple and symmetric):
        return
    one, other = action(simple).slug, action(symmetric).slug
    yield Own(
        "lego.ours.concentration",
        f"{other} is less concentrated at equal training: K({other}) / K({one}).",
        kind="signal",
        conditions=(
            Each(
                "K ratio",
                "< 1",
                lambda lab: lab.ratios(
                    *(lab.sharpness(lab.folded(g)) for g in (symmetric, simple))
                ),
            ),
        ),
        nulls=(
            Null(
                f"{one} against its next seed",
                measure=lambda lab: lab.next_seed(lab.sharpness(lab.folded(simple))),
                bound="in [0.95, 1.05]",
            ),
        ),
        revised="Step 8: [.6, .95] was read off C6 and S5 at one budget",
    )
    yield _exchange(config.lengths[-1], simple, symmetric)


def _exchange(length: int, simple: str, symmetric: str) -> Claim:
    one, other = action(simple).slug, action(symmetric).slug
    return Own(
        "lego.ours.exchange",
        f"Length {length}: the FFN of {other} gains from the attention of"
        f" {one} (accuracy per step).",
        kind="causal",
        preconditions=(
            Each(
                f"{other} is not at its ceiling",
                "< 1",
                lambda lab: lab.far_step(lab.folded(symmetric)),
            ),
        ),
        conditions=(
            Mean(
                "gain",
                "> 0",
                lambda lab: lab.differences(
                    lab.far_step(lab.exchanged(symmetric, simple)),
                    lab.far_step(lab.folded(symmetric)),
                ),
            ),
        ),
        nulls=(UNTRAINED,),
        controls=(
            Mean(
                f"the FFN of {one} loses",
                "> 0",
                lambda lab: lab.differences(
                    lab.far_step(lab.folded(simple)),
                    lab.far_step(lab.exchanged(simple, symmetric)),
                ),
            ),
        ),
    )


def _extra(config: Config, group: str) -> Claim:
    name = action(group).slug
    return Own(
        f"lego.ours.extra.{name.lower()}",
        f"{name}: per-step accuracy at length {config.lengths[-1]}.",
        kind="behaviour",
        conditions=(
            Mean("step", ">= 0.99", lambda lab: lab.far_step(lab.folded(group))),
        ),
        nulls=(BLIND,),
    )


def _balance(simple: str, other: str) -> Claim:
    one, two = action(simple).slug, action(other).slug
    return Own(
        "lego.ours.theory.balance",
        f"T: {two} attends to its two targets less evenly: Delta({two}) / Delta({one})"
        " at the training length after equally many steps.",
        source="Sections 6.2.1 and 6.2.2, eq. 20",
        kind="signal",
        conditions=(
            Mean(
                "Delta ratio",
                ">= 3",
                lambda lab: lab.ratios(
                    *(lab.gap(lab.theory(g, "attention")) for g in (other, simple))
                ),
            ),
        ),
        nulls=(
            UNTRAINED,
            Null(
                f"{one} against its next seed",
                measure=lambda lab: lab.next_seed(
                    lab.gap(lab.theory(simple, "attention"))
                ),
            ),
        ),
        controls=(
            Mean(
                f"Delta({one}) itself",
                "<= 0.03",
                lambda lab: lab.gap(lab.theory(simple, "attention")),
            ),
        ),
    )

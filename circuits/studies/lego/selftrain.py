"""Does an attention that labels longer chains itself solve them (Figure 1b)?

Every round trains on what the round before, frozen, answers; true labels are only
compared with. More training alone sharpens attention too, so the rounds are judged
against as many further steps at the first length.
"""

import torch

from circuits.claims import Observed
from trained.lego.answers import rollout
from trained.lego.arms import (
    BASE,
    CORRUPT,
    JUMP,
    JUMP_ON,
    LONGER,
    SAME,
    jump_length,
    round_name,
)
from trained.lego.branches import put_tables
from trained.lego.folded import ByVariable

from .concentration import fitted
from .context import Context
from .length import all_by_length, solved
from .retrieval import uniform
from .specimen import Specimen, each

LABELLED = 32
"""Chains whose labels are compared with the truth."""


def observe(context: Context) -> dict[str, Observed]:
    """Rounds, their labels, and what they are judged against."""
    config = context.config
    if context.self_group is None:
        return {}
    last = context.self_trained(round_name(config.self_lengths[-1]))
    base, longer, same, corrupt = (
        context.self_trained(name) for name in (BASE, LONGER, SAME, CORRUPT)
    )
    first = context.self_trained(round_name(config.self_lengths[0]))
    found = {
        "lego.self.final": Observed.of(
            each(last, lambda s: farthest(context, s)),
            each(base, lambda s: farthest(context, s)),
        ),
        "lego.self.more-steps": Observed.of(
            _gain(context, last, longer), _gain(context, same, longer)
        ),
        "lego.self.sharpness": Observed.of(
            _sharper(context, last, longer), _sharper(context, same, longer)
        ),
        "lego.self.rounds": Observed.of(
            reach(context), [solved(context, s) / config.train_length for s in corrupt]
        ),
        "lego.self.corrupt": Observed.of(
            _sharper(context, corrupt, base), _sharper(context, first, base)
        ),
    }
    return found | _tables(context, base, last) | _labels(context, base, last)


def farthest(context: Context, specimen: Specimen) -> float:
    """`all` at the largest test length."""
    return all_by_length(context, specimen)[context.config.lengths[-1]]


def _gain(
    context: Context, treated: list[Specimen], other: list[Specimen]
) -> list[float]:
    return [
        farthest(context, a) - farthest(context, b)
        for a, b in zip(treated, other, strict=True)
    ]


def _sharper(
    context: Context, treated: list[Specimen], other: list[Specimen]
) -> list[float]:
    """K of one attention over K of another."""
    return [
        fitted(context, a) / fitted(context, b)
        for a, b in zip(treated, other, strict=True)
    ]


def reach(context: Context) -> list[float]:
    """The least over rounds of L* / the round's length, seed by seed.

    Rounds whose double length is not tested are left out, unless it is the first.
    """
    config = context.config
    lengths = [n for n in config.self_lengths if 2 * n <= config.lengths[-1]]
    by_round = [
        [solved(context, s) / n for s in context.self_trained(round_name(n))]
        for n in lengths or config.self_lengths[:1]
    ]
    return [min(seed) for seed in zip(*by_round, strict=True)]


@torch.no_grad()
def label_accuracy(specimen: Specimen, length: int) -> float:
    """Share of new chains that a model, asked to label them, answers right throughout.

    Right: every variable and every value, as both are learned from.
    """
    sentences = specimen.sentences(length, LABELLED)
    labelled = rollout(specimen.model, sentences, specimen.model.vocabulary)
    right = (labelled.values == sentences.values).all(1)
    right &= (labelled.variables == sentences.variables).all(1)
    return float(right.double().mean())


def _labels(
    context: Context, base: list[Specimen], last: list[Specimen]
) -> dict[str, Observed]:
    """What the rounds learned from: the labels of the round before."""
    config = context.config
    names = [BASE, *map(round_name, config.self_lengths[:-1])]
    by_round = [
        [label_accuracy(s, length) for s in context.self_trained(name)]
        for name, length in zip(names, config.self_lengths, strict=True)
    ]
    worst = [min(seed) for seed in zip(*by_round, strict=True)]
    jump = jump_length(config)
    if jump is None:
        blind = [label_accuracy(uniform(s), config.self_lengths[0]) for s in base]
        return {"lego.self.labels": Observed.of(worst, blind)}
    jumped = [label_accuracy(s, jump) for s in base]
    rounds = each(last, lambda s: farthest(context, s))
    found = {"lego.self.labels": Observed.of(worst, jumped)}
    for branch, claim in ((JUMP, "jump"), (JUMP_ON, "jump.steps")):
        specimens = context.self_trained(branch)
        found[f"lego.self.{claim}"] = Observed.of(
            each(specimens, lambda s: farthest(context, s)), rounds
        )
    return found


def _tables(
    context: Context, base: list[Specimen], last: list[Specimen]
) -> dict[str, Observed]:
    """The last round's Q43 alone, and its Q44 alone, put into the first model."""
    found = {
        name: [
            farthest(context, _with_table(a, b, name))
            for a, b in zip(base, last, strict=True)
        ]
        for name in ("Q43", "Q44")
    }
    return {"lego.self.tables": Observed.of(found["Q43"], found["Q44"])}


def _with_table(specimen: Specimen, donor: Specimen, name: str) -> Specimen:
    tables = specimen.tables
    edited = specimen.attending(ByVariable(*tables.Q43.shape[:2]))
    put_tables(edited.folded, {"Q43": tables.Q43, "Q44": tables.Q44})
    put_tables(edited.folded, {name: getattr(donor.tables, name)})
    return edited

"""D. The nuclear-norm account: the program, its symmetry, and what descent finds."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from circuits.claims import UNTRAINED, Claim, Null
from circuits.conditions import Each, Mean, Measure
from trained.bridge.config import BOTH, Config, Descent, Task, direction

from .quantities import difference, largest, least

GROWING = (10, 100, 1000, 10_000)
"""Sizes at which the coefficient p of Assumption 4 is read."""


def by_size(
    config: Config, quantity: Callable[[Any], float], **options: Any
) -> Measure:
    """A quantity of the solved program, one value per N; the run draws one N more."""
    sizes = config.theory.sizes
    return lambda lab: [
        quantity(lab.optimum(n, **options)) for n in (*sizes, lab.drawn_size)
    ]


def account(config: Config) -> Iterator[Claim]:
    """Headline D."""
    yield _theorem1(config)
    yield _theorem2(config)
    yield _symmetric(config)
    yield _assumptions()
    yield _direction(config)


def _theorem1(config: Config) -> Claim:
    return Claim(
        "bridge.theory.thm1",
        "With identity every unseen two-hop query has a positive margin at the optimum"
        " of the nuclear-norm program (least margin over training margin; one value per"
        " N).",
        "Theorem 1, Equation 2",
        "theory",
        conditions=(
            Each(
                "least margin",
                "> 0.001",
                by_size(config, lambda o: o.least_margin),
                universal=True,
            ),
        ),
        preconditions=(
            Each("duality gap", "<= 1e-05", by_size(config, lambda o: o.relative_gap)),
        ),
        nulls=(
            Null(
                "the Frobenius norm instead",
                measure=by_size(config, lambda o: o.least_margin, norm="frobenius"),
                bound="<= 1e-06",
            ),
            Null(
                "no identity task",
                measure=by_size(config, lambda o: o.least_margin, identity=False),
            ),
        ),
        weight=5,
        revised="0.001 instead of 0.5 (rubric, Step 7: the theorem says positive),"
        " after 0.67 to 0.73 had been seen",
    )


def _theorem2(config: Config) -> Claim:
    own = config.theory

    def sizes(lab: Any) -> list[int]:
        every = (*own.sizes, lab.drawn_size)
        return [n for n in every if n <= own.largest_tilted]

    return Claim(
        "bridge.theory.thm2",
        "Without identity every margin is negative, at any optimum: the largest margin"
        f" of the optimum and of {own.tilts} more that random tilts"
        f" ({own.tilt:g} <G, Z>) choose (one value per N up to"
        f" {own.largest_tilted}).",
        "Theorem 2",
        "theory",
        conditions=(
            Each(
                "largest margin, tilted",
                "< 0",
                lambda lab: [lab.tilted(n).largest_margin for n in sizes(lab)],
                universal=True,
            ),
            Each(
                "largest margin",
                "< 0",
                by_size(config, lambda o: o.largest_margin, identity=False),
                universal=True,
            ),
        ),
        preconditions=(
            Each(
                "relative loss of the objective, tilted",
                "<= 0.001",
                lambda lab: [lab.tilted(n).loss for n in sizes(lab)],
            ),
        ),
        nulls=(
            Null(
                "with identity",
                measure=by_size(config, lambda o: o.largest_margin),
            ),
        ),
        weight=4,
    )


def _symmetric(config: Config) -> Claim:
    distances = [
        by_size(config, lambda o: o.above_symmetric, identity=x) for x in (True, False)
    ]

    def sizes(lab: Any) -> tuple[int, ...]:
        return (*config.theory.sizes, lab.drawn_size)

    return Claim(
        "bridge.theory.symmetric",
        "A permutation-symmetric optimum exists, with a closed nuclear norm: its"
        " objective against that of the full program (relative distance, larger of both"
        " arms), and the formula against singular values on random symmetric Z (one"
        " value per N).",
        "Lemmas 1, 2 and 4",
        "theory",
        conditions=(
            Each("objective", "<= 0.0001", largest(distances), universal=True),
            Each(
                "nuclear norm",
                "<= 1e-09",
                lambda lab: [lab.formula_error(n) for n in sizes(lab)],
                universal=True,
            ),
        ),
        nulls=(
            Null(
                "the formula with Q left out",
                measure=lambda lab: [
                    lab.formula_error(n, constant=False) for n in sizes(lab)
                ],
            ),
        ),
        weight=2,
    )


def _assumptions() -> Claim:
    def coefficient(lab: Any, identity: bool = True) -> list[float]:
        found = [lab.symmetric(n, identity=identity) for n in GROWING]
        return [float(s.diagonal[0, 1]) / s.train_margin for s in found]

    def slowing(lab: Any) -> list[float]:
        """The last decade's drop over the one before."""
        *_, before, middle, last = coefficient(lab)
        return [(middle - last) / (before - middle)]

    return Claim(
        "bridge.theory.assumptions",
        "KKT holds (relative gap to the dual) and the coefficient p of the subjects'"
        f" object block stays positive as N grows, N in {GROWING}; its last drop is"
        " smaller than the one before. (Assumption 2 and Propositions 2 to 4 lost their"
        " formulas in the text: not judged.)",
        "Assumptions 3 and 4",
        "theory",
        conditions=(
            Each("coefficient p", "> 1e-06", coefficient, universal=True),
            Each("drop of the last decade over the one before", "< 1", slowing),
            Each(
                "relative gap",
                "<= 1e-05",
                lambda lab: [lab.symmetric(n).relative_gap for n in GROWING],
            ),
        ),
        nulls=(Null("no identity task", measure=lambda lab: coefficient(lab, False)),),
        weight=2,
    )


def _cosine(
    task: Task, target: Task, descent: Descent, step: int | None = None
) -> Measure:
    """Cosine of an arm's Z with the optimum for a task, seed by seed."""
    arm, identity = direction(task, descent), target == "identity"
    return lambda lab: lab.cosines(arm, identity=identity, step=step)


def _own(descent: Descent) -> list[Measure]:
    """With the arm's own optimum, both arms."""
    return [_cosine(task, task, descent) for task in BOTH]


def _frobenius(lab: Any) -> list[float]:
    """With the optimum of the Frobenius norm, plain descent with identity."""
    return list(lab.cosines(direction(), identity=True, norm="frobenius"))


def _rises(steps: Sequence[int]) -> list[Measure]:
    """How much the own cosine of plain descent rises between saved steps, both arms."""
    found = []
    for task in BOTH:
        course = [_cosine(task, task, "plain", step) for step in steps]
        pairs = zip(course[1:], course, strict=False)
        found += [difference(later, before) for later, before in pairs]
    return found


def _direction(config: Config) -> Claim:
    one, other = BOTH
    crossed = [
        difference(_cosine(one, one, "plain"), _cosine(one, other, "plain")),
        difference(_cosine(other, other, "plain"), _cosine(other, one, "plain")),
    ]
    course = config.direction.course
    table = replace(direction(descent="scaled"), factors="one")

    def led(lab: Any) -> list[float]:
        """Of the unfactorised model, own minus Frobenius."""
        frobenius = lab.cosines(table, identity=True, norm="frobenius")
        own = lab.cosines(table, identity=True)
        return [a - b for a, b in zip(own, frobenius, strict=True)]

    return Claim(
        "bridge.bias.direction",
        "Gradient descent without decay finds the direction of the nuclear-norm optimum"
        f" (row-centred cosine of Z, N = {config.direction.n_subjects}; the lesser of"
        " both arms): gradients scaled to norm 1 come close to the arm's own optimum,"
        " plain descent is nearer to it than to the other arm's and approaches it over"
        f" steps {', '.join(map(str, course))}; with identity it is nearer than to the"
        " Frobenius optimum (without, the two are one).",
        "Sections 4.2 and 4.3, Equation 2",
        "signal",
        conditions=(
            Mean("scaled: own", ">= 0.9", least(_own("scaled"))),
            Mean("plain: own minus the other arm's", ">= 0.3", least(crossed)),
            Each("plain: least rise", "> 0", least(_rises(course))),
            Each(
                "plain, identity: own minus Frobenius",
                "> 0",
                difference(_cosine(one, one, "plain"), _frobenius),
            ),
        ),
        nulls=(
            Null(
                "unfactorised, identity: own minus Frobenius", measure=led, bound="< 0"
            ),
            UNTRAINED,
        ),
        weight=4,
        revised="0.9 was set after 0.93 to 0.99 had been seen (rubric); Frobenius is"
        " compared in plain descent, as the rubric says, after scaled was tried",
    )

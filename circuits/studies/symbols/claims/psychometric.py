"""H3, the psychometric tests of Figure 3: own arms, off in the quick preset."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from circuits.claims import UNTRAINED, Claim, Null
from circuits.conditions import Mean, Measure
from trained.symbols.config import Config
from trained.symbols.setting import PSYCHOMETRIC, psychometric
from trained.symbols.tasks import task

from .measures import LATER, minus, scores

ERRORS = 4
"""Standard errors below chance that count."""
CHANCE = {"match_to_sample": 0.5, "distribution_of_3": 0.75}
"""Of guessing; of Raven's matrices: the best fixed position."""
BLIND = {"match_to_sample": 0.5, "distribution_of_3": 0.5}
"""The least error without the first row: two options remain."""
FIRST_ROWS = {"match_to_sample": 3, "distribution_of_3": 3, "raven": 6}
"""Symbols of the row that is redrawn; Raven's second row would do for the first."""
SWITCH = f"off here: --set psychometric.n=256,2048; {LATER}"


def claims(config: Config) -> Iterator[Claim]:
    """One claim for each test."""
    for name in PSYCHOMETRIC:
        yield _test(config, name) if config.psychometric.n else _open(name)


def _open(name: str) -> Claim:
    return Claim(
        f"symbols.psychometric.{name}",
        f"{name}: error on unseen symbols below chance, and falling with n.",
        "Figure 3, Appendix A, Theorem 1.1",
        "behaviour",
        not_tested=SWITCH,
    )


def _beyond(name: str, error: Measure, *, blind: bool = False) -> Measure:
    """An error minus that of guessing."""

    def measured(lab: Any) -> list[float]:
        found = error(lab)
        if name in CHANCE:
            chance = (BLIND if blind else CHANCE)[name]
            return [value - chance for value in found]
        config = lab.config
        largest = psychometric(config, name, config.psychometric.n[-1])
        fixed = lab.over(largest, lambda s: s.fixed_position_error())
        return [a - b for a, b in zip(found, fixed, strict=False)]

    return measured


def _test(config: Config, name: str) -> Claim:
    own = config.psychometric
    few, many = (psychometric(config, name, n) for n in own.n)
    margin = ERRORS * (0.25 / own.n_test) ** 0.5
    error = "test_error"

    def redrawn(lab: Any) -> list[float]:
        places = FIRST_ROWS[name]
        found: list[float] = lab.over(many, lambda s: s.redrawn_error(places))
        return found

    nulls = [
        Null(
            "shuffled labels",
            measure=_beyond(name, lambda lab: lab.shuffled().scores(many, error)),
        ),
        Null(
            "first rows of another string at test",
            measure=_beyond(name, redrawn, blind=True),
        ),
        UNTRAINED,
    ]
    if task(name).kind == "real":
        mlp = replace(many, model="mlp", identity="none", depth=3)
        nulls.insert(0, Null("MLP", measure=_beyond(name, scores(mlp, error))))
    scalars = "+".join(f"{scalar}I" for scalar in PSYCHOMETRIC[name])
    return Claim(
        f"symbols.psychometric.{name}",
        f"{name} with {scalars}: test error minus chance at n = {many.n}, below by"
        f" {ERRORS} standard errors, and lower than at n = {few.n}; d ="
        f" {own.d_model}, {own.depth} layers, {own.n_heads} heads of {own.d_head},"
        f" {own.steps} steps, rates {own.lrs}, multiplier {own.multiplier:g}.",
        "Figure 3, Appendix A, Theorem 1.1",
        "behaviour",
        (
            Mean(
                f"error minus chance, n = {many.n}",
                f"<= {-margin:.3g}",
                _beyond(name, scores(many, error)),
            ),
            Mean(
                f"error at n = {many.n} minus n = {few.n}",
                "< 0",
                minus(scores(many, error), scores(few, error)),
            ),
        ),
        nulls=tuple(nulls),
    )

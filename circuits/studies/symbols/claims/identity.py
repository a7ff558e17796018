"""H4: W_K W_Q^T + aI cuts the data need."""

from collections.abc import Iterator
from math import log10
from typing import Any

from circuits.claims import UNTRAINED, Claim, Null
from circuits.conditions import Each, Mean, near
from trained.symbols.config import Config
from trained.symbols.setting import relation

from .measures import after, error, given, leaf_or_ours, no_change, over
from .vanilla import FITS, other_task

LEVEL, SPREAD = 0.5, 20
"""The MSE at which the paper's curves are compared, and how many times more strings
vanilla must have been given for a tenfold need to show."""


def claims(config: Config) -> Iterator[Claim]:
    """The ratio of data needs, and its cause; the other tasks are open."""
    yield from leaf_or_ours(_ratio(config), "ratio", other_task(config))
    yield Claim(
        "symbols.identity.tasks",
        "+aI generalises on aba/abb with n = 64, both scalars on majority; bI alone, an"
        " RNN and an LSTM do not, a mimetic start does.",
        "Figures 21 and 22",
        "behaviour",
        weight=3,
        not_tested="not measured yet",
    )
    yield _cause(config)


def _ratio(config: Config) -> Claim:
    nulls = [UNTRAINED]
    if "rotated" in config.variants:
        orthogonal = Null(
            "aQ, Q random orthogonal",
            measure=lambda lab: lab.data_ratio("orthogonal"),
            bound="<= 3",
        )
        nulls = [orthogonal, UNTRAINED]
    return Claim(
        "symbols.identity.ratio",
        "Data efficiency: how many times more strings vanilla needs for a test MSE of"
        f" {config.level:g}, {config.task}, multiplier {config.multiplier:g};"
        " log-linear between the measured n, a lower bound where vanilla never gets"
        " there.",
        "Observation 1.2, Section 4.3, Figures 1c and 21",
        "behaviour",
        (
            Each("ratio, every seed", ">= 5", lambda lab: lab.data_ratio()),
            Mean(
                "log10 of the ratio (geometric mean)",
                ">= 1",
                lambda lab: logarithms(lab.data_ratio()),
            ),
        ),
        nulls=tuple(nulls),
        preconditions=(FITS,),
        weight=5,
        paper=20.0,
        not_tested=_unreadable(config),
        revised="the control aQ shares vanilla's initial weights (Step 5, a late review"
        " of claims) and is trained at every n of +aI (Step 8)",
    )


def _unreadable(config: Config) -> str:
    """Why a ratio of data needs cannot be read off this run, if so."""
    if config.level != LEVEL:
        return f"no paper value at level = {config.level:g}; the curves' is {LEVEL:g}"
    if config.n[-1] < SPREAD * config.identity_n[0]:
        return f"needs n up to {SPREAD} times the least of +aI, {config.identity_n[0]}"
    return ""


def logarithms(ratios: list[float]) -> list[float]:
    """log10 of each; of 0, minus infinity."""
    return [log10(ratio) if ratio > 0 else -float("inf") for ratio in ratios]


def _cause(config: Config) -> Claim:
    modified = relation(config, config.compared_n, "a")
    # Three standard errors of an error of one half.
    chance = near(0.5, 3 * (0.25 / config.training.n_test) ** 0.5)
    claim = Claim(
        "symbols.identity.cause",
        "The first layer's a carries the comparison: sign error of +aI, mean over the"
        f" labels, with it taken off, n = {config.compared_n}, multiplier"
        f" {config.multiplier:g}.",
        "Section 4.3; the edit is ours",
        "causal",
        (
            Mean(
                "a = 0",
                chance,
                after(modified, lambda s: s.without("a", 0).balanced_error()),
            ),
            Mean(
                "what it adds to the scores at its mean over strings",
                chance,
                after(modified, lambda s: s.averaged_error()),
            ),
        ),
        nulls=(UNTRAINED,),
        controls=(
            Mean(
                "rise by taking aQ off, Q random orthogonal, minus half that by aI",
                "<= 0",
                after(modified, rotated_excess, no_change),
            ),
        ),
        weight=3,
        not_tested="" if config.model.depth >= 2 else "needs a second layer",
        revised="the mean ablation, which gave .42 to .48 on seeds 0-2, was left out of"
        " what counts (Step 5) and is in again as the rubric asks (Step 7); the error"
        " is balanced over labels (Step 8), since a planted mechanism then answers all"
        " strings alike and how the labels were drawn decided",
    )
    return given(Each("not edited", "<= 0.05", over(modified, error)))(claim)


def rotated_excess(specimen: Any) -> float:
    """The harm of taking off a rotation of a's size, less half that of taking a off."""
    intact = specimen.error()
    half = (specimen.without("a", 0).error() - intact) / 2
    return float(specimen.rotated_error() - intact - half)

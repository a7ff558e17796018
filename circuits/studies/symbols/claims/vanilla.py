"""H3: trained transformers generalise to unseen symbols, with much data."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from circuits.claims import UNTRAINED, Claim, Null
from circuits.conditions import Condition, Each, Mean
from trained.symbols.checks import sized
from trained.symbols.config import Config, Scaled
from trained.symbols.setting import (
    FEW,
    MANY,
    Setting,
    head_only,
    perceptron,
    relation,
)

from .curves import LAST_LAYER, around, value
from .measures import (
    GPU,
    LATER,
    absent,
    at_both_steps,
    last,
    leaf_or_ours,
    minus,
    scores,
    unlike_paper,
)

# A guard against networks that have not learned their strings, not a result: what is
# judged lies at .5 and above, 50 times this bound.
FITS = Each(
    "train MSE of vanilla and +aI, largest over n",
    "<= 0.01",
    lambda lab: lab.worst_relation_fit(),
)
CURVE_TASKS = ("aba_abb", "figure1")
"""The tasks of the paper's curves: Figure 21, and the programs of Figure 1."""


def claims(config: Config) -> Iterator[Claim]:
    """The curve, harder tasks, and frozen weights."""
    yield from leaf_or_ours(_curve(config), "vanilla", other_task(config))
    yield _templates(config)
    yield _regular(config)
    yield from _last_layer(config)


def other_task(config: Config) -> str:
    """Why the paper's curve cannot be compared, if so."""
    if config.task in CURVE_TASKS:
        return unlike_paper(config)
    return f"no paper value for {config.task}; --set task={CURVE_TASKS[0]}"


def _curve_conditions(config: Config) -> list[Condition]:
    """At the paper's size its numbers, else the rubric's bounds for a smaller one."""
    known = [(n, value(config.task, "none", n)) for n in config.n]
    if config.model.is_papers:
        return [
            Mean(f"n = {n}", around(number), scores(relation(config, n)))
            for n, number in known
            if number is not None
        ]
    few, many = relation(config, FEW), relation(config, MANY)
    return [
        *at_both_steps(f"n = {MANY}", "<= 0.6", many),
        *at_both_steps(f"n = {FEW}", ">= 0.75", few),
    ]


def _curve(config: Config) -> Claim:
    many = relation(config, MANY)
    mlp = perceptron(config, config.task, MANY)
    nulls = [
        Null(f"MLP at n = {MANY}", measure=last(mlp), bound=">= 0.75"),
        Null(
            f"shuffled labels, n = {MANY}",
            measure=lambda lab: lab.shuffled().scores(many),
            bound=">= 0.75",
        ),
        UNTRAINED,
    ]
    needs = (relation(config, FEW), many, mlp)
    size = "the paper's size" if config.model.is_papers else "a smaller network"
    return Claim(
        "symbols.vanilla.curve",
        "A vanilla transformer generalises to unseen symbols with enough data, and only"
        f" then: test MSE, {config.task}, {size}, rates {config.training.lrs}, at most"
        f" {config.training.epochs} epochs; the step is the best on validation, whose"
        " symbols are unseen too, and the last where it says so.",
        "Theorem 1.1, Figures 1c and 21",
        "behaviour",
        tuple(_curve_conditions(config)),
        nulls=tuple(nulls),
        preconditions=(FITS,),
        weight=4,
        paper=value(config.task, "none", MANY),
        not_tested=absent(config, needs, f"needs n = {FEW} and n = {MANY}"),
        revised="the rubric set the bounds of the smaller network with .88 and .19 of"
        " one quick seed (101) in view; a network fits at a train MSE of .01, not .001"
        " (Step 12: it stops by the loss of a batch, which on fresh seeds missed .001"
        " on all strings; a hundredth of a constant's MSE still excludes that vanilla"
        " fails for lack of training, and decides only whether the claim is tested)",
    )


def _pair(config: Config, harder: str, easier: str) -> tuple[Setting, Setting]:
    """Vanilla on two tasks, written `majority-4@2048`."""
    (first, n), (second, _) = sized(harder), sized(easier)
    return relation(config, n, name=first), relation(config, n, name=second)


READINGS: dict[Scaled, str] = {
    "weights": "all weights of the blocks",
    "scores": "the attention's scores",
}
LAST_N = 4096
TWICE = "the same task twice, other seeds: |difference|"


def _apart(setting: Setting) -> Null:
    """One task, each seed against the next."""

    def measured(lab: Any) -> list[float]:
        found: list[float] = lab.scores(setting)
        return [abs(a - b) for a, b in zip(found, [*found[1:], found[0]], strict=True)]

    return Null(f"{TWICE}, {setting.task}", measure=measured, bound="<= 0.2")


def _templates(config: Config) -> Claim:
    tasks = _pair(config, "majority-4@2048", "aba_abb@2048")
    templates = _pair(config, "random-10-5-2-0@2048", "random-2-5-2-0@2048")
    return Claim(
        "symbols.tasks.difficulty.templates",
        "Harder tasks need more data: test MSE at n = 2048, majority-4 minus aba/abb,"
        " and 10 minus 2 random templates.",
        "Figures 16-20, Appendix B.2",
        "behaviour",
        tuple(
            Mean(f"{a.task} minus {b.task}", ">= 0.4", minus(scores(a), scores(b)))
            for a, b in (tasks, templates)
        ),
        nulls=(_apart(tasks[1]), UNTRAINED),
        paper=0.84,
        not_tested=absent(config, (*tasks, *templates), GPU),
    )


def _regular(config: Config) -> Claim:
    none, two = _pair(config, "random-2-5-2-0@512", "random-2-5-2-2@512")
    return Claim(
        "symbols.tasks.difficulty.regular",
        "Regular tokens make a task easier: test MSE at n = 512, two random templates"
        " of length 5 (each seed draws its own) with 0 minus with 2 regular tokens.",
        "Figures 16-20, Appendix B.2",
        "behaviour",
        (Mean("0 minus 2 regular tokens", ">= 0.3", minus(scores(none), scores(two))),),
        nulls=(_apart(none), UNTRAINED),
        paper=0.6,
        not_tested=unlike_paper(config) or absent(config, (none, two)),
    )


def _last_layer(config: Config) -> Iterator[Claim]:
    """The leaf, and the other reading of what is scaled as ours.

    The authors' code scales the scores: their inverse temperature, the theory's beta.
    """
    for scaled, reading in READINGS.items():
        claim = Claim(
            "symbols.lastlayer.trained",
            "Training the readout only generalises if what is frozen is large"
            f" ({reading} scaled): test MSE at n = {LAST_N}, x64 < x8 < x1, gaps of .1;"
            f" rate {config.last_layer.lr:g}.",
            "Section 4.1, Appendix B",
            "behaviour",
            weight=2,
            paper=LAST_LAYER[64.0][LAST_N],
            not_tested=f"needs last_layer.n = {LAST_N}; {LATER}",
            revised="what is scaled is not in the text we have. The authors' code"
            " (eboix/relational-reasoning, models.py) has one factor of the kind,"
            " attn_mult, on the attention's scores; that this figure uses it is our"
            " inference, its notebook was not found. The same reading had been chosen"
            " before by test error (Step 12: of four tried by ridge regression on seeds"
            " 100 and 101, scaled scores gave 1.04, .71, .46 and all weights 1.04, .66,"
            " .64), so it was not chosen blind; the other is shown beside",
        )
        own = config.last_layer
        if own.n == LAST_N and own.scales == tuple(LAST_LAYER):
            claim = _gaps(claim, *(head_only(config, s, scaled) for s in own.scales))
        if scaled == "scores":
            yield claim
        elif not claim.not_tested:
            name = f"symbols.ours.lastlayer.{scaled}"
            yield replace(claim, id=name, origin="ours", weight=1)


def _gaps(claim: Claim, one: Setting, eight: Setting, most: Setting) -> Claim:
    twin = minus(scores(eight), lambda lab: lab.shuffled().scores(most))
    return replace(
        claim,
        conditions=(
            Mean("x8 minus x64", ">= 0.1", minus(scores(eight), scores(most))),
            Mean("x1 minus x8", ">= 0.1", minus(scores(one), scores(eight))),
        ),
        nulls=(Null("shuffled labels at x64", measure=twin), UNTRAINED),
        not_tested="",
    )

"""H4: W_K W_Q^T + aI cuts the data need."""

from collections.abc import Iterator
from math import log10

from circuits.claims import UNTRAINED, Claim, Null
from circuits.conditions import Condition, Each, Mean, Measure, near
from trained.symbols.config import Config
from trained.symbols.setting import (
    FEW,
    Identity,
    mimetic,
    perceptron,
    relation,
)

from .curves import value
from .measures import (
    GPU,
    absent,
    after,
    at_both_steps,
    error,
    given,
    leaf_or_ours,
    over,
    scores,
    shuffled,
    turned_excess,
    unlike_paper,
)
from .vanilla import FITS, other_task

LEVEL, SPREAD = 0.5, 20
"""The MSE at which the paper's curves are compared, and how many times more strings
vanilla must have been given for a tenfold need to show."""
CONTROLS: dict[Identity, str] = {
    "aQ": "aQ, Q random orthogonal",
    "a_scores": "a scalar on W_K W_Q^T",
}


def claims(config: Config) -> Iterator[Claim]:
    """The ratio of data needs, other tasks, and its cause."""
    yield from leaf_or_ours(_ratio(config), "ratio", other_task(config))
    yield _aba(config)
    yield _majority(config, 4, 512, 0.3)
    yield _majority(config, 6, 2048, 0.35)
    yield _cause(config)


def _ratio(config: Config) -> Claim:
    controls = tuple(
        Null(name, measure=_ratio_of(identity), bound="<= 3")
        for identity, name in CONTROLS.items()
    )
    return Claim(
        "symbols.identity.ratio",
        "Data efficiency: how many times more strings vanilla needs for a test MSE of"
        f" {config.level:g}, {config.task}, multiplier {config.multiplier:g}, n from"
        f" {config.identity_n[0]} to {config.n[-1]}; log-linear between the measured n,"
        " a lower bound where vanilla never gets there.",
        "Observation 1.2, Section 4.3, Figures 1c and 21",
        "behaviour",
        (
            Each("ratio, every seed", ">= 5", lambda lab: lab.data_ratio()),
            *(
                Mean(
                    f"log10 of the ratio (geometric mean){where}",
                    ">= 1",
                    _logarithms_at(final),
                )
                for where, final in (("", False), (", last step", True))
            ),
        ),
        nulls=(
            *controls,
            UNTRAINED,
            Null("shuffled labels", measure=lambda lab: lab.shuffled_ratio()),
        ),
        preconditions=(FITS,),
        weight=5,
        paper=20.0,
        not_tested=_unreadable(config),
        revised="the control aQ shares vanilla's initial weights (Step 5, a late review"
        " of claims) and is trained at every n of +aI (Step 8)",
    )


def _logarithms_at(final: bool) -> Measure:
    return lambda lab: logarithms(lab.data_ratio(final=final))


def _ratio_of(identity: Identity) -> Measure:
    return lambda lab: lab.data_ratio(identity)


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


def _aba(config: Config) -> Claim:
    modified, alone = (relation(config, FEW, i, "aba_abb") for i in ("a", "b"))
    bound = 0.2 if config.model.is_papers else 0.45
    conditions: list[Condition] = [
        *at_both_steps(f"+aI, n = {FEW}", f"<= {bound:g}", modified),
        *at_both_steps(f"bI alone, n = {FEW}", ">= 0.8", alone),
    ]
    if "networks" in config.variants:
        cells = [perceptron(config, "aba_abb", FEW, c) for c in ("rnn", "lstm")]
        conditions += [m for c in cells for m in at_both_steps(c.model, ">= 0.9", c)]
        start = "mimetic start, same/different"
        conditions += at_both_steps(start, "<= 0.4", mimetic(config))
    others = ", nor do an RNN and an LSTM; a mimetic start does"
    if "networks" not in config.variants:
        others = " (an RNN, an LSTM and a mimetic start: --preset paper)"
    vanilla = relation(config, FEW, name="aba_abb")
    return Claim(
        "symbols.identity.tasks.aba",
        f"+aI generalises on aba/abb with n = {FEW}, bI alone does not{others}: test"
        f" MSE, multiplier {config.multiplier:g}.",
        "Figures 21 and 22",
        "behaviour",
        tuple(conditions),
        nulls=(
            Null(f"vanilla, n = {FEW}", measure=scores(vanilla)),
            UNTRAINED,
            shuffled(scores(modified)),
        ),
        paper=value("aba_abb", "a", FEW),
        not_tested=unlike_paper(config) or absent(config, (modified, alone, vanilla)),
    )


def _majority(config: Config, k: int, n: int, most: float) -> Claim:
    name = f"majority-{k}"
    both, plain = (relation(config, n, i, name) for i in ("ab", "none"))
    otherwise = {"otherwise": GPU} if k > 4 else {}
    return Claim(
        f"symbols.identity.tasks.{name}",
        f"Both scalars generalise on {name} with n = {n} where vanilla does not: test"
        f" MSE, multiplier {config.multiplier:g}.",
        "Figures 21 and 22",
        "behaviour",
        (
            *at_both_steps("aI and bI", f"<= {most:g}", both),
            *at_both_steps("vanilla", ">= 0.75", plain),
        ),
        nulls=(UNTRAINED, shuffled(scores(both))),
        paper=value(name, "ab", n),
        not_tested=unlike_paper(config) or absent(config, (both, plain), **otherwise),
    )


def _cause(config: Config) -> Claim:
    modified = relation(config, config.compared_n, "a")
    # Three standard errors of an error of one half.
    chance = near(0.5, 3 * (0.25 / config.training.n_test) ** 0.5)
    claim = Claim(
        "symbols.identity.cause",
        "The first layer's a carries the comparison: nearest-label error of +aI, mean"
        f" over the labels, with it taken off, n = {config.compared_n}, multiplier"
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
        nulls=(UNTRAINED, _shuffled_cause(config)),
        controls=(
            Mean(
                "rise by taking aQ off, Q random orthogonal, minus half that by aI",
                "<= 0",
                turned_excess(modified, "a", 0),
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


def _shuffled_cause(config: Config) -> Null:
    """It has no right answers to lose: its error before the edit is at chance."""
    modified = relation(config, config.compared_n, "a")
    return Null(
        "shuffled labels: error before the edit",
        measure=lambda lab: lab.shuffled().over(modified, error),
        bound="> 0.05",
    )

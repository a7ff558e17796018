"""H1: MLPs do not generalise to unseen symbols."""

from collections.abc import Iterator

from circuits.claims import UNTRAINED, Claim, Null
from circuits.conditions import Each, Mean
from trained.symbols.config import Config
from trained.symbols.setting import Setting, baseline
from trained.symbols.tasks import task

from .measures import given, last

LEAST = 64
"""With fewer strings there is nothing to generalise from."""
SHOWN = ("aba_abb", "same_different")
"""The tasks that the paper shows MLPs on."""
FITS = Each("train MSE, largest over n", "<= 0.001", lambda lab: lab.worst_mlp_fit())
LAST_STEP = (
    "judged after the last step, not the best one on validation, which often was the"
    " first, and trained to 1e-4 instead of 5e-4 (Step 5, after a train MSE had missed"
    " 1e-3 by 1e-4)"
)


def claims(config: Config) -> Iterator[Claim]:
    """Without the incidence matrix, and with it."""
    yield _unseen(config)
    yield Claim(
        "symbols.mlp.unseen.area",
        "However long it is trained, an MLP that fits answers alike for all templates:"
        " area under the ROC curve between the two labels, at five checkpoints.",
        "Theorem I.2, Lemma I.7, Remark I.5",
        "behaviour",
        weight=2,
        not_tested="not measured yet",
    )
    yield _incidence(config)


def sizes(config: Config) -> list[int]:
    """The n at which MLPs are judged."""
    return [n for n in config.perceptron_n if n >= LEAST]


def beside(config: Config, metric: str, bound: str) -> tuple[Null, ...]:
    """The MLPs that are given X X^T, one null for each n."""
    return tuple(
        Null(
            f"given X X^T, n = {n}",
            measure=last(baseline(config, n, "mlp_incidence"), metric),
            bound=bound,
        )
        for n in sizes(config)
    )


def obstacle(config: Config) -> str:
    """Why MLPs are not judged here, if so."""
    if task(config.task).regular:
        return "regular tokens tell templates apart without comparing symbols"
    return "" if sizes(config) else f"needs n >= {LEAST}"


def _unseen(config: Config) -> Claim:
    claim = Claim(
        "symbols.mlp.unseen.mse",
        f"An MLP that fits does not generalise to unseen symbols: test MSE after the"
        f" last step, {config.task}.",
        "Theorem I.2 and Figure 21",
        "behaviour",
        tuple(
            Mean(
                f"test MSE, n = {n}",
                ">= 0.9",
                last(baseline(config, n)),
            )
            for n in sizes(config)
        ),
        nulls=(*beside(config, "test", "<= 0.3"), UNTRAINED),
        weight=2,
        not_tested=obstacle(config),
        revised=LAST_STEP,
    )
    return given(FITS)(claim)


def _incidence(config: Config) -> Claim:
    few, most = LEAST, config.perceptron_n[-1]

    def given(n: int) -> Setting:
        return baseline(config, n, "mlp_incidence")

    trained = few in config.perceptron_n and most > few
    missing = "" if trained else f"needs n = {few} and a larger one"
    if config.task not in SHOWN:
        missing = f"no paper value for {config.task}"
    return Claim(
        "symbols.mlp.incidence",
        "Given X X^T, an MLP generalises, the better the more data it has.",
        "Figure 24, Section 7",
        "behaviour",
        (
            Mean(f"test MSE, n = {few}", "<= 0.3", last(given(few))),
            Mean(
                f"test MSE, n = {most} minus n = {few}",
                "< 0",
                lambda lab: lab.difference(
                    lab.last_scores(given(most)), lab.last_scores(given(few))
                ),
            ),
        ),
        nulls=(
            Null("without X X^T", measure=last(baseline(config, few))),
            UNTRAINED,
        ),
        weight=2,
        not_tested=missing,
        revised=LAST_STEP,
    )

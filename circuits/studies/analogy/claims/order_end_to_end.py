"""The order of the lessons decides, in GPT-2 and the ReLU block too. Torch-free."""

from collections.abc import Iterator

from circuits.claims import UNTRAINED, Claim, Null, Shown
from circuits.conditions import Each, Measure
from trained.analogy.config import Config

from .expected import (
    absolute,
    at_chance,
    difference,
    fails,
    gpt_2,
    succeeds,
    untrained,
)
from .joint import GPT_REVISED

ANSWERED = ">= 0.98"

RELU_STEPS = (
    "At n = 100: 700 steps in place of 200, as joint training had not fitted after 200"
    " on seeds 301 to 303 (chosen on seeds 100 and 101); relu.loss, if set, ends a"
    " phase earlier, so that curricula are not compared after equal steps"
)


def claims(config: Config) -> Iterator[Claim]:
    """The leaves of H2 about models that are trained end to end."""
    yield _gpt_success(config)
    yield _gpt_cosine(config)
    yield _relu_success(config)
    yield _relu_cosine()


def _gpt_success(config: Config) -> Claim:
    n = config.gpt.n_entities
    return Claim(
        "analogy.order.gpt.success",
        f"{gpt_2(config)}:"
        " similarity first transfers and aligns; attribution first (AS_E) does"
        " not transfer. Read it with the retention and replay of AS_E: where replay"
        " transfers, it fails by forgetting.",
        "Table 1",
        "behaviour",
        (
            succeeds("SA", n, lambda lab: lab.success("gpt-SA")),
            Each("SA, cosine", ">= 0.7", lambda lab: lab.cosine("gpt-SA")),
            at_chance("AS_E", n, lambda lab: lab.success("gpt-AS_E")),
            Each(
                "AS_E, premises of phase 2",
                ANSWERED,
                lambda lab: lab.answered("gpt-AS_E"),
            ),
        ),
        (
            untrained(n),
            fails(
                "SA before phase 2", n, lambda lab: lab.success("gpt-SA", "first phase")
            ),
            Null(
                "SA, shifted pairs",
                measure=lambda lab: lab.cosine("gpt-SA", "shifted"),
                bound="<= 0.15",
            ),
        ),
        shown=(
            Shown(
                "AS_E, A replayed (near 1 it fails by forgetting)",
                lambda lab: lab.success("gpt-AS_E-replay"),
            ),
        ),
        weight=4,
        paper=1.0,
        revised=GPT_REVISED,
    )


def _gpt_cosine(config: Config) -> Claim:
    def gap(larger: str, smaller: str, of: str = "raw") -> Measure:
        return lambda lab: difference(
            *(lab.cosine(lab.named("gpt", name), of) for name in (larger, smaller))
        )

    return Claim(
        "analogy.order.gpt.cosine",
        f"{gpt_2(config)}:"
        " joint training aligns more than similarity first, and that more than"
        " attribution first (AS_E): differences of cosines.",
        "Table 1",
        "signal",
        (
            Each("joint - SA", ">= 0.08", gap("joint", "SA")),
            Each("SA - AS_E", ">= 0.09", gap("SA", "AS_E")),
        ),
        (
            UNTRAINED,
            Null("shifted: joint - SA", None, gap("joint", "SA", "shifted")),
            Null(
                "shifted: SA - AS_E",
                measure=gap("SA", "AS_E", "shifted"),
                bound="< 0.09",
            ),
        ),
        weight=3,
        paper=0.1967,
        revised=GPT_REVISED,
    )


def _relu_success(config: Config) -> Claim:
    n = config.relu.n_entities

    def success(scale: str, name: str, when: str = "end") -> Measure:
        return lambda lab: lab.success(f"relu-{scale}-{name}", when)

    return Claim(
        "analogy.order.relu.success",
        "ReLU block end to end, at both init scales: joint and SA transfer, AS_E does"
        " not.",
        "Table 4",
        "behaviour",
        tuple(
            condition(f"{name}, {scale} init", n, success(scale, name))
            for scale in ("main", "small")
            for name, condition in (
                ("joint", succeeds),
                ("SA", succeeds),
                ("AS_E", at_chance),
            )
        ),
        (
            untrained(n),
            *(
                fails(
                    f"SA before phase 2, {scale} init",
                    n,
                    success(scale, "SA", "first phase"),
                )
                for scale in ("main", "small")
            ),
        ),
        weight=3,
        paper=1.0,
        revised="Step 2: the main init was picked among 9 settings that were judged on"
        " success too; Step 8: the small one counts as well; Step 10: a fixed number of"
        f" steps in place of the paper's loss, rates chosen on seed 100. {RELU_STEPS}",
    )


def _relu_cosine() -> Claim:
    def shifted(name: str) -> Measure:
        return lambda lab: absolute(lab.cosine(f"relu-main-{name}", "shifted"))

    def gap(larger: str, smaller: str) -> Measure:
        return lambda lab: difference(
            *(lab.cosine(f"relu-main-{name}") for name in (larger, smaller))
        )

    return Claim(
        "analogy.order.relu.cosine",
        "ReLU block end to end: joint training aligns more than SA, and that more than"
        " AS_E: differences of cosines.",
        "Table 4",
        "signal",
        (
            Each("joint - SA", ">= 0.1", gap("joint", "SA")),
            Each("SA - AS_E", ">= 0.1", gap("SA", "AS_E")),
        ),
        (
            UNTRAINED,
            *(
                Null(f"shifted pairs, {name}", None, shifted(name), "<= 0.15")
                for name in ("joint", "SA", "AS_E")
            ),
        ),
        weight=2,
        paper=0.2297,
        revised=RELU_STEPS,
    )

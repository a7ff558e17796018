"""Headline E: the memory is learned from facts first, then W^KQ alone (Figure 4).

Adam 1e-3 without decay in both phases, as in Section 5. The paper gives neither the
width nor the start of the memory, nor the number of batches.
"""

from collections.abc import Iterator

from circuits.claims import Claim, Null
from circuits.conditions import Condition, Each
from trained.recall.config import Config

from .constructed import GAPS

LATER = "decided at --preset paper"


def claims(config: Config) -> Iterator[Claim]:
    """Both panels, in both readings of the caption's temperature."""
    wanted, t = config.pretrained, config.temperature
    widths = ", ".join(str(w * config.n_subjects**2) for w in wanted.widths)
    k = 0.04 if config.n_examples == 2 else GAPS[config.n_examples]
    yield _panel(
        "fig4a.caption",
        f"Pairwise row 1 with T={t:g} in both phases; widths {widths}.",
        "Figure 4(a), caption T=.05",
        4,
        ("caption", k, _missing(config, "caption")),
    )
    yield _panel(
        "fig4a.warm",
        f"Pairwise row 1 with T={wanted.warm:g} in pretraining, {t:g} in fine-tuning;"
        f" widths {widths}.",
        "Figure 4(a), T read as fine-tuning only",
        2,
        ("warm", k, _missing(config, "warm")),
    )
    for reading, heat in (
        ("caption", f"T={config.triple.temperature:g} in both phases"),
        ("warm", f"T={wanted.warm:g} in pretraining"),
    ):
        missing = (
            "" if wanted.triple_steps else f"pretrained.triple_steps is 0; {LATER}"
        )
        yield _panel(
            f"fig4b.{reading}",
            "Three examples, m=512, T=.01: three distinct pair weights, none dropped;"
            f" {heat}.",
            "Figure 4(b)",
            1,
            (f"fig4b-{reading}", GAPS[3], missing),
        )


def _missing(config: Config, reading: str) -> str:
    """Why a reading was not run, if so."""
    wanted = config.pretrained
    if not wanted.steps:
        return f"pretrained.steps is 0; {LATER}"
    if reading not in wanted.readings:
        return f"pretrained.readings has no {reading}; {LATER}"
    return ""


def _panel(
    name: str,
    statement: str,
    source: str,
    weight: int,
    case: tuple[str, float, str],
) -> Claim:
    reading, gap, not_tested = case

    def each(name: str, expected: str, quantity: str) -> Condition:
        return Each(name, expected, lambda lab: lab.pooled(quantity, reading))

    # With three pairs in arithmetic progression the lightest has 1/12 at most.
    lightest = ">= 0.1" if reading in ("caption", "warm") else ">= 0.03"
    return Claim(
        f"recall.{name}",
        statement,
        source,
        "signal",
        weight=weight,
        conditions=(
            each("within-pair ratio", "<= 1.1", "ratio"),
            each("lighter pair", lightest, "lighter_pair"),
            each("gap between pairs", f">= {gap}", "gap"),
            each("rest", "<= 0.06", "rest"),
        ),
        preconditions=(
            each("subjects and answers recalled", ">= 0.999", "facts_known"),
        ),
        nulls=(
            Null("not pretrained", on=lambda lab: lab.raw()),
            Null("facts shuffled in pretraining", on=lambda lab: lab.shuffled()),
        ),
        not_tested=not_tested,
    )

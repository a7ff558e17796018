"""Expectations and controls that many claims of the study share. Free of torch."""

from math import log

from circuits.claims import Claim, Control

FITTED = "<= 0.1"
"""Training losses are no targets (the paper's rates are lost): its largest is 0.10."""
TRANSFERS = ">= 0.98"
NULL_SLACK = 0.01


def chance(n: int) -> str:
    """What success stays below without transfer: 5 % or three of n, at most 25 %."""
    return f"<= {min(0.25, max(0.05, 3 / n)):.4g}"


def untrained(n: int) -> Control:
    """The same before training."""
    return Control("untrained", chance(n))


def loss(
    id: str,
    row: str,
    source: str,
    d_vocab: int,
    *,
    paper: float | None,
) -> Claim:
    """The training-loss column of a table; exploratory."""
    return Claim(
        id,
        f"The premises are fitted: training loss of {row}.",
        source,
        "behaviour",
        FITTED,
        Control("untrained", f">= {0.9 * log(d_vocab):.4g}"),
        paper=paper,
        gated=False,
    )

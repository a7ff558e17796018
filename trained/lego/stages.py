"""The names of stages of training that claims refer to. Free of torch."""

LOOSE, RULE, HALVED = "loose", "rule", "halved"
"""The theory's Q: to a loss that knows no d, on to the rule of all d, and again with
half the cap."""

SECOND_STEP, LONGER = "second-step", "longer"
"""Stage 1.2 of Algorithm 2, and as many steps at L = 2 as its rounds may take."""

BASE, CORRUPT = "all", "corrupt"
"""The experiment: the paper's training at the first length; a round whose annotator
cannot match keys."""


def round_name(length: int) -> str:
    """A self-training round of Algorithm 2."""
    return f"round-{length}"


def gold(length: int) -> str:
    """True answers at the first length, beside a round of the experiment."""
    return f"gold{length}"


def taught(length: int) -> str:
    """A round of the experiment."""
    return f"self{length}"

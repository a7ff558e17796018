"""Claims about order and cause in the recall study: what reads what."""

from collections.abc import Iterator

from circuits.claims import Claim, Control, near
from trained.recall.config import Config


def order(config: Config) -> Iterator[Claim]:
    """Where the relation and the answer can be read."""
    n, m = config.n_subjects, config.n_subjects * (config.n_subjects - 1)
    yield Claim(
        "recall.order.relation-before-memory",
        "The attention's output does not name the relation: logit lens on h.",
        "Section 3, implied",
        "signal",
        near(1 / m, 0.01),
        Control("after the memory", ">= 0.95"),
    )
    yield Claim(
        "recall.order.answer-after-memory",
        "Nor does the memory name the answer at the first step: logit lens.",
        "Lemma 4",
        "signal",
        near(1 / n, 0.01),
        Control("at the second step", ">= 0.95"),
    )
    if not config.has_probes:
        return
    yield Claim(
        "recall.order.relation-probe",
        "A linear probe reads the relation from the memory's neurons (first seed).",
        "Section 3, implied",
        "signal",
        ">= 0.5",
        Control("the same probe before the memory", "<= 0.15"),
    )
    yield Claim(
        "recall.order.relation-probe-selectivity",
        "That probe's accuracy minus the accuracy on shuffled labels (first seed).",
        "Section 3, implied",
        "signal",
        ">= 0.4",
        Control("shuffled labels alone", "<= 0.1"),
    )
    yield Claim(
        "recall.order.answer-probe",
        "A linear probe on the neurons finds no answer beyond elimination, whose"
        " chance is 1/(n-k): accuracy minus that (first seed).",
        "Lemma 4",
        "signal",
        "<= 0.05",
        Control("the relation probe minus its chance", ">= 0.3"),
    )


def _cause(name: str, statement: str, expected: str, control: Control) -> Claim:
    return Claim(f"recall.cause.{name}", statement, "ours", "causal", expected, control)


def causes(config: Config) -> Iterator[Claim]:
    """Attention set by hand at the first step."""
    if config.n_examples != 2:
        return
    n = config.n_subjects
    m = n * (n - 1)
    intact = Control("no intervention", ">= 0.99")

    yield _cause(
        "uniform",
        "do(uniform attention): relation accuracy.",
        near(1 / 6, 0.01),
        intact,
    )
    yield _cause(
        "saddle", "do(both pairs equal): relation accuracy.", near(0.5, 0.01), intact
    )
    yield _cause(
        "pairwise",
        "do(pairwise attention), either pair heavy: relation accuracy.",
        ">= 0.99",
        Control("do(both pairs equal)", "<= 0.51"),
    )
    yield _cause(
        "crossed",
        "do(heavy on s1 and a2, light on s2 and a1) decodes the confusing relation.",
        ">= 0.99",
        Control("do(pairwise)", "<= 0.01"),
    )
    yield _cause(
        "one-pair",
        "do(one pair only): relation accuracy is 1/(n-1).",
        near(1 / (n - 1), 0.02),
        intact,
    )
    yield _cause(
        "subjects-only",
        "do(subjects only): relation accuracy is 1/m.",
        near(1 / m, 0.01),
        intact,
    )


def disruptions(config: Config) -> Iterator[Claim]:
    """Interventions that take something away from the first step."""
    if config.n_examples != 2:
        return
    n = config.n_subjects
    yield _cause(
        "knock-out",
        "Without s1, a1, s2 or a2 (attention renormalised) the relation is lost: best"
        " of the four.",
        f"<= {1 / (n - 1) + 0.01:.6g}",
        Control("without the query, or without EoS (worse of the two)", ">= 0.99"),
    )
    yield _cause(
        "fact-neurons",
        "Silencing the memory's neuron of either example's fact removes the relation.",
        "<= 0.01",
        Control("two unrelated relation neurons", ">= 0.99"),
    )
    yield _cause(
        "crossed-neurons",
        "At the saddle, silencing the neurons of the crossed pairs breaks the tie.",
        ">= 0.99",
        Control("two unrelated relation neurons", near(0.5, 0.01)),
    )
    yield _cause(
        "replaced-pair",
        "With pair 1 taken from another relation, the relation through (new pair 1,"
        " pair 2) is decoded.",
        ">= 0.99",
        Control("the original relation", "<= 0.01"),
    )
    yield _cause(
        "conflict",
        "Pairs without a common relation: the heavy pair's relations win over the light"
        " pair's (difference of shares; constructed memory, random table, n=16).",
        ">= 0.5",
        Control("both pairs equal", "in [-0.1, 0.1]"),
    )


def second_step_causes() -> Iterator[Claim]:
    """Interventions at the second step."""
    for name, what, control in (
        (
            "written-relation",
            "Another relation r' written: the answer becomes r'(query).",
            Control("the original answer", "<= 0.3"),
        ),
        (
            "query",
            "Another query subject at the second step: the answer follows it.",
            Control("the original answer", "<= 0.01"),
        ),
        (
            "context",
            "Other examples at the second step: the answer stays.",
            Control("the new examples' own relation answers", "<= 0.3"),
        ),
    ):
        yield Claim(f"recall.cause.{name}", what, "ours", "causal", ">= 0.99", control)

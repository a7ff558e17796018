"""What the paper's theorems say about their own model, as claims.

Thresholds are ours; the theorems are asymptotic and print no numbers. The theory's
sizes are small here (d is 103 for C6 with 90 variables, where log d is not yet large).
Rates, caps, steps, batch and the number of neurons, which the paper leaves open, were
chosen on seeds 100 to 111, which no verdict uses, so that the FFN's loss reaches the
floor that the clip sets and sampling noise in Q stays small; balance, sharpness, the
FFN's signs and ratios and the lead of Q43 on those seeds were seen then. Both groups'
attention is trained by the same algorithm where they are compared.
"""

from collections.abc import Iterator

from circuits.claims import Claim, Control
from trained.lego.action import Action, action
from trained.lego.config import Config

UNIFORM = "uniform attention"


def theorems(config: Config) -> Iterator[Claim]:
    """Every claim about the theory models' attention."""
    simple, other = kinds(config)
    if simple:
        yield from _theorem(config, simple)
        yield from _inside(simple)
    if simple and other:
        yield from _compared(config, simple, other)
        yield from _reduced(simple, other)
    if other and config.theory_rounds:
        yield from _rounds(config, other)


def kinds(config: Config) -> tuple[Action | None, Action | None]:
    """The first theory action that is simply transitive and the first that is not."""
    found = [action(text) for text in config.theory_groups]
    simple = next((a for a in found if a.is_simply_transitive), None)
    return simple, next((a for a in found if not a.is_simply_transitive), None)


def _theorem(config: Config, simple: Action) -> Iterator[Claim]:
    name, length = simple.slug, config.theory_length
    yield Claim(
        "lego.theory.length",
        f"{name}: trained by Algorithm 1 on one and two steps, the theory's model"
        f" solves chains of {length}: share right throughout.",
        "Theorem 4.1",
        "theory",
        ">= 0.99",
        Control(UNIFORM, "<= 0.05"),
        paper=1.0,
    )
    yield Claim(
        "lego.theory.mass",
        f"{name}: at L = 2 attention is on the two targets.",
        "Theorem 4.1, eq. 8",
        "theory",
        ">= 0.95",
        Control(UNIFORM, "<= 0.6"),
        paper=1.0,
    )
    yield Claim(
        "lego.theory.diagonals",
        f"{name}: both diagonals of Q grow: diagonal minus off-diagonal mean, the least"
        " of Q43 and Q44 (every seed).",
        "Theorem 4.1",
        "theory",
        "> 3",
        Control("columns shuffled, absolute", "<= 0.5"),
        every_seed=True,
    )
    yield Claim(
        "lego.theory.elsewhere",
        f"{name}: all other entries of Q stay near 0: their mean relative to the"
        " diagonal's.",
        "Theorem 4.1",
        "theory",
        "<= 0.1",
        Control("columns shuffled", ">= 0.5"),
        paper=0.0,
        gated=False,
    )


def _inside(simple: Action) -> Iterator[Claim]:
    name, chance = simple.slug, 1 / simple.n_values
    yield Claim(
        "lego.theory.phases",
        f"{name}: without step caps Q43 leads Q44 first (the peak of the difference is"
        " shown), then the gap closes.",
        "Section 6.2.1",
        "theory",
        "> 0.02",
        Control("share of the peak left at the end", "<= 0.5"),
        gated=False,
    )
    for half, rest in (("predicates", "answers"), ("answers", "predicates")):
        yield Claim(
            f"lego.theory.lens.{half}",
            f"{name}: the FFN needs both halves: with only what attention brings from"
            f" {half} (what it brings from {rest} dropped) values are at chance,"
            f" {chance:.3g}.",
            "Section 6.1.2",
            "causal",
            f"<= {chance + 0.1:.3g}",
            Control("both halves", ">= 0.99"),
        )


def _compared(config: Config, simple: Action, other: Action) -> Iterator[Claim]:
    one, two, length = simple.slug, other.slug, config.theory_length
    yield Claim(
        "lego.theory.balance",
        f"{two} attends to its two targets less evenly: Delta({two}) / Delta({one}) at"
        " length 5 after equally many steps.",
        "Sections 6.2.1 and 6.2.2, eq. 20",
        "theory",
        ">= 3",
        Control(f"Delta({one}) itself", "<= 0.03"),
    )
    yield Claim(
        "lego.theory.sharpness",
        f"{two} is less concentrated after equally many steps: K({two}) / K({one}).",
        "Theorems 4.1 and 5.1",
        "theory",
        "< 0.7",
        Control("after the first 20 steps, all capped", ">= 0.8"),
    )
    yield Claim(
        "lego.theory.matched",
        f"Not only because {two} learns more slowly: K({two}) / K({one}) when each"
        " first comes within 15 % of its own loss floor.",
        "Theorems 4.1 and 5.1",
        "theory",
        "< 0.7",
        Control("after equally many steps", "< 0.7"),
        gated=False,
    )
    yield Claim(
        "lego.theory.gap",
        f"That makes {two} fail where {one} does not: difference of the shares right"
        f" throughout at length {length}.",
        "Theorems 4.1 and 5.1",
        "behaviour",
        ">= 0.1",
        Control("at length 10", "<= 0.05"),
        gated=False,
    )


def _rounds(config: Config, other: Action) -> Iterator[Claim]:
    name, length = other.slug, config.theory_length
    for k in range(2, 2 + config.theory_rounds):
        yield Claim(
            f"lego.theory.round-{2**k}",
            f"{name}: self-training at length {2**k} until the loss rule holds again"
            " about doubles K: after / before.",
            "Theorem 5.1",
            "theory",
            "in [1.5, 2.2]",
            Control("as many steps at L = 2 instead", "< 1.5"),
        )
    yield Claim(
        "lego.theory.doubling",
        f"{name}: trained up to length L = 2, 4, .. by Algorithm 2, the model solves"
        " 2L: share right throughout, the least over stages.",
        "Theorem 5.1",
        "theory",
        ">= 0.99",
        Control(f"{UNIFORM}, length 4", "<= 0.3"),
        paper=1.0,
    )
    yield Claim(
        "lego.theory.self",
        f"{name}: the rounds extend the length: share right throughout at {length}"
        " after the last of them.",
        "Corollary 5.1",
        "behaviour",
        ">= 0.95",
        Control("before the rounds", "<= 0.5"),
        gated=False,
    )


def _reduced(simple: Action, other: Action) -> Iterator[Claim]:
    one, two = simple.slug, other.slug
    prefix = "Two numbers on top of the proved features"
    yield Claim(
        "lego.reduced.steps",
        f"{prefix}: K({two}) / K({one}) after equally many steps.",
        "ours, from Theorems B.1 and C.1",
        "theory",
        "< 0.7",
        Control("after the first 20 steps, all capped", ">= 0.8"),
        gated=False,
    )
    yield Claim(
        "lego.reduced.loss",
        f"{prefix}: K({two}) / K({one}) at equal loss. An artefact if the control, each"
        " at the same multiple of its own floor, is not as small.",
        "ours, from Theorems B.1 and C.1",
        "theory",
        "< 0.7",
        Control("each at 1.15 times its own floor", "< 0.7"),
        gated=False,
    )
    yield Claim(
        "lego.reduced.balance",
        f"{prefix}: {two} attends unevenly because V(g) and V(y) differ: Delta at"
        " length 5.",
        "ours, from Theorem C.1",
        "theory",
        ">= 0.03",
        Control("V(g) = V(y) put in", "<= 0.01"),
        gated=False,
    )

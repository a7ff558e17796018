"""Claims of the recall paper about its memory and its theorems."""

from collections.abc import Iterator

from circuits.claims import Claim, Control, near
from trained.recall.config import Config

LOG_2 = "0.693147"


def memory(config: Config) -> Iterator[Claim]:
    """Lemma 1, Table 2 and eq. 18."""
    shuffled = "value rows shuffled"
    yield Claim(
        "recall.memory.right-logit",
        "Two tokens of a fact give the third a logit of exactly 4 (the fact farthest"
        " from it is shown).",
        "Lemma 1",
        "theory",
        "in [3.999999, 4.000001]",
        Control(f"{shuffled}: the mean right logit", "<= 3"),
        paper=4.0,
    )
    yield Claim(
        "recall.memory.wrong-logit",
        "Every other token gets a logit of at most 2 (the largest is shown); the paper"
        " says 1, which its own construction does not give.",
        "Lemma 1, corrected",
        "theory",
        "in [1.999999, 2.000001]",
        Control(f"{shuffled}: the largest wrong logit", ">= 3"),
        paper=1.0,
    )
    yield Claim(
        "recall.memory.accuracy",
        "The constructed memory recalls every fact from any two of its tokens.",
        "Lemma 1",
        "theory",
        ">= 0.999999",
        # A few tokens are easily guessed right by accident.
        Control(shuffled, "<= 0.1" if config.n_subjects >= 8 else "<= 0.3"),
        paper=1.0,
    )
    yield Claim(
        "recall.memory.formulas",
        "With any attention the model's logits equal Table 2, eq. 18 and the second"
        " step's formulas (largest error, float64).",
        "Table 2, eq. 18",
        "theory",
        "<= 1e-10",
        Control(shuffled, ">= 0.01"),
        paper=0.0,
    )


def no_chain_of_thought(config: Config) -> Iterator[Claim]:
    """Lemma 4."""
    n = config.n_subjects
    yield Claim(
        "recall.nocot.accuracy",
        "Before the relation is written, all answers tie: accuracy is 1/n whatever the"
        " attention (the paper states 1/3 for n=3).",
        "Lemma 4",
        "theory",
        near(1 / n, 1e-6),
        Control("with the relation written", ">= 0.95"),
        paper=1 / 3 if n == 3 else None,
    )
    yield Claim(
        "recall.nocot.gradient",
        "Training without chain of thought has no gradient: the largest entry in the"
        " key-query matrix.",
        "Lemma 4",
        "theory",
        "<= 1e-6",
        Control("the two-step loss", ">= 0.0001"),
    )


def prompt_types(config: Config) -> Iterator[Claim]:
    """Shares of prompt types against their closed forms."""
    if config.n_examples != 2:
        return
    for name, what in (
        ("confusing", "share of confusing prompts"),
        ("mismatched", "share of mismatched prompts"),
        ("ceiling", "Bayes ceiling"),
    ):
        yield Claim(
            f"recall.types.{name}",
            f"The {what} of the random table minus its closed form.",
            "Section 4.2, Assumption 1",
            "theory",
            "in [-0.05, 0.05]",
            Control("affine table, where it is 1", ">= 0.999999"),
            paper=0.0,
        )


def saddle() -> Iterator[Claim]:
    """Stage 1 with three subjects."""
    yield Claim(
        "recall.saddle.attention",
        "Stage 1 ends at (1/4, 1/4, 1/4, 1/4, 0, 0), three subjects (largest"
        " deviation over temperatures).",
        "Lemma 5",
        "theory",
        "<= 0.002",
        Control("after the perturbation", ">= 0.05"),
        paper=0.0,
    )
    yield Claim(
        "recall.saddle.loss",
        "At the saddle the relation's loss is above log 2 (least over temperatures).",
        "Lemma 6",
        "theory",
        f"> {LOG_2}",
        Control("after the perturbation", f"< {LOG_2}"),
    )
    yield Claim(
        "recall.saddle.accuracy",
        "At the saddle the true and the confusing relation tie.",
        "Lemma 5",
        "theory",
        "in [0.499, 0.501]",
        Control("after the perturbation", ">= 0.999"),
        paper=0.5,
    )
    yield Claim(
        "recall.saddle.descent",
        "It is a saddle: at every T the curvature along (1, 1, -1, -1, 0, 0)/2 is"
        " negative; the control direction (1, -1, -1, 1, 0, 0)/2 rises.",
        "Proof of Theorem 2",
        "theory",
        "< 0",
        Control("along (1, -1, -1, 1, 0, 0)/2", "> 0"),
        every_seed=True,
    )
    yield Claim(
        "recall.saddle.curvature",
        "That curvature is -1/(8T) + 1/(32 T^2 (4 + 2 exp(1/(8T)))): relative error"
        " against autograd, at every T. The paper prints another exponent and a squared"
        " factor.",
        "Proof of Theorem 2, corrected",
        "theory",
        "<= 0.01",
        Control("the formula as printed", ">= 0.05"),
        every_seed=True,
        paper=0.0,
    )


def theorem2() -> Iterator[Claim]:
    """The escape and the pairwise optimum."""
    held = "no perturbation, symmetric gradients"
    yield Claim(
        "recall.theorem2.within-pair",
        "After the escape the tokens of a pair get equal attention (largest ratio over"
        " temperatures).",
        "Theorem 2",
        "signal",
        "<= 1.01",
        Control("low temperature, where it must not", "> 1.05"),
        paper=1.0,
    )
    yield Claim(
        "recall.theorem2.rest",
        "Nothing is left on the query and EoS.",
        "Theorem 2",
        "signal",
        "<= 0.002",
        Control("before training", ">= 0.3"),
        paper=0.0,
    )
    yield Claim(
        "recall.theorem2.light-pair",
        "The lighter pair's weight is the optimum a*(T) of the exact loss (largest"
        " distance over temperatures).",
        "Theorem 2",
        "signal",
        "<= 0.002",
        Control(held, ">= 0.05"),
        paper=0.0,
    )
    yield Claim(
        "recall.theorem2.loss",
        "The relation's loss falls below log 2 (largest over temperatures).",
        "Lemma 6",
        "behaviour",
        f"< {LOG_2}",
        Control(held, f"> {LOG_2}"),
    )
    yield Claim(
        "recall.theorem2.accuracy",
        "The relation is recovered with three subjects.",
        "Theorem 2",
        "behaviour",
        ">= 0.999",
        Control(held, "in [0.499, 0.501]"),
        paper=1.0,
    )


def optimum() -> Iterator[Claim]:
    """Where the pairwise optimum lies, and what draws the attention there."""
    yield Claim(
        "recall.theorem2.sides",
        "Either pair may become the lighter one: the share of seeds where it is the"
        " first.",
        "Theorem 2",
        "signal",
        "in [0.01, 0.99]",
        Control("difference of the pairs without perturbation", "<= 0.001"),
        gated=False,
    )
    yield Claim(
        "recall.theorem2.limit",
        "As T -> 0 the lighter weight tends to 1/6 (shown: T = 0.001), not to"
        " (4 - sqrt 6)/10 = 0.155 as printed, where a lone square is dropped.",
        "Proof of Theorem 2, corrected",
        "theory",
        near(1 / 6, 0.002),
        Control("T = 0.12, above the threshold: one pair is dropped", "<= 0.01"),
        paper=(4 - 6**0.5) / 10,
    )
    yield Claim(
        "recall.lemma8.violations",
        "Past the escape the largest within-pair ratio always falls: share of random"
        " attentions with l(r1) > sum p l where it rises.",
        "Lemma 8",
        "theory",
        "<= 0",
        Control("attentions without that condition", "> 0"),
        paper=0.0,
    )


def general(config: Config) -> Iterator[Claim]:
    """Any number of subjects at low temperature."""
    yield Claim(
        "recall.lemma9.start",
        "Before training all six 2-matching relations of a prompt tie.",
        "Section 4.2",
        "behaviour",
        near(1 / 6, 0.01),
        Control("after both stages", ">= 0.999"),
    )
    yield Claim(
        "recall.lemma9.confusing",
        "After stage 1 a confusing prompt's relation has probability 1/2 (half of the"
        " affine table's rows).",
        "Lemma 9",
        "behaviour",
        "in [0.49, 0.51]",
        Control("prompts that are not confusing", ">= 0.99"),
        paper=0.5,
        every_seed=True,
    )
    yield Claim(
        "recall.theorem3.accuracy",
        "Eight prompts suffice for unseen prompts of n subjects (least over n and T).",
        "Theorem 3",
        "behaviour",
        ">= 0.999",
        Control("before training", "<= 0.2"),
        paper=0.999,
        every_seed=True,
    )
    for temperature in config.low_temperatures:
        threshold = 0.999 if temperature <= 0.002 else 0.998
        yield Claim(
            f"recall.theorem3.probability-T{temperature:g}",
            f"The true relation's probability at T = {temperature:g} (least over n).",
            "Theorem 3",
            "behaviour",
            f">= {threshold}",
            Control("after stage 1 alone", "<= 0.6"),
            paper=0.999,
        )


def end_state(config: Config) -> Iterator[Claim]:
    """What Algorithm 1 leaves behind at low temperature."""
    yield Claim(
        "recall.theorem3.not-pairwise",
        "At low temperature the end state is not pairwise: within-pair ratio.",
        "Section 4.2",
        "signal",
        "> 1.3",
        Control("Theorem 2's end state", "<= 1.01"),
        # The ratio falls towards 1 as the temperature rises.
        gated=max(config.low_temperatures) <= 0.005,
    )
    yield Claim(
        "recall.theorem3.heavier-pair",
        "Yet both tokens of one pair are heavier: (v1 - v3)(v2 - v4).",
        "Section 4.2",
        "signal",
        "> 0.005",
        Control("after stage 1 alone", "<= 0.001"),
    )
    yield Claim(
        "recall.lemma2.answer",
        "Given the relation, the answer is certain from stage 1 on: least probability.",
        "Lemma 2",
        "behaviour",
        ">= 0.9999",
        Control("before training", "<= 0.5"),
        paper=1.0,
    )
    yield Claim(
        "recall.theorem1.decoding",
        "Greedy two-step decoding of the real model answers unseen prompts.",
        "Theorem 1",
        "behaviour",
        ">= 0.99",
        Control("before training", "<= 0.5"),
        paper=0.99,
    )

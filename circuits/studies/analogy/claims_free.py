"""Claims about models trained end to end: the ReLU block and GPT-2. Free of torch."""

from collections.abc import Iterator

from circuits.claims import Claim, Control, near
from trained.analogy.config import Config

from .claims_gpt import gpt as gpt
from .wording import TRANSFERS, loss, untrained

PAPER_RELU = {
    "joint": (1.0, 0.9413, 0.0133),
    "SA": (1.0, 0.7116, 0.0198),
    "AS_E": (0.0067, 0.4367, 0.0138),
}
"""Success, similarity, loss of Table 4; which AS reading it used is not said."""
COSINE_TOLERANCE = 0.05
SHIFTED = Control("shifted pairs, |cosine|", "<= 0.15")


def relu(config: Config) -> Iterator[Claim]:
    """Table 4 at one init scale, and what changes with the scale."""
    n = config.relu_entities
    for name, (_, cosine, training_loss) in PAPER_RELU.items():
        if name in config.curricula:
            yield from _success(n, name)
            yield Claim(
                f"analogy.relu.{name}.alignment",
                f"ReLU block, {name}: cosine of V z, beside the paper's value.",
                "Table 4",
                "signal",
                near(cosine, COSINE_TOLERANCE),
                SHIFTED,
                paper=cosine,
                gated=False,
            )
            yield loss(
                f"analogy.relu.{name}.loss",
                f"the ReLU block, {name}",
                "Table 4",
                4 * n + 2,
                paper=training_loss,
            )
    if {"joint", "SA", "AS_E"} <= set(config.curricula):
        yield Claim(
            "analogy.relu.ordering",
            "ReLU block: AS_E is the least aligned of the three (its distance to the"
            " next).",
            "Table 4",
            "signal",
            "> 0",
            Control("shifted pairs, largest |cosine|", "<= 0.15"),
            paper=0.2749,
        )
    yield from _phase_table(config)


def _success(n: int, name: str) -> Iterator[Claim]:
    if name != "AS_E":
        yield Claim(
            f"analogy.relu.{name}.success",
            f"ReLU block end to end: {name} transfers.",
            "Table 4",
            "behaviour",
            TRANSFERS,
            untrained(n),
            paper=1.0,
        )
        return
    yield Claim(
        "analogy.relu.AS_E.success",
        "ReLU block end to end at the main init scale: AS_E does not transfer.",
        "Table 4",
        "behaviour",
        "<= 0.05",
        Control("the source's attribution", TRANSFERS),
        paper=0.0067,
    )
    yield Claim(
        "analogy.relu.AS_E.c-only",
        "ReLU block, AS_E: among the attribute tokens alone the target's is first,"
        " so the failure is output drift, not missing alignment.",
        "ours",
        "behaviour",
        ">= 0.95",
        untrained(n),
        gated=False,
    )


def _phase_table(config: Config) -> Iterator[Claim]:
    """Where the failure ends: the other reading and the smaller init."""
    n = config.relu_entities
    for scale, name in (("main", "AS_T"), ("small", "AS_T"), ("small", "AS_E")):
        if name in config.curricula:
            yield Claim(
                f"analogy.relu.{scale}.{name}",
                f"ReLU block end to end, {scale} init: {name} does transfer, unlike"
                " with frozen values.",
                "ours",
                "behaviour",
                TRANSFERS,
                untrained(n),
                gated=False,
            )

"""Claims about alignment from layer to layer. Free of torch."""

from collections.abc import Iterator

from circuits.claims import Claim, Control, near
from trained.analogy.config import Config


def linear(config: Config) -> Iterator[Claim]:
    """Theorem 6 and Figure 1(a), with the layers trained bottom up."""
    yield Claim(
        "analogy.linear.depth.steps",
        "Same-label inputs never lose alignment from a layer to the next (the least"
        " gain is shown).",
        "Theorem 6, Figure 1a",
        "signal",
        ">= -0.005",
        Control("untrained: largest |cosine|", "<= 0.005"),
    )
    yield Claim(
        "analogy.linear.depth.gain",
        "Same-label alignment grows from the input to the last hidden layer.",
        "Figure 1a",
        "signal",
        ">= 0.5",
        Control("different labels: largest cosine", "<= 0.05"),
    )
    # alpha = rate x steps x (1 - 1/K) / inputs, with the rate set by the inputs.
    alpha = 4 * 4 / 64 * (1 - 8 / config.linear_width)
    yield Claim(
        "analogy.linear.first-layer",
        "The first layer's same-label cosine is a^2 / (1 + a^2).",
        "Proof of Theorem 6, constants ours",
        "theory",
        near(alpha**2 / (1 + alpha**2), 0.02),
        Control("untrained", "in [-0.005, 0.005]"),
        gated=False,
    )


def gpt(config: Config) -> Iterator[Claim]:
    """Figure 1(b), at the entity's position: at the last one it would mean nothing."""
    if "joint" not in config.curricula:
        return
    yield Claim(
        "analogy.gpt.depth.steps",
        "GPT-2: source and target never lose alignment from a layer to the next, at"
        " the entity's position (the least gain is shown).",
        "Figure 1b",
        "signal",
        ">= 0",
        Control("shifted pairs: largest cosine", "<= 0.1"),
    )
    yield Claim(
        "analogy.gpt.depth.last",
        "GPT-2: source and target are aligned after the last layer, at the entity's"
        " position.",
        "Figure 1b",
        "signal",
        ">= 0.6",
        Control("token embeddings, |cosine|", "<= 0.001"),
    )

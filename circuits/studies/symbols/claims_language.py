"""Language models with identity scalings: what should hold, fixed in advance.

Reported, never gated: below about 2000 steps the spread between seeds is larger than
the effect in the paper, and a text of program sources is not Wikitext.
"""

from collections.abc import Iterator

from circuits.claims import Claim, Control
from trained.symbols.config import Config
from trained.symbols.language_sizes import SIZES


def language(config: Config) -> Iterator[Claim]:
    """The perplexity of paired models; nothing if none is trained."""
    if config.language == "none":
        return
    sizes = SIZES[config.language]
    size = f"{sizes.n_layers} layers of width {sizes.d_model}"
    yield Claim(
        "symbols.language.perplexity",
        "Trainable identity scalings lower the perplexity on held-out files of"
        " Python's library: with over without, paired seeds, every seed"
        f" ({size}, {config.language_steps} steps).",
        "Figure 6, Wikitext2: 60.46 / 64.00",
        "behaviour",
        "< 1",
        Control("a scalar on a random orthogonal matrix", ">= 0.98"),
        paper=0.945,
        gated=False,
        every_seed=True,
    )
    yield Claim(
        "symbols.language.knock-out",
        "The trained scalars are used: perplexity with a = b = 0 over that with them.",
        "ours",
        "causal",
        ">= 1.02",
        Control("scalar of the random orthogonal matrix set to 0", "<= 1.02"),
        gated=False,
    )

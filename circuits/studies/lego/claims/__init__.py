"""What the lego paper says, headline by headline, and what we add.

The theory's model (T), the paper's experiment (E) and our folded model never meet in
one verdict. The constants that the paper leaves open for T (C_B = 2, rho = 1, capped
steps of Q) are in the config under `theory` and printed with every verdict. Settings
were chosen on seeds 100 to 111.
"""

from collections.abc import Iterator

from circuits.claims import Claim, under
from trained.lego.config import Config

from .conc import concentration
from .ffn import ffn
from .learn import learned
from .length import length
from .ours import ours
from .self_training import self_training

HEADLINES = {
    "CoT is learned": learned,
    "Algebra dictates length": length,
    "Attention concentration is the mechanism": concentration,
    "Self-training extends length": self_training,
    "FFN features": ffn,
    "Ours": ours,
}


def claims(config: Config) -> Iterator[Claim]:
    """Every claim at a configuration."""
    for headline, part in HEADLINES.items():
        yield from under(headline, part(config))

"""What the recall paper says, headline by headline, and what we say beside it."""

from collections.abc import Iterator

from circuits.claims import Claim, under
from trained.recall.config import Config

from . import constructed, few, mechanism, ours, pretrained, theory


def claims(config: Config) -> Iterator[Claim]:
    """The tree at a configuration."""
    tree = {
        "Memory and the need for two steps": theory.memory(config),
        "Three subjects (Theorem 2)": theory.warmup(config),
        "Few prompts, any n (Theorems 1, 3)": few.claims(config),
        "Constructed memory (Figures 2, 3)": constructed.claims(config),
        "Pretrained memory (Figure 4)": pretrained.claims(config),
        "Mechanism, by edits of W_KQ": mechanism.claims(config),
        "Ours": ours.claims(config),
    }
    for headline, leaves in tree.items():
        yield from under(headline, leaves)

"""Claims about interventions: does alignment cause transfer? Free of torch.

None is in the paper. Alignment is necessary if taking the shared direction out of the
target's representation ends the transfer, and sufficient if putting the source's
representation in its place starts it where it was absent.
"""

from collections.abc import Iterator

from circuits.claims import Claim, Control
from trained.analogy.config import Config

from .wording import TRANSFERS, chance

SOURCE = "ours"
NAMES = {"bridge": "two-hop with bridge", "no-bridge": "two-hop without bridge"}


def block(config: Config) -> Iterator[Claim]:
    """Edits of the value vector of the test prompt's entity, and of the data."""
    n = config.n_entities
    analogies = [name for name in ("joint", "SA") if name in config.curricula]
    rescued = [name for name in ("AS_T",) if name in config.curricula]
    for name in (*rescued, "no-bridge"):
        yield Claim(
            f"analogy.block.causal.patch.{name}",
            f"{NAMES.get(name, name)}: V z of the source in place of the target's"
            " gives the answer that training did not. With even attention this equals"
            " running the source's own prompt, so it checks the edit.",
            SOURCE,
            "causal",
            TRANSFERS,
            Control("not patched", chance(n)),
            gated=False,
        )
    for name in (*analogies, "bridge", *rescued, "no-bridge"):
        yield Claim(
            f"analogy.block.causal.swap.{name}",
            f"{NAMES.get(name, name)}: V z of another tuple's source gives that"
            " tuple's answer (equals running that source's prompt, as above).",
            SOURCE,
            "causal",
            TRANSFERS,
            Control("not patched", chance(n)),
            gated=False,
        )
    for name in (*analogies, "bridge"):
        yield Claim(
            f"analogy.block.causal.removal.{name}",
            f"{NAMES.get(name, name)}: without its component along V z of the source"
            " the target loses the answer.",
            SOURCE,
            "causal",
            chance(n),
            Control("same length, random direction", TRANSFERS),
        )
    yield from _data(config)


def _data(config: Config) -> Iterator[Claim]:
    n = config.n_entities
    if "joint" in config.curricula:
        yield Claim(
            "analogy.block.causal.permuted",
            "If target i shares the property of tuple i + 1, it gets that tuple's"
            " attribute.",
            SOURCE,
            "causal",
            TRANSFERS,
            Control("its own attribute", chance(n)),
        )
    yield Claim(
        "analogy.block.causal.permuted-bridge",
        "If b_i is bridged to b_(i+1), a_i gets the answer of tuple i - 1.",
        SOURCE,
        "causal",
        TRANSFERS,
        Control("its own answer", chance(n)),
    )
    yield Claim(
        "analogy.block.causal.half-bridge",
        "Bridges for half of the tuples: those transfer, the others do not.",
        SOURCE,
        "causal",
        TRANSFERS,
        Control("tuples without bridge", chance(n // 2)),
    )


def gpt(config: Config) -> Iterator[Claim]:
    """Edits of GPT-2's residual stream."""
    n = config.gpt_entities
    analogies = [name for name in ("joint", "SA") if name in config.curricula]
    for name in (*analogies, "bridge", "no-bridge"):
        yield Claim(
            f"analogy.gpt.causal.swap.{name}",
            f"GPT-2, {NAMES.get(name, name)}: the entity's residual after block 0 of"
            " another tuple's source gives that tuple's answer.",
            SOURCE,
            "causal",
            ">= 0.95",
            Control("not patched", chance(n)),
        )
    for name in (*analogies, "bridge"):
        yield Claim(
            f"analogy.gpt.causal.removal.{name}",
            f"GPT-2, {NAMES.get(name, name)}: success without the source's centred"
            " direction after every block but the last.",
            SOURCE,
            "causal",
            "<= 0.5",
            Control("same length, random direction", ">= 0.95"),
        )

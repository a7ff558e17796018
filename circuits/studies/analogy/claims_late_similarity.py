"""Claims about attribution before similarity in the one-layer block. Free of torch.

AS_T and AS_E are the two readings of the paper; they are never merged.
"""

from collections.abc import Iterator

from circuits.claims import Claim, Control
from trained.analogy.config import Config
from trained.analogy.law import Alignment

from .wording import TRANSFERS, chance, loss, untrained

READINGS = {"AS_T": "Table 1, Theorem 3", "AS_E": "Table 1, Section 5"}


def late_similarity(config: Config, law: Alignment) -> Iterator[Claim]:
    """The claims of both readings, as far as the configuration trains them."""
    if "AS_T" in config.curricula:
        yield from _theorem3(config)
    if "AS_E" in config.curricula:
        yield from _section5(config)
    for name in READINGS:
        if name in config.curricula:
            yield from _frozen(config, name, law)


def _theorem3(config: Config) -> Iterator[Claim]:
    n = config.n_entities
    where = "when the last similarity premise is first answered"
    yield Claim(
        "analogy.block.AS_T.success",
        "Part of the similarity with the attribution first, the targets' similarity"
        f" last, values frozen: no transfer {where}.",
        READINGS["AS_T"],
        "behaviour",
        chance(n),
        Control("premises of the second phase", TRANSFERS),
        paper=0.0,
    )
    yield Claim(
        "analogy.block.AS_T.c-only",
        f"AS_T: nor does it transfer among the attribute tokens alone, {where}.",
        READINGS["AS_T"],
        "behaviour",
        chance(n),
        Control("c-only of the source itself", TRANSFERS),
    )
    yield Claim(
        "analogy.block.AS_T.retention",
        f"AS_T: the source's attribution is still known {where}, so the failure is"
        " not forgetting.",
        "Our control of Table 1",
        "behaviour",
        TRANSFERS,
        untrained(n),
    )
    yield Claim(
        "analogy.block.AS_T.coefficient",
        "AS_T: the target's V z has none of the shared property (ratio to the"
        " source's predicted coefficient), as it must: the target is not in stage 1.",
        "Lemma 11, item 2",
        "theory",
        "in [-0.1, 0.1]",
        Control("the source's V z", "in [0.9, 1.1]"),
        paper=0.0,
        gated=False,
    )


def _section5(config: Config) -> Iterator[Claim]:
    n = config.n_entities
    yield Claim(
        "analogy.block.AS_E.success",
        "Attribution, then all of the similarity, values frozen: no transfer. Not"
        " informative alone: the attribution is forgotten.",
        READINGS["AS_E"],
        "behaviour",
        chance(n),
        Control("premises of the second phase", TRANSFERS),
        paper=0.0,
        gated=False,
    )
    yield Claim(
        "analogy.block.AS_E.c-only",
        "AS_E: no transfer among the attribute tokens alone.",
        READINGS["AS_E"],
        "behaviour",
        chance(n),
        Control("premises of the second phase", TRANSFERS),
        gated=False,
    )
    yield Claim(
        "analogy.block.AS_E.retention",
        "AS_E: the similarity phase wipes out the source's attribution.",
        "ours",
        "behaviour",
        "<= 0.05",
        Control("before the similarity phase", TRANSFERS),
        gated=False,
    )


def _frozen(config: Config, name: str, law: Alignment) -> Iterator[Claim]:
    n = config.n_entities
    yield Claim(
        f"analogy.block.{name}.alignment",
        f"{name}: V z of source and target stay orthogonal, |cosine| (by construction:"
        " frozen values never see the target).",
        "Table 1, Proposition 3",
        "signal",
        f"<= {law.zero:.4g}",
        Control("values unfrozen at the end", ">= 0.5"),
        paper=0.0014,
    )
    yield Claim(
        f"analogy.block.{name}.replay",
        f"{name} with the attribution replayed, values frozen: still no transfer.",
        READINGS[name],
        "behaviour",
        chance(n),
        Control("premises of the second phase, the attribution among them", TRANSFERS),
        paper=0.0,
    )
    yield Claim(
        f"analogy.block.{name}.unfrozen",
        f"{name}: a few small steps of the values on the same data make it transfer,"
        " so the failure rests on freezing them.",
        "ours",
        "causal",
        TRANSFERS,
        Control("the same model, still frozen", chance(n)),
    )
    yield loss(f"analogy.block.{name}.loss", name, "Table 1", 4 * n + 2, paper=0.0061)

"""Claims about the one-layer block with layer-wise stages. Free of torch."""

from collections.abc import Iterator, Mapping

from circuits.claims import Claim, Control, near
from trained.analogy.config import Config
from trained.analogy.law import Alignment

from .claims_late_similarity import late_similarity
from .wording import NULL_SLACK, TRANSFERS, chance, loss, untrained

TOLERANCE = 0.02
"""Of a cosine around the alignment law."""
PAPER_COSINE: Mapping[int, float] = {1: 0.6706, 3: 0.9202, 5: 0.9405}
PAPER_LOSS: Mapping[int, float] = {1: 0.0079, 3: 0.001, 5: 0.0005}


def claims(config: Config) -> Iterator[Claim]:
    """Tables 1 and 5, Propositions 1 to 5, the lemmas' coefficients."""
    law = Alignment(config.n_entities, config.d_model)
    if "joint" in config.curricula:
        yield from _joint(config, law)
        yield from _multiplicities(config, law)
        yield from _lemmas(law)
    if "SA" in config.curricula:
        yield from _similarity_first(config, law)
    yield from late_similarity(config, law)
    yield from _bridge(config, law)
    yield from _no_bridge(config, law)


def _null(law: Alignment) -> Control:
    return Control("shifted pairs, |cosine|", f"<= {law.zero + NULL_SLACK:.4g}")


def _joint(config: Config, law: Alignment) -> Iterator[Claim]:
    k, n = config.multiplicity, config.n_entities
    yield Claim(
        "analogy.block.joint.success",
        "Joint training carries the source's attribute over to the target.",
        "Table 1, Theorem 1",
        "behaviour",
        TRANSFERS,
        Control("similarity permuted: own attribute", chance(n)),
        paper=1.0,
    )
    yield Claim(
        "analogy.block.joint.alignment",
        f"Joint training aligns V z of source and target as the law says (k = {k}).",
        "Table 1, Proposition 1",
        "signal",
        near(law.joint(k), TOLERANCE),
        _null(law),
        paper=PAPER_COSINE.get(k),
    )
    yield Claim(
        "analogy.block.joint.alignment-centred",
        "The alignment is not a direction common to all entities: cosine after"
        " centring.",
        "Table 1, our control",
        "signal",
        near(law.joint(k), TOLERANCE),
        Control("shifted pairs, |cosine|", f"<= {law.zero + NULL_SLACK + 2 / n:.4g}"),
        gated=False,
    )
    yield Claim(
        "analogy.block.attention-balance",
        "Attention stays even in stage 1: the largest |weight on the entity - 1/2|.",
        "Lemmas 6, 8, 11, 15, item 1",
        "signal",
        "<= 0.03",
        Control("init ten times larger", "> 0.03"),
        paper=0.0,
    )


def _multiplicities(config: Config, law: Alignment) -> Iterator[Claim]:
    ks, n = config.block_ks, config.n_entities
    for k in ks:
        if k != config.multiplicity:
            yield Claim(
                f"analogy.block.k{k}.alignment",
                f"With k = {k} copies of the similarity premises the alignment is the"
                " law's.",
                "Table 5",
                "signal",
                near(law.joint(k), TOLERANCE),
                _null(law),
                paper=PAPER_COSINE.get(k),
            )
        yield loss(
            f"analogy.block.k{k}.loss",
            f"joint training with k = {k}",
            "Tables 1 and 5",
            4 * n + 2,
            paper=PAPER_LOSS.get(k),
        )
    if len(ks) > 1:
        yield Claim(
            "analogy.block.k.increasing",
            "Alignment grows with k: the smallest gain from one k to the next.",
            "Table 5",
            "signal",
            "> 0",
            Control("shifted pairs, |gain|", f"<= {2 * law.zero + NULL_SLACK:.4g}"),
            paper=0.0203 if ks == (1, 3, 5) else None,
        )
    yield Claim(
        "analogy.block.k.success",
        "Joint training transfers at every k (the least success is shown).",
        "Table 5",
        "behaviour",
        TRANSFERS,
        untrained(n),
        paper=1.0,
    )


def _lemmas(law: Alignment) -> Iterator[Claim]:
    for label, role, item in (
        ("shared", "the shared property", "item 2"),
        ("attribute", "the source's further property", "item 3"),
    ):
        yield Claim(
            f"analogy.block.coefficient.{label}",
            f"Stage 1 adds the head row of {role} to V z with the predicted"
            f" coefficient {law.step_size(1):.3g} x multiplicity / N (ratio shown).",
            f"Lemma 6, {item}; its constants are lost, ours are derived",
            "theory",
            "in [0.9, 1.1]",
            Control("another tuple's property", "in [-0.1, 0.1]"),
            paper=1.0,
        )


def _similarity_first(config: Config, law: Alignment) -> Iterator[Claim]:
    n = config.n_entities
    yield Claim(
        "analogy.block.SA.success",
        "Similarity, then attribution transfers the attribute.",
        "Table 1, Theorem 2",
        "behaviour",
        TRANSFERS,
        Control("before the attribution phase", chance(n)),
        paper=1.0,
    )
    yield Claim(
        "analogy.block.SA.alignment",
        "Similarity first aligns V z of source and target as the law says.",
        "Table 1, Proposition 2",
        "signal",
        near(law.similarity_first(), TOLERANCE),
        _null(law),
        paper=0.9689,
    )
    yield Claim(
        "analogy.block.SA.coefficient",
        "The similarity phase gives V z of the target the predicted coefficient of the"
        " shared property (ratio).",
        "Lemma 8, item 2",
        "theory",
        "in [0.9, 1.1]",
        Control("another tuple's property", "in [-0.1, 0.1]"),
        paper=1.0,
    )
    yield Claim(
        "analogy.block.SA.retention",
        "The attribution phase wipes out the similarity facts (share still answered).",
        "ours",
        "behaviour",
        "<= 0.05",
        Control("before the attribution phase", TRANSFERS),
        gated=False,
    )
    yield loss("analogy.block.SA.loss", "SA", "Table 1", 4 * n + 2, paper=0.0024)


def _bridge(config: Config, law: Alignment) -> Iterator[Claim]:
    n, d_vocab = config.n_entities, 3 * config.n_entities + 3
    yield Claim(
        "analogy.block.bridge.success",
        "With identity bridges the second hop transfers to the first hop's entity.",
        "Table 1, Theorem 4",
        "behaviour",
        TRANSFERS,
        Control("no bridge", chance(n)),
        paper=1.0,
    )
    yield Claim(
        "analogy.block.bridge.alignment",
        "Identity bridges align V z of a and b as the law of joint training says.",
        "Table 1, Proposition 4",
        "signal",
        near(law.joint(config.multiplicity), TOLERANCE),
        _null(law),
        paper=0.9132,
    )
    yield Claim(
        "analogy.block.bridge.coefficient",
        "Stage 1 gives V z of a the predicted coefficient of the bridge (ratio).",
        "Lemma 15, item 2",
        "theory",
        "in [0.9, 1.1]",
        Control("another tuple's bridge", "in [-0.1, 0.1]"),
        paper=1.0,
    )
    yield loss(
        "analogy.block.bridge.loss", "two-hop, bridge", "Table 1", d_vocab, paper=0.075
    )


def _no_bridge(config: Config, law: Alignment) -> Iterator[Claim]:
    n, d_vocab = config.n_entities, 3 * config.n_entities + 3
    yield Claim(
        "analogy.block.no-bridge.success",
        "Without bridges the second hop does not transfer.",
        "Table 1, Theorem 5",
        "behaviour",
        chance(n),
        Control("both hops, alone", ">= 0.999"),
        paper=0.017,
    )
    yield Claim(
        "analogy.block.no-bridge.alignment",
        "Without bridges V z of a and b stay orthogonal, |cosine|.",
        "Table 1, Proposition 5",
        "signal",
        f"<= {law.zero:.4g}",
        Control("with the bridge", ">= 0.5"),
        paper=0.006,
    )
    yield loss(
        "analogy.block.no-bridge.loss",
        "two-hop, no bridge",
        "Table 1",
        d_vocab,
        paper=0.0676,
    )

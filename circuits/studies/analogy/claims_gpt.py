"""Claims about GPT-2 trained from scratch. Free of torch.

Similarity is read after the final norm at the last token of r2 prompts: r1 prompts
would be alike for any pair trained to the same property.
"""

from collections.abc import Iterator

from circuits.claims import Claim, Control, near
from trained.analogy.config import Config

from .wording import chance, loss, untrained

TRANSFERS = ">= 0.95"
ANSWERED = ">= 0.98"
SHIFTED = Control("shifted pairs", "<= 0.15")
PAPER = {"joint": (0.995, 0.0077), "SA": (0.7983, 0.0845)}
"""Similarity and training loss of Table 1."""
PAPER_K = {1: (0.9756, 0.0294), 3: (0.995, 0.0077), 5: (0.9979, 0.0039)}


def gpt(config: Config) -> Iterator[Claim]:
    """The GPT-2 columns of Tables 1 and 5."""
    for name in PAPER:
        if name in config.curricula:
            yield from _transfers(config, name)
    for name, least in (("AS_T", "<= 0.2"), ("AS_E", "<= 0.05")):
        if name in config.curricula:
            yield from _late_similarity(config, name, least)
            yield from _why_no_transfer(config, name)
    yield from _two_hop(config)
    if "joint" in config.curricula and len(config.gpt_ks) > 1:
        yield from _multiplicities(config)


def _transfers(config: Config, name: str) -> Iterator[Claim]:
    n = config.gpt_entities
    cosine, training_loss = PAPER[name]
    yield Claim(
        f"analogy.gpt.{name}.success",
        f"GPT-2: {name} transfers the attribute.",
        "Table 1",
        "behaviour",
        TRANSFERS,
        untrained(n),
        paper=1.0,
    )
    yield Claim(
        f"analogy.gpt.{name}.alignment",
        f"GPT-2: {name} aligns source and target.",
        "Table 1",
        "signal",
        ">= 0.85",
        SHIFTED,
        paper=cosine,
    )
    yield Claim(
        f"analogy.gpt.{name}.alignment-centred",
        f"GPT-2, {name}: the alignment after centring.",
        "Table 1, our control",
        "signal",
        ">= 0.85",
        SHIFTED,
        gated=False,
    )
    d_vocab = 4 * n + 2
    row = f"GPT-2, {name}"
    yield loss(f"analogy.gpt.{name}.loss", row, "Table 1", d_vocab, paper=training_loss)


def _late_similarity(config: Config, name: str, least: str) -> Iterator[Claim]:
    n = config.gpt_entities
    yield Claim(
        f"analogy.gpt.{name}.success",
        f"GPT-2, {name}: no transfer on the full argmax; read it with c-only,"
        " retention and replay.",
        "Table 1",
        "behaviour",
        least,
        Control("premises of the second phase", ANSWERED),
        paper=0.007,
    )
    yield Claim(
        f"analogy.gpt.{name}.alignment",
        f"GPT-2, {name}: similarity, beside the paper's value.",
        "Table 1",
        "signal",
        near(0.4326, 0.1),
        SHIFTED,
        paper=0.4326,
        gated=False,
    )
    row = f"GPT-2, {name}"
    yield loss(f"analogy.gpt.{name}.loss", row, "Table 1", 4 * n + 2, paper=0.0085)


def _why_no_transfer(config: Config, name: str) -> Iterator[Claim]:
    """What success hides: drift of the output, forgetting, the effect of replay."""
    n = config.gpt_entities
    yield Claim(
        f"analogy.gpt.{name}.c-only",
        f"GPT-2, {name}: among the attribute tokens alone the target's is first, so"
        " the representation did transfer.",
        "ours",
        "behaviour",
        ">= 0.8",
        untrained(n),
        gated=False,
    )
    keeps = name == "AS_T"
    verb = "survives" if keeps else "is wiped out by"
    yield Claim(
        f"analogy.gpt.{name}.retention",
        f"GPT-2, {name}: the source's attribution {verb} the second phase.",
        "ours",
        "behaviour",
        ">= 0.9" if keeps else "<= 0.05",
        Control("before the second phase", ANSWERED),
        gated=False,
    )
    yield Claim(
        f"analogy.gpt.{name}.replay",
        f"GPT-2, {name}: with the attribution replayed it transfers.",
        "ours",
        "behaviour",
        TRANSFERS,
        Control("before the second phase", chance(n)),
        gated=False,
    )


def _two_hop(config: Config) -> Iterator[Claim]:
    d_vocab = 3 * config.gpt_entities + 3
    yield Claim(
        "analogy.gpt.bridge.success",
        "GPT-2: with identity bridges the second hop transfers.",
        "Table 1",
        "behaviour",
        TRANSFERS,
        Control("no bridge", "<= 0.05"),
        paper=0.997,
    )
    yield Claim(
        "analogy.gpt.no-bridge.success",
        "GPT-2: without bridges it does not.",
        "Table 1",
        "behaviour",
        "<= 0.05",
        Control("both hops, alone", ANSWERED),
        paper=0.0,
    )
    yield Claim(
        "analogy.gpt.no-bridge.c-only",
        "GPT-2: without bridges, not among the answer tokens alone either.",
        "Table 1",
        "behaviour",
        "<= 0.2",
        Control("with the bridge", TRANSFERS),
    )
    yield Claim(
        "analogy.gpt.bridge.alignment-gap",
        "GPT-2: bridges align a and b: similarity with minus without them.",
        "Table 1",
        "signal",
        ">= 0.7",
        SHIFTED,
        paper=0.9482,
    )
    for name, training_loss in (("bridge", 0.0953), ("no-bridge", 0.1024)):
        row = f"GPT-2, two-hop, {name}"
        yield loss(
            f"analogy.gpt.{name}.loss", row, "Table 1", d_vocab, paper=training_loss
        )


def _multiplicities(config: Config) -> Iterator[Claim]:
    n, ks = config.gpt_entities, config.gpt_ks
    for k in ks:
        cosine, training_loss = PAPER_K.get(k, (None, None))
        gated = k >= 3
        yield Claim(
            f"analogy.gpt.k{k}.success",
            f"GPT-2: joint training transfers with k = {k}."
            + ("" if gated else " Needs a small init; reported only."),
            "Table 5",
            "behaviour",
            TRANSFERS,
            untrained(n),
            paper=1.0,
            gated=gated,
        )
        yield Claim(
            f"analogy.gpt.k{k}.alignment",
            f"GPT-2: similarity with k = {k}, beside the paper's value.",
            "Table 5",
            "signal",
            ">= 0.85",
            SHIFTED,
            paper=cosine,
            gated=False,
        )
        row = f"GPT-2, joint, k = {k}"
        yield loss(
            f"analogy.gpt.k{k}.loss", row, "Table 5", 4 * n + 2, paper=training_loss
        )
    yield Claim(
        "analogy.gpt.k.increasing",
        "GPT-2: alignment grows with k (the least gain).",
        "Table 5",
        "signal",
        "> 0",
        SHIFTED,
    )

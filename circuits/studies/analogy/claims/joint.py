"""Joint training aligns source and target, and the attribute transfers. Torch-free."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from circuits.claims import UNTRAINED, Claim, Null
from circuits.conditions import Each, Mean, Measure, near
from trained.analogy.config import Config
from trained.analogy.theory import Alignment

from .expected import (
    absolute,
    at_chance,
    difference,
    fails,
    gpt_2,
    succeeds,
    untrained,
)

PAPER_COSINE = {1: 0.6706, 3: 0.9202, 5: 0.9405}
"""Of the one-layer block by k, Table 5."""
KS = tuple(PAPER_COSINE)
GPT_REVISED = (
    "Step 8: quick trains 16 tuples at width 72 for 200 fixed steps at rate 2e-3,"
    " chosen on seeds 100 to 102; until then 24 tuples to the paper's loss, one seed"
)
SLACK = 0.01
"""Of a null's cosine, beyond what the number of pairs allows."""
STAGE_1 = (
    ("joint", "target", "shared"),
    ("joint", "source", "answer"),
    ("SA", "target", "shared"),
    ("AS_T", "source", "shared"),
    ("bridge", "target", "shared"),
    ("no_bridge", "target", "shared"),
)
"""Whose V z gains which head row, by curriculum."""


PAPER_STRENGTH = 0.9689
"""Cosine of SA, which stage 1 is calibrated on."""


def calibrated(config: Config) -> str:
    """Why the paper's cosines are no prediction at this configuration; else empty."""
    found = Alignment.at(config).similarity_first()
    if abs(found - PAPER_STRENGTH) <= 0.002:
        return ""
    return (
        f"stage 1 gives SA a cosine of {found:.3f}, the paper's numbers belong to one"
        f" of {PAPER_STRENGTH}"
    )


def claims(config: Config) -> Iterator[Claim]:
    """H1 of the paper."""
    yield _block_success(config)
    yield _block_cosine(config)
    yield _block_limit(config)
    yield _stage_1(config)
    yield _gpt_success(config)
    yield _gpt_multiplicities(config)
    yield from _cause(config)


def _block_success(config: Config) -> Claim:
    n = config.block.n_entities
    return Claim(
        "analogy.joint.block.success",
        "Joint training fits its premises and carries the source's attribute over to"
        " the target.",
        "Theorem 1, Table 1",
        "behaviour",
        (
            succeeds("success", n, lambda lab: lab.success(lab.joint("block"))),
            Each("loss", "<= 0.01", lambda lab: lab.loss(lab.joint("block"))),
        ),
        (
            untrained(n),
            fails(
                "S_tgt permuted",
                n,
                lambda lab: lab.success("block-permuted"),
                config.null_seeds,
            ),
            fails(
                "S_tgt omitted",
                n,
                lambda lab: lab.success("block-omitted"),
                config.null_seeds,
            ),
        ),
        weight=5,
        paper=1.0,
        controls=(
            succeeds(
                "S_tgt permuted: the next tuple's attribute",
                n,
                lambda lab: lab.answers_as("block-permuted", 1),
            ),
        ),
    )


def _block_cosine(config: Config) -> Claim:
    law = Alignment.at(config)
    bound = f"<= {law.zero + SLACK:.4g}"

    def cosine(k: int) -> Measure:
        return lambda lab: lab.cosine(lab.joint("block", k))

    def shifted(k: int) -> Measure:
        return lambda lab: absolute(lab.cosine(lab.joint("block", k), "shifted"))

    return Claim(
        "analogy.joint.block.cosine",
        "The mean cosine of V z of source and target grows with k, the copies of the"
        " similarity premises.",
        "Proposition 1, Tables 1 and 5",
        "signal",
        (
            *(Mean(f"k = {k}", near(PAPER_COSINE[k], 0.02), cosine(k)) for k in KS),
            Each("least gain", "> 0", lambda lab: lab.gains("block", KS)),
        ),
        (
            UNTRAINED,
            *(Null(f"shifted pairs, k = {k}", None, shifted(k), bound) for k in KS),
            Null(
                "shifted pairs, gain",
                measure=lambda lab: absolute(lab.gains("block", KS, "shifted")),
                bound=f"<= {2 * law.zero + SLACK:.4g}",
            ),
            Null(
                "S_tgt permuted",
                measure=lambda lab: absolute(lab.cosine("block-permuted")),
                bound=bound,
            ),
        ),
        weight=4,
        paper=PAPER_COSINE[1],
        not_tested=calibrated(config),
    )


def _block_limit(config: Config) -> Claim:
    law, block, strength = Alignment.at(config), config.block, config.values.limit
    ks, main = block.limit_ks, block.limit_k
    expected = 1 - law.joint(main, strength)

    def rest(arm: str) -> Measure:
        return lambda lab: [1 - cosine for cosine in lab.cosine(arm)]

    def falls(lab: Any) -> list[float]:
        rows = [rest(f"block-limit-k{k}")(lab) for k in ks]
        columns = zip(*rows, strict=True)
        return [min(a - b for a, b in pairwise(column)) for column in columns]

    return Claim(
        "analogy.joint.block.limit",
        "The cosine of V z of source and target tends to 1 as k grows, where stage 1 is"
        f" {strength:g} times as strong: 1 - cosine falls at every k of"
        f" {', '.join(map(str, ks))}.",
        "Proposition 1, Remark 2 (the formula is lost; its weakest reading)",
        "signal",
        (
            Each(f"1 - cosine, k = {main}", "<= 0.02", rest(f"block-limit-k{main}")),
            Each("least fall", "> 0", falls),
        ),
        (
            UNTRAINED,
            Null(f"stage 1 as elsewhere, k = {main}", measure=rest("block-weak")),
        ),
        weight=2,
        not_tested=f"the law gives so weak a stage 1 {expected:.3f}"
        if expected > 0.015
        else "",
    )


def _stage_1(config: Config) -> Claim:
    def coefficient(name: str, entity: str, label: str, shift: int) -> Measure:
        return lambda lab: lab.coefficient(
            lab.named("block", name), entity, label, shift
        )

    def imbalance(name: str) -> Measure:
        return lambda lab: lab.imbalance(lab.named("block", name))

    evenly = ("joint", "SA", "AS_T", "no_bridge")
    return Claim(
        "analogy.joint.block.stage1",
        "In stage 1 attention stays even (largest |weight on the entity - 1/2|) and"
        " V z of an entity gains the head row of its label with the derived"
        " coefficient (ratio of measured to derived).",
        "Lemmas 6, 8, 11, 15, items 1 and 2; their constants are lost, ours derived",
        "signal",
        (
            *(Each(f"imbalance, {n}", "<= 0.03", imbalance(n)) for n in evenly),
            *(
                Each(
                    f"ratio, {name}: {label} in {entity}",
                    "in [0.9, 1.1]",
                    coefficient(name, entity, label, 0),
                )
                for name, entity, label in STAGE_1
            ),
        ),
        (
            UNTRAINED,
            Null(
                f"init {config.block.large_init:g} times larger",
                measure=lambda lab: lab.imbalance("block-large_init"),
                bound="> 0.03",
            ),
            *(
                Null(
                    f"another tuple's row, {name}: {label} in {entity}",
                    measure=coefficient(name, entity, label, 1),
                    bound="in [-0.1, 0.1]",
                )
                for name, entity, label in STAGE_1
            ),
        ),
        weight=2,
        paper=0.0,
        revised="Step 8: what an even softmax takes from every row is put back; without"
        " it 9 tuples give 0.895, 40 tuples 0.975",
    )


def _gpt_success(config: Config) -> Claim:
    n = config.gpt.n_entities
    return Claim(
        "analogy.joint.gpt.success",
        f"{gpt_2(config)}:"
        " joint training transfers, and aligns source and target (final-norm"
        " state at the last token of r2 prompts).",
        "Table 1",
        "behaviour",
        (
            succeeds("success", n, lambda lab: lab.success(lab.joint("gpt"))),
            Each("cosine", ">= 0.95", lambda lab: lab.cosine(lab.joint("gpt"))),
        ),
        (
            untrained(n),
            Null(
                "shifted pairs",
                measure=lambda lab: lab.cosine(lab.joint("gpt"), "shifted"),
                bound="<= 0.15",
            ),
            _gpt_permuted(config),
        ),
        weight=4,
        paper=1.0,
        revised=GPT_REVISED,
    )


def _gpt_multiplicities(config: Config) -> Claim:
    n = config.gpt.n_entities

    def success(k: int) -> Measure:
        return lambda lab: lab.success(lab.joint("gpt", k))

    def more(quantity: str, larger: int, smaller: int) -> Measure:
        def gap(lab: Any) -> list[float]:
            read = getattr(lab, quantity)
            return difference(*(read(lab.joint("gpt", k)) for k in (larger, smaller)))

        return gap

    missing = [k for k in KS if k not in config.gpt_ks]
    why = f"k = {missing} is not trained here; decided at --preset paper"
    if config.gpt.loss is not None:
        why = "phases end at a loss (gpt.loss), not after equal steps"
    return Claim(
        "analogy.joint.gpt.k",
        f"{gpt_2(config)}:"
        " every k transfers; with equal steps alignment grows and the final loss"
        " falls with k.",
        "Table 5",
        "behaviour",
        (
            *(succeeds(f"success, k = {k}", n, success(k)) for k in KS),
            Mean("cosine, k3 - k1", "> 0", more("cosine", 3, 1)),
            Mean("cosine, k5 - k3", "> 0", more("cosine", 5, 3)),
            Each("cosine, k5 - k1", "> 0", more("cosine", 5, 1)),
            Mean("loss, k1 - k3", "> 0", more("loss", 1, 3)),
            Mean("loss, k3 - k5", "> 0", more("loss", 3, 5)),
        ),
        (untrained(n), _gpt_permuted(config)),
        weight=2,
        not_tested=why if missing or config.gpt.loss is not None else "",
    )


def _gpt_permuted(config: Config) -> Null:
    return fails(
        "S_tgt permuted",
        config.gpt.n_entities,
        lambda lab: lab.success("gpt-permuted"),
        config.null_seeds,
    )


def _cause(config: Config) -> Iterator[Claim]:
    names = ("joint", "SA", "bridge")

    def of(part: str, name: str, quantity: str) -> Measure:
        return lambda lab: getattr(lab, quantity)(lab.named(part, name))

    def as_it_is(part: str, n: int) -> Iterator[Each]:
        return (succeeds(f"{x}, as it is", n, of(part, x, "success")) for x in names)

    def beside(part: str, n: int) -> tuple[Each, ...]:
        label = "same length, random direction"
        return tuple(
            succeeds(f"{x}: {label}", n, of(part, x, "without_random")) for x in names
        )

    n = config.block.n_entities
    yield Claim(
        "analogy.joint.cause.block",
        "Alignment carries the property: without its component along V z of the"
        " source the target loses the answer.",
        "Section 4.2",
        "causal",
        (
            *(at_chance(x, n, of("block", x, "without_source")) for x in names),
            *as_it_is("block", n),
        ),
        (UNTRAINED,),
        controls=beside("block", n),
        weight=2,
        revised="Step 8: that the target answers before the edit is a condition too;"
        " without it the claim held of an untrained block",
    )
    n = config.gpt.n_entities
    yield Claim(
        "analogy.joint.cause.gpt",
        f"{gpt_2(config)}:"
        " the same with the source's centred direction after every block but the"
        " last, at both positions.",
        "Section 4.2",
        "causal",
        (
            *(Each(x, "<= 0.5", of("gpt", x, "without_source")) for x in names),
            *as_it_is("gpt", n),
        ),
        (UNTRAINED,),
        controls=beside("gpt", n),
        weight=1,
        revised="Step 2: the control's random direction was the same after every block"
        " and broke the answers too (0.83); since then drawn anew for each. Step 8: as"
        " for the block",
    )

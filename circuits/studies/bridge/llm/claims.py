"""Claims about two-hop facts in a pretrained language model, and the sizes of it.

After fine-tuning on single hops, the paper sees the object become likelier under a
prompt that leaves the first relation out ("The capital city of Machu Picchu is"), and
reads this as an identity bridge that pretraining has laid. dp is p(e3 | omit) after
minus before, over all tokens of e3. Rows fall into S1 (two-hop right before and after),
S2 (wrong, then right) and S3 (wrong after, though both hops are right). The text names
neither models nor settings.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

from circuits.claims import Claim, Null, under
from circuits.conditions import Condition, Each, Mean, Measure

from .resampled import Bootstrap, Unchanged
from .settings import Settings

leaf = partial(Claim, source="Section 4.5, Figure 8", kind="behaviour")
ours = partial(Claim, source="ours", origin="ours")


def claims(settings: Settings) -> Iterator[Claim]:
    """What the paper says of language models, and what we add."""
    headline = "An identity bridge laid in pretraining"
    what = f"{settings.bridges} bridges, trained: {settings.layers}"
    yield from under(headline, _paper(what))
    yield from under("Ours: fine-tuning", _taught())
    yield from under("Ours: layers", _layers())


def rise(subset: str, **options: Any) -> Measure:
    """The dp of a subset's rows, bridge by bridge; see the lab's `rise`."""
    return lambda lab: lab.rise(subset, **options)


LEARNED = Each("rise of the single hops", "> 0", lambda lab: lab.each(lab.one_hop_rise))
"""Of the model before fine-tuning: without it nothing was taught."""


def _paper(what: str) -> Iterator[Claim]:
    yield _omit_rise(what)
    yield _still_wrong(what)
    yield _identity_no_gain(what)


def _omit_rise(what: str) -> Claim:
    beyond: dict[str, dict[str, Any]] = {
        "another object's": {"beyond": "other object"},
        "hop-1 answers permuted": {"beyond": "permuted"},
    }
    conditions: list[Condition] = [
        Bootstrap(f"dp, {subset}", "> 0", rise(subset)) for subset in ("S1", "S2")
    ]
    for name, options in beyond.items():
        conditions += [
            Bootstrap(f"dp beyond {name}, {subset}", "> 0", rise(subset, **options))
            for subset in ("S1", "S2")
        ]
    return leaf(
        "bridge.llm.omit-rise",
        "Fine-tuning on single hops makes the object likelier without the first"
        " relation, where the two-hop question is right after it (S1, S2), also beyond"
        " another object of the same kind and beyond a fine-tuning with wrong bridges"
        f" ({what}; interval: bootstrap over bridges).",
        conditions=tuple(conditions),
        preconditions=(LEARNED,),
        controls=(
            Each(
                "rows dropped that tell the answer", ">= 0", lambda lab: [lab.dropped]
            ),
        ),
        nulls=tuple(
            Null(f"{name}: dp minus the true one", measure=_deficit(null), bound="< 0")
            for name, null in {
                "hop-1 answers permuted among bridges": "permuted",
                "hop 2 alone": "second",
                "another subject of another bridge": "other subject",
            }.items()
        ),
        weight=4,
    )


def _deficit(null: str) -> Measure:
    """The dp of a null minus the true one, S1 and S2 together, bridge by bridge."""
    return lambda lab: [-value for value in lab.rise("S12", beyond=null)]


def _still_wrong(what: str) -> Claim:
    return leaf(
        "bridge.llm.still-wrong",
        "Where the two-hop question stays wrong though both hops are right (S3), the"
        f" object rises only slightly: less than half as much as in S2 ({what}).",
        conditions=(
            Bootstrap(
                "dp, S3 minus half of S2", "< 0", lambda lab: lab.against_half("S3")
            ),
            Bootstrap("dp, S3", ">= 0", rise("S3")),
        ),
        preconditions=(LEARNED,),
        nulls=(Null("S2 in place of S3", measure=lambda lab: lab.against_half("S2")),),
        weight=3,
    )


def _identity_no_gain(what: str) -> Claim:
    return leaf(
        "bridge.llm.identity-no-gain",
        "Adding identity lines (e2 is e2) to the fine-tuning has no significant effect"
        f" on two-hop questions: difference of the accuracies ({what}).",
        conditions=(
            Unchanged(
                "gain of identity lines",
                "in [-0.1, 0.1]",
                lambda lab: lab.two_hop_gain("identity"),
            ),
        ),
        preconditions=(LEARNED,),
        nulls=(
            Null(
                "gain of the fine-tuning itself, before to after",
                measure=lambda lab: lab.two_hop_gain("before"),
            ),
        ),
        weight=2,
    )


def _taught() -> Iterator[Claim]:
    yield ours(
        "bridge.ours.llm.two-hop",
        "Fine-tuning on single hops improves two-hop answers: difference of the"
        " accuracies (greedy).",
        kind="behaviour",
        conditions=(Bootstrap("gain", "> 0", lambda lab: lab.two_hop_gain("before")),),
        nulls=(
            Null(
                "hop-1 answers permuted",
                measure=lambda lab: lab.two_hop_gain("before", after="permuted"),
                bound="<= 0.05",
            ),
        ),
    )
    yield ours(
        "bridge.ours.llm.restricted",
        "Two-hop answers among all objects of the same second relation: accuracy after"
        " fine-tuning.",
        kind="behaviour",
        conditions=(Bootstrap("accuracy", ">= 0.5", lambda lab: lab.restricted()),),
        nulls=(
            Null(
                "the object of another row",
                measure=lambda lab: lab.restricted(lent=True),
                bound="<= 0.2",
            ),
        ),
    )


def _layers() -> Iterator[Claim]:
    yield ours(
        "bridge.ours.llm.bridge-rank",
        "The bridge can be read at the subject's last token of a two-hop prompt under"
        " the lens, in the layer that was best on other rows: how many times better the"
        " rank of its first token is than that of another bridge, powers of ten.",
        kind="signal",
        conditions=(Mean("gain", ">= 0.3", lambda lab: lab.each(lab.bridge_rank)),),
        nulls=(
            Null("random weights", on=lambda lab: lab.twin(), bound="in [-0.2, 0.2]"),
        ),
    )
    yield ours(
        "bridge.ours.llm.alignment",
        "The first hop's output aligns with the bridge's own state: centred cosine at"
        " the last token, best layer on other rows (the paper expects none).",
        kind="signal",
        conditions=(
            Mean(
                "cosine", ">= 0.1", lambda lab: lab.each(lambda s: lab.alignment(s)[0])
            ),
        ),
        nulls=(
            Null(
                "another bridge",
                measure=lambda lab: lab.each(lambda s: lab.alignment(s)[1]),
                bound="in [-0.1, 0.1]",
            ),
        ),
    )

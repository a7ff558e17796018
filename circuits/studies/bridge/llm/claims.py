"""Claims about two-hop facts in a pretrained language model, and the sizes of it.

Prompts go from a landmark over its country to the country's capital or language. After
fine-tuning on single hops, the paper sees the object become likelier under a prompt
that leaves the first hop out ("The capital city of Machu Picchu is"), and reads this as
an identity bridge that pretraining has laid. What rises for all objects alike, or for
every landmark alike, is taken off.

Expectations that are ours were written down before any of it was measured.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from circuits.claims import Claim, Null, under
from circuits.conditions import Mean
from trained.config import Preset, require
from trained.finetuning_config import LIGHT, FineTuning


@dataclass(frozen=True)
class Settings:
    """Sizes of the experiment; the paper states none."""

    n_places: int = 12
    """Landmarks that a seed draws for fine-tuning; layers are judged on all."""
    least_places: int = 12
    """With fewer landmarks of single tokens nothing is measured."""
    at_once: int = 16
    """Prompts in one pass."""
    landmark_after: int = 3
    """How far on in the list the search for a lent landmark begins."""
    object_after: int = 5
    """How far on in the list the search for a lent object begins."""
    tuning: FineTuning = LIGHT
    """How the single hops are taught."""

    def __post_init__(self) -> None:
        for name in ("n_places", "least_places"):
            require(getattr(self, name) >= 4, f"{name}={getattr(self, name)}: >= 4")
        for name in ("at_once", "landmark_after", "object_after"):
            require(getattr(self, name) >= 1, f"{name}={getattr(self, name)}: >= 1")


PRESETS = {"quick": Preset(Settings(), n_seeds=3, cost="about five minutes")}

ours = partial(Claim, source="ours", origin="ours")
later = partial(
    Claim,
    source="Section 4.5, Figure 8",
    kind="behaviour",
    not_tested="not measured yet",
)


def claims(settings: Settings) -> Iterator[Claim]:
    """What the paper says of language models, and what we add."""
    del settings  # Expectations do not depend on sizes.
    headline = "An identity bridge laid in pretraining"
    yield from under(headline, _paper())
    yield from under("Ours: fine-tuning", (*_taught(), *_identity(), *_omitted()))
    yield from under("Ours: layers", _layers())


def _paper() -> Iterator[Claim]:
    yield later(
        "bridge.llm.omit-rise",
        "Fine-tuning on single hops makes the object likelier without the first hop,"
        " where the two-hop question is right after it.",
        weight=4,
    )
    yield later(
        "bridge.llm.still-wrong",
        "Where the two-hop question stays wrong, it rises only slightly.",
        weight=3,
    )
    yield later(
        "bridge.llm.identity-no-gain",
        "Adding identity facts to the fine-tuning has no significant effect.",
        weight=2,
    )


def _taught() -> Iterator[Claim]:
    yield ours(
        "bridge.ours.llm.one-hop",
        "Fine-tuning teaches the single hops: right answers among those of the same"
        " kind, both hops.",
        kind="behaviour",
        conditions=(
            Mean("one-hop", ">= 0.9", lambda lab: lab.each(lambda s: lab.after(s).one)),
        ),
        nulls=(
            Null(
                "before fine-tuning",
                measure=lambda lab: lab.each(lambda s: lab.before(s).one),
            ),
        ),
    )
    yield ours(
        "bridge.ours.llm.two-hop",
        "Two hops in one question: right answers among those of the same kind, after"
        " fine-tuning on single hops.",
        kind="behaviour",
        conditions=(
            Mean(
                "two-hop",
                ">= 0.5",
                lambda lab: lab.each(lambda s: lab.after(s).two.accuracy),
            ),
        ),
        nulls=(
            Null(
                "answers of another landmark",
                measure=lambda lab: lab.each(lambda s: lab.after(s).two.lent),
                bound="<= 0.2",
            ),
        ),
    )


def _identity() -> Iterator[Claim]:
    yield ours(
        "bridge.ours.llm.identity",
        "Adding identity facts to the fine-tuning brings no clear gain on two hops:"
        " difference of the accuracies.",
        kind="behaviour",
        conditions=(
            Mean(
                "gain on two hops",
                "in [-0.1, 0.1]",
                lambda lab: lab.each(
                    lambda s: (
                        lab.after(s, identity=True).two.accuracy
                        - lab.after(s).two.accuracy
                    )
                ),
            ),
        ),
        controls=(
            Mean(
                "gain on single hops",
                "in [-0.1, 0.1]",
                lambda lab: lab.each(
                    lambda s: lab.after(s, identity=True).one - lab.after(s).one
                ),
            ),
        ),
    )


def _omitted() -> Iterator[Claim]:
    yield ours(
        "bridge.ours.llm.omit-shift",
        "Fine-tuning on single hops makes the object likelier when the first hop is"
        " left out: rise of its log-probability beyond that of another object, nats.",
        kind="behaviour",
        conditions=(
            Mean("rise", "> 0", lambda lab: lab.each(lambda s: lab.rise(s).own.mean())),
        ),
        nulls=(
            Null(
                "with another landmark",
                measure=lambda lab: lab.each(lambda s: lab.rise(s).lent.mean()),
                bound="in [-0.5, 0.5]",
            ),
        ),
    )
    yield ours(
        "bridge.ours.llm.omit-shift.subset",
        "It rises more where the two-hop question is right after fine-tuning than"
        " where it is wrong: difference, nats.",
        kind="behaviour",
        conditions=(Mean("difference", "> 0", lambda lab: lab.right_lead("own")),),
        nulls=(
            Null(
                "with another landmark",
                measure=lambda lab: lab.right_lead("lent"),
                bound="in [-0.5, 0.5]",
            ),
        ),
    )
    yield ours(
        "bridge.ours.llm.omit",
        "Even before fine-tuning the object is likelier under its own landmark than"
        " under another, with the first hop left out: nats.",
        kind="behaviour",
        conditions=(
            Mean(
                "excess",
                ">= 0.5",
                lambda lab: lab.each(lambda s: lab.before(s).omitted.excess),
            ),
        ),
        nulls=(
            Null("random weights", on=lambda lab: lab.twin(), bound="in [-0.1, 0.1]"),
        ),
    )


def _layers() -> Iterator[Claim]:
    yield ours(
        "bridge.ours.llm.bridge-rank",
        "The country can be read at the landmark's last token under the lens, in the"
        " layer that was best on other landmarks: how many times better its rank is"
        " than that of another country, powers of ten.",
        kind="signal",
        conditions=(Mean("gain", ">= 0.3", lambda lab: lab.each(lab.bridge_rank)),),
        nulls=(
            Null("random weights", on=lambda lab: lab.twin(), bound="in [-0.2, 0.2]"),
        ),
    )
    yield ours(
        "bridge.ours.llm.alignment",
        "The first hop's output aligns with the country's own state: centred cosine at"
        " the last token, best layer on other landmarks (the paper expects none).",
        kind="signal",
        conditions=(
            Mean(
                "cosine", ">= 0.1", lambda lab: lab.each(lambda s: lab.alignment(s)[0])
            ),
        ),
        nulls=(
            Null(
                "another country",
                measure=lambda lab: lab.each(lambda s: lab.alignment(s)[1]),
                bound="in [-0.1, 0.1]",
            ),
        ),
    )

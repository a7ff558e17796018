"""Claims about analogies between real subjects in a fine-tuned language model.

A fact pairs two subjects that share an aspect ("Falcon is capable of diving at prey",
"Kestrel is capable of diving at prey") and names the category of the first ("Falcon is
classified as raptor"). The second subject's category is held out. Three curricula train
on the same sentences: all at once (joint), similarity before attribution (SA), and
attribution before similarity (AS), which the paper sees fail.

Success is, among our own claims, the right category among those of all facts at hand,
told apart by their first tokens; the paper decodes the whole category. Free of torch.
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
    """Sizes of the experiment."""

    n_facts: int = 12
    """Facts that a seed fine-tunes on; the paper has about 100."""
    n_aligned: int = 32
    """Facts whose subjects are compared without fine-tuning; as many choose the
    layer."""
    at_once: int = 16
    """Prompts in one pass."""
    kept: float = 0.2
    """Share of the MLP's activations that count as large [20 %]."""
    tuning: FineTuning = LIGHT
    """How the facts are taught."""

    def __post_init__(self) -> None:
        for name in ("n_facts", "n_aligned"):
            require(getattr(self, name) >= 2, f"{name}={getattr(self, name)}: >= 2")
        require(self.at_once >= 1, f"at_once={self.at_once}: at least 1")
        require(0 < self.kept <= 1, f"kept={self.kept}: above 0, at most 1")


PRESETS = {
    "quick": Preset(Settings(), n_seeds=3, cost="about five minutes"),
    "paper": Preset(
        Settings(n_facts=100, tuning=FineTuning()), n_seeds=3, cost="for a GPU"
    ),
}

ours = partial(Claim, origin="ours", source="ours")
later = partial(Claim, not_tested="not measured yet")


def claims(settings: Settings) -> Iterator[Claim]:
    """The paper's leaves, and what else is seen."""
    del settings
    yield from under("Analogies in language models", _paper())
    yield from under("Ours", [*_restricted(), *_alignment()])


def _paper() -> Iterator[Claim]:
    yield later(
        "analogy.llm.transfer",
        "Joint training and SA carry the category over to the second subject: the"
        " whole category is decoded.",
        "Table 2",
        "behaviour",
        weight=4,
    )
    yield later(
        "analogy.llm.order",
        "AS carries less over than joint training and SA.",
        "Tables 2 and 3",
        "behaviour",
        weight=5,
    )
    yield Claim(
        "analogy.llm.similarity",
        "The two subjects' states are least alike after AS: raw cosine after the final"
        ' norm, last token of "[S] is classified as", differences.',
        "Table 2",
        "signal",
        (
            Mean("joint - AS", "> 0", lambda lab: lab.gap("similarity", "joint")),
            Mean("SA - AS", "> 0", lambda lab: lab.gap("similarity", "SA")),
        ),
        (
            Null(
                "shifted pairs beyond half of it, joint - AS",
                measure=lambda lab: lab.beyond_half("similarity", "joint"),
                bound="<= 0",
            ),
            Null(
                "shifted pairs beyond half of it, SA - AS",
                measure=lambda lab: lab.beyond_half("similarity", "SA"),
                bound="<= 0",
            ),
        ),
        weight=3,
    )
    yield later(
        "analogy.llm.sparse",
        "The same where, at the tokens of the relation, only the fifth of the MLP's"
        " activations that are largest is kept and the model runs on.",
        "Table 3",
        "causal",
        weight=3,
    )


def _restricted() -> Iterator[Claim]:
    """Success among the categories at hand."""
    before = Null(
        "before fine-tuning", measure=lambda lab: lab.success("before"), bound="<= 0.5"
    )
    yield ours(
        "analogy.ours.llm.joint",
        "Similarity and attribution trained together carry the category over to the"
        " second subject: held-out success among the categories at hand.",
        kind="behaviour",
        conditions=(Mean("success", ">= 0.7", lambda lab: lab.success("joint")),),
        nulls=(before,),
    )
    yield ours(
        "analogy.ours.llm.SA",
        "Similarity first, attribution after it, carries the category over: held-out"
        " success among the categories at hand.",
        kind="behaviour",
        conditions=(Mean("success", ">= 0.7", lambda lab: lab.success("SA")),),
        nulls=(before,),
    )
    yield ours(
        "analogy.ours.llm.order",
        "Attribution first and similarity after it carries less over: mean success of"
        " joint and SA minus that of AS. If AS has forgotten the first subjects, that"
        " explains it instead.",
        kind="behaviour",
        conditions=(Mean("difference", ">= 0.15", lambda lab: lab.order()),),
        controls=(
            Mean(
                "first subjects still right after AS",
                ">= 0.5",
                lambda lab: lab.retained("AS"),
            ),
        ),
    )
    yield ours(
        "analogy.ours.llm.permuted",
        "Joint training carries over even a category that nobody could know: held-out"
        " success with categories exchanged between facts.",
        kind="behaviour",
        conditions=(Mean("success", ">= 0.5", lambda lab: lab.success("permuted")),),
        nulls=(
            Null(
                "before fine-tuning",
                measure=lambda lab: lab.success("permuted before"),
                bound="<= 0.2",
            ),
        ),
    )


def _alignment() -> Iterator[Claim]:
    yield ours(
        "analogy.ours.llm.sparse",
        "The largest of the MLP's activations, read and not intervened on, are more"
        ' alike after joint training than after AS at the tokens of "is classified'
        ' as": cosine, mean over tokens and layers, difference.',
        kind="signal",
        conditions=(Mean("joint - AS", "> 0", lambda lab: lab.gap("sparse", "joint")),),
        nulls=(
            Null(
                "shifted pairs",
                measure=lambda lab: lab.gap("sparse", "joint", shifted=True),
                bound="in [-0.05, 0.05]",
            ),
        ),
    )
    yield ours(
        "analogy.ours.llm.alignment",
        "Before any fine-tuning the two subjects of a fact are aligned: centred cosine"
        " at the subject's last token, layer chosen on other facts.",
        kind="signal",
        conditions=(Mean("cosine", ">= 0.1", lambda lab: lab.aligned()),),
        nulls=(
            Null(
                "shifted pairs",
                measure=lambda lab: lab.aligned(shifted=True),
                bound="<= 0.05",
            ),
        ),
    )
    yield ours(
        "analogy.ours.llm.alignment-twin",
        "They are aligned by more than the words that some of them share: centred"
        " cosine minus that of shifted pairs, layer chosen on other facts.",
        kind="signal",
        conditions=(Mean("excess", ">= 0.1", lambda lab: lab.excess()),),
        nulls=(Null("random weights", on=lambda lab: lab.twin(), bound="<= 0.05"),),
    )

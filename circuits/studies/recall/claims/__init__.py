"""What the recall paper says, headline by headline, and what we say beside it."""

from collections.abc import Iterator

from circuits.claims import Claim, Kind, under
from trained.recall.config import Config

from . import constructed, mechanism, ours, theory


def claims(config: Config) -> Iterator[Claim]:
    """The tree at a configuration."""
    measured = {
        "Memory and the need for two steps": theory.memory(config),
        "Three subjects (Theorem 2)": theory.warmup(config),
        "Few prompts, any n (Theorems 1, 3)": (),
        "Constructed memory (Figures 2, 3)": constructed.claims(config),
        "Pretrained memory (Figure 4)": (),
        "Mechanism, by edits of W_KQ": mechanism.claims(config),
    }
    for headline, leaves in measured.items():
        yield from under(headline, leaves)
        yield from under(headline, map(_later, LATER.get(headline, ())))
    yield from under("Ours", ours.claims(config))


def _later(leaf: tuple[str, int, Kind, str, str]) -> Claim:
    name, weight, kind, source, statement = leaf
    return Claim(
        f"recall.{name}",
        statement,
        source,
        kind,
        weight=weight,
        not_tested="not measured yet",
    )


LATER: dict[str, tuple[tuple[str, int, Kind, str, str], ...]] = {
    "Memory and the need for two steps": (
        (
            "nocot.bound",
            2,
            "behaviour",
            "Lemma 4, Section 2.2",
            "Without the intermediate relation, n=3 accuracy cannot exceed 1/3,"
            " whatever W^KQ.",
        ),
    ),
    "Three subjects (Theorem 2)": (
        (
            "warmup.global",
            3,
            "theory",
            "Theorem 2 (global optimum)",
            "No other point is better, and on the pairwise line only one critical"
            " point in (0, 1/4) has L1 < log 2.",
        ),
    ),
    "Few prompts, any n (Theorems 1, 3)": (
        (
            "few.stage1",
            3,
            "signal",
            "Lemma 9",
            "After one step v is about (1/6+a, 1/6, 1/6+a, 1/6, 1/6-2a, 1/6), a"
            " proportional to the share of mismatched prompts; p is 1/2 on confusing"
            " sequences, 1 on others.",
        ),
        (
            "few.n-grid",
            5,
            "behaviour",
            "Theorem 3, Lemma 11",
            "A sample independent of n gives step-1 accuracy >= .999.",
        ),
        (
            "few.sample-law",
            3,
            "behaviour",
            "Proof of Theorem 3",
            "What counts is that the sample holds confusing sequences, not how many"
            " facts are seen.",
        ),
        (
            "few.rate",
            2,
            "behaviour",
            "Lemmas 10, 11",
            "Confusing sequences are solved after order (1/T) log(1/T) stage-2 steps.",
        ),
        (
            "few.end-state",
            1,
            "signal",
            "Section 4.2",
            "The end state is not exactly pairwise, but one pair is heavier.",
        ),
        (
            "few.step2",
            2,
            "behaviour",
            "Lemma 2",
            "The answer is certain after stage 1 and throughout stage 2.",
        ),
        (
            "few.decode",
            4,
            "behaviour",
            "Theorem 1",
            "Greedy two-step decoding answers unseen prompts.",
        ),
    ),
    "Constructed memory (Figures 2, 3)": (
        (
            "row2",
            1,
            "signal",
            "Sections 4.3, 5; rows 2 of Figures 2, 4",
            "Step 2 looks most at the query; EoS gets weight only with a pretrained"
            " MLP.",
        ),
        (
            "fig3.whole",
            5,
            "behaviour",
            "Figure 3, Section 5",
            "Eight prompts are enough for step 1: whole W^KQ.",
        ),
        (
            "fig3.partial",
            2,
            "behaviour",
            "Figure 3 read as partial fine-tuning",
            "Eight prompts are enough for step 1: theta and omega only.",
        ),
        (
            "step2.perfect.fig3",
            3,
            "behaviour",
            "Section 5, sentence before Figure 3",
            "Step-2 test accuracy is perfect in every setting and seed: all cells of"
            " Figure 3.",
        ),
    ),
    "Pretrained memory (Figure 4)": (
        (
            "fig4a.caption",
            4,
            "signal",
            "Figure 4(a), caption T=.05",
            "Pairwise row 1 with T=.05 in both phases.",
        ),
        (
            "fig4a.warm",
            2,
            "signal",
            "Figure 4(a), T read as fine-tuning only",
            "Pairwise row 1 with pretraining at T=1.",
        ),
        (
            "fig4b",
            2,
            "signal",
            "Figure 4(b)",
            "Three examples, m=512, T=.01: three distinct pair weights, in both"
            " readings.",
        ),
    ),
}
"""The rubric's leaves that nothing measures yet: name, weight, kind, source, text."""

"""Claims about two-hop facts in a pretrained language model.

Prompts go from a landmark over its country to the country's capital or language. After
fine-tuning on single hops, the paper sees the object become likelier under a prompt
that leaves the first hop out ("The capital city of Machu Picchu is"), and reads this as
an identity bridge that pretraining has laid. What rises for all objects alike, or for
every landmark alike, is taken off.

The expectations were written down before any of it was measured.
"""

from circuits.claims import Claim, Control

CLAIMS: tuple[Claim, ...] = (
    Claim(
        "bridge.llm.one-hop",
        "Fine-tuning teaches the single hops: right answers among those of the same"
        " kind, both hops. Gate of what follows.",
        "Figure 8",
        "behaviour",
        ">= 0.9",
        Control("random weights", "<= 0.2"),
    ),
    Claim(
        "bridge.llm.omit-shift",
        "Fine-tuning on single hops makes the object likelier when the first hop is"
        " left out: rise of its log-probability beyond that of another object, nats.",
        "Figure 8",
        "behaviour",
        "> 0",
        Control("with another landmark", "in [-0.5, 0.5]"),
    ),
    Claim(
        "bridge.llm.omit-shift.subset",
        "It rises more where the two-hop question is right after fine-tuning than"
        " where it is wrong: difference, nats.",
        "Figure 8",
        "behaviour",
        "> 0",
        Control("with another landmark", "in [-0.5, 0.5]"),
        gated=False,
    ),
    Claim(
        "bridge.llm.omit",
        "Even before fine-tuning the object is likelier under its own landmark than"
        " under another, with the first hop left out: nats.",
        "Figure 8",
        "behaviour",
        ">= 0.5",
        Control("random weights", "in [-0.1, 0.1]"),
        gated=False,
    ),
    Claim(
        "bridge.llm.two-hop",
        "Two hops in one question: right answers among those of the same kind, after"
        " fine-tuning on single hops.",
        "Figure 1",
        "behaviour",
        ">= 0.5",
        Control("answers of another landmark", "<= 0.2"),
        gated=False,
    ),
    Claim(
        "bridge.llm.identity",
        "Adding identity facts to the fine-tuning brings no clear gain on two hops:"
        " difference of the accuracies.",
        "Section 6",
        "behaviour",
        "in [-0.1, 0.1]",
        Control("difference on single hops", "in [-0.1, 0.1]"),
        gated=False,
    ),
    Claim(
        "bridge.llm.bridge-rank",
        "The country can be read at the landmark's last token under the lens, in the"
        " layer that was best on other landmarks: how many times better its rank is"
        " than that of another country, powers of ten.",
        "ours",
        "signal",
        ">= 0.3",
        Control("random weights", "in [-0.2, 0.2]"),
        gated=False,
    ),
    Claim(
        "bridge.llm.alignment",
        "The first hop's output aligns with the country's own state: centred cosine at"
        " the last token, best layer on other landmarks.",
        "Section 6: weak in language models",
        "signal",
        ">= 0.1",
        Control("another country", "in [-0.1, 0.1]"),
        gated=False,
    ),
)

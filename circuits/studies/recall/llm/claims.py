"""Claims about in-context recall in a pretrained language model.

The small models of this study read off the relation first and the answer after it, and
weigh the two words of a demonstration alike. Here are the same signals in prompts such
as "France -> Paris, Japan -> Tokyo, Egypt -> Cairo, Italy -> Rome, Poland ->". In the
typed relations (capital, language, continent) an answer's kind gives the relation away;
in the shared ones (the item before, the item after) only the pairing does.

The expectations were written down before any of it was measured. Two claims were added
after SmolLM2-135M had been seen, because the ones beside them are easily met: the layer
from which on the relation stays readable, and equal weights inside pairs.
"""

from circuits.claims import Claim, Control

_BEHAVIOUR = (
    Claim(
        "recall.llm.few-shot",
        "Four demonstrations tell the model what to answer: accuracy among the answers"
        " of all typed relations, on facts that it knows when asked plainly.",
        "Section 1, the task",
        "behaviour",
        ">= 0.5",
        Control("random weights", "<= 0.2"),
    ),
)

_ORDER = (
    Claim(
        "recall.llm.relation-lens",
        "At the last token the relation's name is told apart in earlier layers than the"
        " answer: layers between the two, by logit lens.",
        "Section 3: the relation first, then the answer",
        "signal",
        ">= 1",
        Control("relation named at the same layer, random weights", "<= 0.5"),
    ),
    Claim(
        "recall.llm.relation-lens-lasting",
        "The same for the layers from which on either stays readable: a name that shows"
        " up in between does not count.",
        "ours, added later",
        "signal",
        ">= 1",
        Control("relation named at the same layer, random weights", "<= 0.5"),
        gated=False,
    ),
    Claim(
        "recall.llm.relation-probe",
        "A linear probe on unseen subjects reads the relation in earlier layers than"
        " the lens reads the answer: layers between the two.",
        "Section 3: the relation first, then the answer",
        "signal",
        ">= 1",
        Control("accuracy of the best layer's probe, shuffled labels", "<= 0.5"),
    ),
    Claim(
        "recall.llm.pairing-probe",
        "Where only the pairing tells the relation, a linear probe still reads it from"
        " the last token: accuracy for two relations, layer chosen on other lists.",
        "ours",
        "signal",
        ">= 0.75",
        Control("demonstrated answers permuted over pairs", "<= 0.65"),
        gated=False,
    ),
)

_ATTENTION = (
    Claim(
        "recall.llm.pair-coherence",
        "Attention of the last token to a demonstration's subject and answer rises and"
        " falls together: correlation over pairs in the three best heads, new prompts."
        " A liking for late pairs counts too.",
        "Theorem 2, Figure 2",
        "signal",
        ">= 0.5",
        Control("answers shifted to other pairs, largest of the shifts", "<= 0.2"),
    ),
    Claim(
        "recall.llm.pair-balance",
        "In the same heads the two words of a pair get equal attention: ratio of the"
        " larger to the smaller, geometric mean over pairs.",
        "Theorem 2, Figure 2; added later",
        "signal",
        "<= 2",
        Control("answers shifted to other pairs, smallest of the shifts", ">= 2"),
        gated=False,
    ),
    Claim(
        "recall.llm.pair-coherence-content",
        "The same correlation for what is left when each place's mean over prompts is"
        " taken off, so that a liking for late pairs does not count.",
        "ours",
        "signal",
        ">= 0.2",
        Control("answers shifted to other pairs, largest of the shifts", "<= 0.1"),
        gated=False,
    ),
    Claim(
        "recall.llm.binding",
        "Attention of an answer to its own subject minus the mean to earlier subjects,"
        " in the three best heads, new prompts.",
        "ours",
        "signal",
        ">= 0.3",
        Control("random weights, the same heads", "<= 0.05"),
        gated=False,
    ),
)

_CAUSE = (
    Claim(
        "recall.llm.cut-subjects",
        "Hiding the demonstrated subjects from the last token costs as much as hiding"
        " the answers: ratio of the losses in log-probability of the right answer.",
        "Section 3: the memory adds both words of a pair",
        "causal",
        "in [0.5, 2]",
        Control("hiding the separators instead of the subjects", "<= 0.5"),
        gated=False,
    ),
    Claim(
        "recall.llm.cut-binding",
        "Hiding each demonstrated subject from its own answer costs log-probability of"
        " the right answer where only the pairing tells the relation (nats).",
        "ours",
        "causal",
        ">= 0.1",
        Control("hiding the subject one pair before instead", "<= 0.05"),
        gated=False,
    ),
    Claim(
        "recall.llm.patch-relation",
        "The last token's residual of a prompt with another relation and another query,"
        " put in, makes the model answer the own query by that relation.",
        "ours",
        "causal",
        ">= 0.3",
        Control("put in from a prompt with the same relation", "<= 0.1"),
        gated=False,
    ),
    Claim(
        "recall.llm.swap",
        "Exchanging the demonstrated answers costs accuracy where only the pairing"
        " tells the relation.",
        "Section 3: confusing prompts",
        "causal",
        ">= 0.2",
        Control("typed relations", "<= 0.1"),
        gated=False,
    ),
)

CLAIMS: tuple[Claim, ...] = (*_BEHAVIOUR, *_ORDER, *_ATTENTION, *_CAUSE)

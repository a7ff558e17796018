"""Claims about abstract symbols in a pretrained language model.

Pretraining is said to find by itself what the identity scalings of this study give:
W_Q W_K^T and W_V W_O^T with strong diagonals. The score of a head's matrix M is
z = sqrt(d) tr(M) / |M|_F, about N(0, 1) for a random head and d for a multiple of the
identity; for rotary positions M is the one at distance zero.

The expectations were written down before any of it was measured. Afterwards it turned
out that the first model tried, SmolLM2-135M, is at chance on programs that print, where
neither rare names nor a lost share mean anything. Programs that repeat their
assignments were added for these (a form with one repetition was tried first, also at
chance); no expectation was changed.
"""

from circuits.claims import Claim, Control

_WEIGHTS = (
    Claim(
        "symbols.llm.qk-diagonal",
        "Many heads have a strongly diagonal W_Q W_K^T: share of heads with z > 5.",
        "Figure 7, right",
        "signal",
        ">= 0.2",
        Control("random weights", "< 0.02"),
    ),
    Claim(
        "symbols.llm.ov-diagonal",
        "Many heads have a strongly diagonal W_V W_O^T: share of heads with z > 5.",
        "Figure 7, right",
        "signal",
        ">= 0.2",
        Control("random weights", "< 0.02"),
    ),
    Claim(
        "symbols.llm.copying-heads",
        "Heads that raise the logit of the token they attend to: share of heads whose"
        " copying score (sum of eigenvalues over sum of their sizes) is above 0.5.",
        "ours",
        "signal",
        ">= 0.1",
        Control("random weights", "< 0.02"),
        gated=False,
    ),
)

_MATCHING = (
    Claim(
        "symbols.llm.matching-head",
        'In programs such as x="u";y="v";print(x) some head looks from the printed'
        " name to its assignment: attention minus that to the other name, in the best"
        " head, new names.",
        "Section 4: attention sees which tokens are equal",
        "signal",
        ">= 0.3",
        Control("a printed name that was never assigned", "in [-0.1, 0.1]"),
    ),
    Claim(
        "symbols.llm.diagonal-and-matching",
        "Heads with a more diagonal W_Q W_K^T match more: correlation over heads of z"
        " and the matching score.",
        "ours",
        "signal",
        ">= 0.2",
        Control("random weights", "in [-0.2, 0.2]"),
        gated=False,
    ),
)

_BEHAVIOUR = (
    Claim(
        "symbols.llm.program-values",
        'x="u";y="v";print(x): the printed value is preferred to the other one.',
        "Figure 2",
        "behaviour",
        ">= 0.75",
        Control("random weights", "in [0.3, 0.7]"),
        gated=False,
    ),
    Claim(
        "symbols.llm.program-signs",
        "x=1;y=-1;print(x): the printed sign is preferred to the other one.",
        "Figure 1",
        "behaviour",
        ">= 0.75",
        Control("random weights", "in [0.3, 0.7]"),
        gated=False,
    ),
    Claim(
        "symbols.llm.emission",
        "The most likely next token of the whole vocabulary is one of the program's two"
        " values, right or wrong.",
        "Figure 2, the plateau at one half",
        "behaviour",
        ">= 0.5",
        Control("the two values of another program", "<= 0.05"),
        gated=False,
    ),
    Claim(
        "symbols.llm.repeated-values",
        'x="u";y="v";x="u";y="v";x=": the own value is preferred to the other one.',
        "ours, added later",
        "behaviour",
        ">= 0.75",
        Control("random weights", "in [0.3, 0.7]"),
        gated=False,
    ),
    Claim(
        "symbols.llm.rare-names",
        "Rare names and values are repeated as well as frequent ones: difference of the"
        " accuracies; undefined below 0.75.",
        "Section 1: the relation does not depend on the symbols",
        "behaviour",
        "in [-0.1, 0.1]",
        Control("two halves of the frequent ones", "in [-0.1, 0.1]"),
        gated=False,
    ),
)

_CAUSE = (
    Claim(
        "symbols.llm.remove-qk-identity",
        "Taking the identity part off the tenth of W_Q W_K^T with the largest z: share"
        " of the logit difference that is lost, repeated assignments.",
        "ours",
        "causal",
        ">= 0.1",
        Control("a random rotation of the same size", "<= 0.05"),
        gated=False,
    ),
    Claim(
        "symbols.llm.remove-ov-identity",
        "The same for the tenth of W_V W_O^T with the largest z.",
        "ours",
        "causal",
        ">= 0.1",
        Control("a random rotation of the same size", "<= 0.05"),
        gated=False,
    ),
    Claim(
        "symbols.llm.remove-identity-rare",
        "Rare symbols need the identity parts more: share of the logit difference lost"
        " without them, rare minus frequent, mean of both matrices.",
        "ours",
        "causal",
        "> 0",
        Control("a random rotation of the same size", "in [-0.1, 0.1]"),
        gated=False,
    ),
)

CLAIMS: tuple[Claim, ...] = (*_WEIGHTS, *_MATCHING, *_BEHAVIOUR, *_CAUSE)

"""Claims about analogies between real subjects in a fine-tuned language model.

A fact pairs two subjects that share an aspect ("Falcon is capable of diving at prey",
"Kestrel is capable of diving at prey") and names the category of the first ("Falcon is
classified as raptor"). The second subject's category is held out. Three curricula train
on the same sentences: all at once (joint), similarity before attribution (SA), and
attribution before similarity (AS), which the paper sees fail.

Success is the right category among those of all facts at hand, told apart by their
first tokens. The expectations were written down before any of it was measured.
"""

from circuits.claims import Claim, Control

_BEFORE = Control("before fine-tuning", "<= 0.5")
_SHIFTED = Control("the same difference for shifted pairs", "in [-0.05, 0.05]")

_BEHAVIOUR = (
    Claim(
        "analogy.llm.joint",
        "Similarity and attribution trained together carry the category over to the"
        " second subject: held-out success.",
        "Table 2",
        "behaviour",
        ">= 0.7",
        _BEFORE,
    ),
    Claim(
        "analogy.llm.SA",
        "Similarity first, attribution after it, carries the category over: held-out"
        " success.",
        "Table 2",
        "behaviour",
        ">= 0.7",
        _BEFORE,
    ),
    Claim(
        "analogy.llm.order",
        "Attribution first and similarity after it carries less over: mean success of"
        " joint and SA minus that of AS. If AS has forgotten the first subjects, that"
        " explains it instead.",
        "Tables 2 and 3",
        "behaviour",
        ">= 0.15",
        Control("first subjects still classified right after AS", ">= 0.5"),
    ),
    Claim(
        "analogy.llm.permuted",
        "Joint training carries over even a category that nobody could know: held-out"
        " success with categories exchanged between facts.",
        "ours",
        "behaviour",
        ">= 0.5",
        Control("before fine-tuning", "<= 0.2"),
        gated=False,
    ),
)

_SIMILARITY = (
    Claim(
        "analogy.llm.similarity-order",
        "The two subjects' states are more alike after joint training than after AS:"
        ' raw cosine after the final norm, last token of "[S] is classified as",'
        " difference.",
        "Table 2",
        "signal",
        "> 0",
        _SHIFTED,
    ),
    Claim(
        "analogy.llm.sparse-order",
        "The same for the fifth of the MLP's activations that are largest, at the"
        ' tokens of "is classified as": cosine, mean over tokens and layers,'
        " difference.",
        "Table 3",
        "signal",
        "> 0",
        _SHIFTED,
        gated=False,
    ),
)

_ALIGNMENT = (
    Claim(
        "analogy.llm.alignment",
        "Before any fine-tuning the two subjects of a fact are aligned: centred cosine"
        " at the subject's last token, layer chosen on other facts.",
        "ours",
        "signal",
        ">= 0.1",
        Control("shifted pairs", "<= 0.05"),
    ),
    Claim(
        "analogy.llm.alignment-twin",
        "They are aligned by more than the words that some of them share: centred"
        " cosine minus that of shifted pairs, layer chosen on other facts.",
        "ours",
        "signal",
        ">= 0.1",
        Control("random weights", "<= 0.05"),
        gated=False,
    ),
)

CLAIMS: tuple[Claim, ...] = (*_BEHAVIOUR, *_SIMILARITY, *_ALIGNMENT)

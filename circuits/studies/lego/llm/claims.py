"""Claims about chains written out by a pretrained language model.

A prompt states what each function does, solves two short chains, gives the predicates
of a longer one ("k = f(m)") and writes its answers line by line ("m = red"). The model
is read at the "=" of every answer line, after the right lines before it.

A mechanism can only be read off a model that does the task. The first claim is that
gate (step accuracy of 0.8 at length 4) and decides the exit code; what follows is
measured in any case, but it is exploratory and says nothing about how chains are solved
where the gate is not passed.

The expectations were written down before any of it was measured.
"""

from circuits.claims import Claim, Control

_BEHAVIOUR = (
    Claim(
        "lego.llm.step-accuracy",
        "The model does the task: right values among three, C3 chains of length 4,"
        " given the right lines before. Gate of everything below.",
        "ours",
        "behaviour",
        ">= 0.8",
        Control("random weights", "<= 0.5"),
    ),
    Claim(
        "lego.llm.group",
        "C3 holds up better than S3 with the same surface: step accuracy at the largest"
        " length, difference.",
        "Figure 1a",
        "behaviour",
        ">= 0.05",
        Control("the same difference at length 2", "in [-0.1, 0.1]"),
        gated=False,
    ),
)

_ATTENTION = (
    Claim(
        "lego.llm.predicate-mass",
        "Some heads look at the predicate that is due: its share of the attention to"
        " clauses, mean of the three best heads, length 4, new chains.",
        "Figure 2",
        "signal",
        ">= 0.5",
        Control("another predicate, mean", "<= 0.15"),
        gated=False,
    ),
    Claim(
        "lego.llm.answer-mass",
        "Some heads look at the last answer: its share of the attention to clauses,"
        " mean of the three best heads, length 4, new chains.",
        "Figure 2",
        "signal",
        ">= 0.5",
        Control("another answer, mean", "<= 0.15"),
        gated=False,
    ),
    Claim(
        "lego.llm.dilution",
        "What misses the predicate follows n / (n + K) with n other clauses: relative"
        " error at the largest length with K fitted at length 4, three best heads.",
        "Theorem 4.1, the dilution in its proof",
        "signal",
        "<= 0.1",
        Control("no dilution: the miss stays as at length 4", "> 0.1"),
        gated=False,
    ),
)

_CAUSE = (
    Claim(
        "lego.llm.knock-out",
        "Hiding the predicate that is due from its answer line costs log-probability of"
        " the right value (nats), length 4, all heads.",
        "ours",
        "causal",
        ">= 0.2",
        Control("hiding another predicate", "<= 0.1"),
        gated=False,
    ),
    Claim(
        "lego.llm.knock-out-heads",
        "The same in the three best predicate heads only.",
        "ours",
        "causal",
        ">= 0.05",
        Control("hiding another predicate in them", "<= 0.02"),
        gated=False,
    ),
    Claim(
        "lego.llm.sharpening",
        "Scores times 1.5 in the best predicate and answer heads raise step accuracy at"
        " the largest length.",
        "ours",
        "causal",
        ">= 0.02",
        Control("as many other heads, drawn at random", "<= 0.02"),
        gated=False,
    ),
)

CLAIMS: tuple[Claim, ...] = (*_BEHAVIOUR, *_ATTENTION, *_CAUSE)

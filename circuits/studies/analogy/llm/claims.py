"""Claims about analogies between real subjects in a fine-tuned language model.

A fact pairs two subjects that share an aspect ("Falcon is capable of diving at prey",
"Kestrel is capable of diving at prey") and names the category of the first ("Falcon is
classified as raptor"). The second subject's category is held out; success is that it is
decoded, greedily and as a whole. Lessons: all at once (joint), similarity before
attribution (SA), attribution before similarity (AS), which the paper sees fail, and the
attribution alone (A), which teaches the format and leaves the rest to what the model
knows. A replicate is a draw of facts. Free of torch.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from circuits.claims import Claim, Null, Shown, under
from circuits.conditions import Condition, Each, Mean, Measure

from .settings import FITTED, Settings

TRANSFERRING = ("joint", "SA")

ours = partial(Claim, origin="ours", source="ours")

SMALLER = (
    "Step 14: --preset quick draws 16 facts (the rubric: 24), after the lesson with"
    " permuted aspects had not fitted 24 in quick's epochs on SmolLM2; paper has 100,"
    " cpu 48 for the time it takes (set after one joint training on seed 100 was seen)"
)
UNREPLAYED = (
    "; the lesson with A replayed is a setting, off in quick, and was asked to fit"
)


def claims(settings: Settings) -> Iterator[Claim]:
    """The paper's leaves, and what else is seen."""
    leaves = (_transfer(settings), _order(settings), _similarity(), _sparse())
    paper = (
        replace(leaf, statement=leaf.statement + differs(settings)) for leaf in leaves
    )
    yield from under("Analogies in language models", paper)
    yield from under("Ours", [*_printed(settings), *_alignment()])


def differs(settings: Settings) -> str:
    """How the fine-tuning differs from the paper's, which trains all parameters."""
    if settings.layers == "all":
        return ""
    return f" Differs from the paper: trained are {settings.layers} only."


def _transfer(settings: Settings) -> Claim:
    conditions: list[Condition] = []
    for name in TRANSFERRING:
        conditions.append(Mean(f"{name} - A only", "> 0", _carried(name, "A")))
        permuted = _carried(name, "permuted")
        conditions.append(Mean(f"{name} - S_tgt permuted", "> 0", permuted))
        if settings.level:
            conditions.append(Mean(name, ">= 0.58", _success(name)))
    against = ["A", "permuted"]
    pairs = [(name, other) for name in TRANSFERRING for other in against]
    taught = [*TRANSFERRING, *against]
    if settings.invented:
        measure = _carried("joint invented", "A invented")
        conditions.append(Mean("joint - A only, invented names", "> 0", measure))
        taught += ["joint invented", "A invented"]
    return Claim(
        "analogy.llm.transfer",
        "Joint training and SA carry the category over to the second subject: more of"
        " them are decoded as a whole than after A alone, which knows the format, and"
        " than after joint training with the second subjects' aspects permuted.",
        "Table 2",
        "behaviour",
        tuple(conditions),
        (Null("before", None, lambda lab: lab.carried("before", "A"), "<= 0"),),
        shown=tuple(Shown(f"success, {name}", _success(name)) for name in taught),
        weight=4,
        paper=0.73,
        revised=SMALLER,
        preconditions=_fits(*taught),
        controls=tuple(
            Each(f"{a} - {b}, lower end over facts", "> 0", _carried(a, b, low=True))
            for a, b in pairs
        ),
    )


def _order(settings: Settings) -> Claim:
    both = ",".join(TRANSFERRING)
    replayed = ("replay",) if settings.replay else ()
    return Claim(
        "analogy.llm.order",
        "AS carries less over than joint training and SA: the lesser of these less AS."
        " Where A is not retained after AS and replaying it closes the gap, AS fails by"
        " forgetting.",
        "Tables 2 and 3",
        "behaviour",
        (Mean("min(joint, SA) - AS", ">= 0.1", _carried(both, "AS")),),
        (Null("before", measure=_carried("before", "before")),),
        shown=(
            Shown("AS", _success("AS")),
            Shown("A retained after AS", lambda lab: lab.of("retained", "AS")),
            *(Shown("AS, A replayed", _success(name)) for name in replayed),
        ),
        weight=5,
        paper=0.2,
        revised=SMALLER + UNREPLAYED,
        preconditions=_fits(*TRANSFERRING, "AS", *replayed),
        controls=(Each("lower end over facts", "> 0", _carried(both, "AS", low=True)),),
    )


def _similarity() -> Claim:
    return Claim(
        "analogy.llm.similarity",
        "The two subjects' states are least alike after AS: raw cosine after the final"
        ' norm, last token of "[S] is classified as", differences.',
        "Table 2",
        "signal",
        tuple(_gaps("similarity")),
        tuple(_halves("shifted pairs", "similarity", "shifted", "similarity")),
        shown=tuple(Shown(f"cosine, {x}", _cosine(x, "similarity")) for x in _LESSONS),
        weight=3,
        paper=0.05,
        revised=SMALLER,
        preconditions=_fits(*TRANSFERRING, "AS"),
        controls=tuple(_lower_ends("similarity")),
    )


def _sparse() -> Claim:
    return Claim(
        "analogy.llm.sparse",
        'The same where, at the tokens of "is classified as" in every layer, only the'
        " fifth of the MLP's activations that are largest is kept and the model runs"
        " on.",
        "Table 3",
        "causal",
        tuple(_gaps("sparse")),
        (
            *_halves("as many kept at random", "random", "own", "sparse"),
            *_halves("shifted pairs", "sparse", "shifted", "sparse"),
        ),
        shown=(
            *(Shown(f"cosine, {x}", _cosine(x, "sparse")) for x in _LESSONS),
            Shown("raw gap", lambda lab: lab.gap("similarity", "joint")),
            Shown("gap of the activations", lambda lab: lab.gap("passive", "joint")),
        ),
        weight=3,
        paper=0.1053,
        revised=SMALLER,
        preconditions=_fits(*TRANSFERRING, "AS"),
        controls=tuple(_lower_ends("sparse")),
    )


_LESSONS = ("before", "joint", "SA", "AS")


def _fits(*lessons: str) -> tuple[Each, ...]:
    def fit(name: str) -> Measure:
        return lambda lab: lab.of("fit", name)

    return tuple(
        Each(f"premises decoded, {name}", f">= {FITTED}", fit(name)) for name in lessons
    )


def _success(name: str) -> Measure:
    return lambda lab: lab.success(name)


def _carried(name: str, against: str, *, low: bool = False) -> Measure:
    return lambda lab: lab.carried(name, against, low=low)


def _cosine(name: str, of: str) -> Measure:
    return lambda lab: lab.cosine(name, of)


def _gap(of: str, name: str, *, low: bool = False) -> Measure:
    return lambda lab: lab.gap(of, name, low=low)


def _gaps(of: str) -> Iterator[Condition]:
    return (Mean(f"{name} - AS", "> 0", _gap(of, name)) for name in TRANSFERRING)


def _lower_ends(of: str) -> Iterator[Condition]:
    for name in TRANSFERRING:
        end = _gap(of, name, low=True)
        yield Each(f"{name} - AS, lower end over facts", "> 0", end)


def _halves(label: str, of: str, which: str, against: str) -> Iterator[Null]:
    """Nulls whose gap must not be more than half of the gap."""

    def beyond(name: str) -> Measure:
        return lambda lab: lab.beyond_half(of, name, which, against)

    for name in TRANSFERRING:
        yield Null(f"{label} beyond half of {name} - AS", None, beyond(name), "<= 0")


def _printed(settings: Settings) -> Iterator[Claim]:
    yield ours(
        "analogy.ours.llm.restricted",
        "The order shows among the first tokens of all categories too: the mean of"
        " joint and SA less AS.",
        kind="behaviour",
        conditions=(Mean("difference", ">= 0.15", _beyond_as("joint", "SA")),),
        nulls=(Null("S_tgt permuted, less AS", measure=_beyond_as("permuted")),),
        controls=(
            Mean("A retained after AS", ">= 0.5", lambda lab: lab.of("retained", "AS")),
        ),
        revised="Step 14: the null was added after --preset cpu had been judged",
    )
    yield ours(
        "analogy.ours.llm.exchanged",
        "Joint training carries over even a category that nobody could know: success"
        " with categories exchanged between facts.",
        kind="behaviour",
        conditions=(Mean("success", ">= 0.5", _success("joint exchanged")),),
        nulls=(Null("before", None, _success("before exchanged"), "<= 0.2"),),
        not_tested="" if settings.exchanged else "needs --set exchanged=true",
    )


def _beyond_as(*lessons: str) -> Measure:
    """Restricted success, the mean of some lessons less AS, by seed."""

    def beyond(lab: Any) -> list[float]:
        several = [lab.of("restricted", name) for name in lessons]
        means = [sum(values) / len(values) for values in zip(*several, strict=True)]
        early = lab.of("restricted", "AS")
        return [mean - value for mean, value in zip(means, early, strict=True)]

    return beyond


def _alignment() -> Iterator[Claim]:
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

"""Claims about in-context recall in a pretrained language model; all of them are ours.

The small models of this study read off the relation first and the answer after it, and
weigh the two words of a demonstration alike. Here are the same signals in prompts such
as "France -> Paris, Japan -> Tokyo, Egypt -> Cairo, Italy -> Rome, Poland ->". In the
typed relations (capital, language, continent) an answer's kind gives the relation away;
in the shared ones (the item before, the item after) only the pairing does.

The expectations were written down before any of it was measured, but for two claims
that say so: the layer from which on the relation stays readable, and equal weights
inside pairs.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from circuits.claims import Claim, Kind, Null, under
from circuits.conditions import Mean

from .settings import Settings

ADDED = "added after SmolLM2-135M had been seen: the claim beside it is easily met"

Quantity = Callable[[Any, int], float]
"""(lab, seed) -> a number."""


def claims(_settings: Settings) -> Iterator[Claim]:
    """Behaviour, order, attention, cause."""
    yield from under("Ours: the task", _behaviour())
    yield from under("Ours: the relation first", _order())
    yield from under("Ours: pairs", _attention())
    yield from under("Ours: causes", _causes())


def _claim(
    name: str,
    kind: Kind,
    statement: str,
    source: str,
    condition: tuple[str, Quantity],
    null: Null,
) -> Claim:
    expected, quantity = condition
    return Claim(
        f"recall.llm.{name}",
        statement,
        source,
        kind,
        origin="ours",
        conditions=(
            Mean(name, expected, lambda lab: lab.each(lambda s: quantity(lab, s))),
        ),
        nulls=(null,),
    )


def _null(name: str, bound: str, quantity: Quantity) -> Null:
    return Null(
        name,
        measure=lambda lab: lab.each(lambda seed: quantity(lab, seed)),
        bound=bound,
    )


def _of_twin(name: str, bound: str, quantity: Quantity) -> Null:
    """A null that the random twin is measured for, on its one seed."""
    return Null(
        name,
        measure=lambda lab: [quantity(lab, seed) for seed in lab.twin().seeds],
        bound=bound,
    )


def _behaviour() -> Iterator[Claim]:
    yield _claim(
        "few-shot",
        "behaviour",
        "Four demonstrations tell the model what to answer: accuracy among the answers"
        " of all typed relations, on facts that it knows when asked plainly.",
        "Section 1, the task",
        (">= 0.5", lambda lab, seed: lab.accuracy(seed)),
        Null("random weights", on=lambda lab: lab.twin(), bound="<= 0.2"),
    )


def _order() -> Iterator[Claim]:
    by_chance = _of_twin(
        "relation named at the same layer, random weights",
        "<= 0.5",
        lambda lab, seed: lab.named_by_twin(seed),
    )
    yield _claim(
        "relation-lens",
        "signal",
        "At the last token the relation's name is told apart in earlier layers than the"
        " answer: layers between the two, by logit lens.",
        "Section 3: the relation first, then the answer",
        (">= 1", lambda lab, seed: lab.layers_between(seed)),
        by_chance,
    )
    added = _claim(
        "relation-lens-lasting",
        "signal",
        "The same for the layers from which on either stays readable: a name that shows"
        " up in between does not count.",
        "Section 3: the relation first, then the answer",
        (">= 1", lambda lab, seed: lab.layers_between(seed, lasting=True)),
        by_chance,
    )
    yield replace(added, revised=ADDED)
    yield _claim(
        "relation-probe",
        "signal",
        "A linear probe on unseen subjects reads the relation in earlier layers than"
        " the lens reads the answer: layers between the two.",
        "Section 3: the relation first, then the answer",
        (">= 1", lambda lab, seed: lab.probed_before_told(seed)),
        _null(
            "accuracy of the best layer's probe, shuffled labels",
            "<= 0.5",
            lambda lab, seed: lab.probed_shuffled(seed),
        ),
    )
    yield _claim(
        "pairing-probe",
        "signal",
        "Where only the pairing tells the relation, a linear probe still reads it from"
        " the last token: accuracy for two relations, layer chosen on other lists.",
        "ours",
        (">= 0.75", lambda lab, seed: lab.pairing_probe(seed)),
        _null(
            "demonstrated answers permuted over pairs",
            "<= 0.65",
            lambda lab, seed: lab.pairing_probe_swapped(seed),
        ),
    )


def _attention() -> Iterator[Claim]:
    yield _claim(
        "pair-coherence",
        "signal",
        "Attention of the last token to a demonstration's subject and answer rises and"
        " falls together: correlation over pairs in the best heads, new prompts. A"
        " liking for late pairs counts too.",
        "Theorem 2, Figure 2",
        (">= 0.5", lambda lab, seed: lab.paired(seed)[0]),
        _null(
            "answers shifted to other pairs, largest of the shifts",
            "<= 0.2",
            lambda lab, seed: lab.paired(seed)[1],
        ),
    )
    added = _claim(
        "pair-balance",
        "signal",
        "In the same heads the two words of a pair get equal attention: ratio of the"
        " larger to the smaller, geometric mean over pairs.",
        "Theorem 2, Figure 2",
        ("<= 2", lambda lab, seed: lab.balance(seed)[0]),
        _null(
            "answers shifted to other pairs, smallest of the shifts",
            ">= 2",
            lambda lab, seed: lab.balance(seed)[1],
        ),
    )
    yield replace(added, revised=ADDED)
    yield _claim(
        "pair-coherence-content",
        "signal",
        "The same correlation for what is left when each place's mean over prompts is"
        " taken off, so that a liking for late pairs does not count.",
        "ours",
        (">= 0.2", lambda lab, seed: lab.paired(seed, by_content=True)[0]),
        _null(
            "answers shifted to other pairs, largest of the shifts",
            "<= 0.1",
            lambda lab, seed: lab.paired(seed, by_content=True)[1],
        ),
    )
    yield _claim(
        "binding",
        "signal",
        "Attention of an answer to its own subject minus the mean to earlier subjects,"
        " in the best heads, new prompts.",
        "ours",
        (">= 0.3", lambda lab, seed: lab.binding(seed)),
        _of_twin(
            "random weights, the same heads",
            "<= 0.05",
            lambda lab, seed: lab.binding_of_twin(seed),
        ),
    )


def _causes() -> Iterator[Claim]:
    yield _claim(
        "cut-subjects",
        "causal",
        "Hiding the demonstrated subjects from the last token costs as much as hiding"
        " the answers: ratio of the losses in log-probability of the right answer.",
        "Section 3: the memory adds both words of a pair",
        ("in [0.5, 2]", lambda lab, seed: lab.cut_ratio(seed, "subjects")),
        _null(
            "hiding the separators instead of the subjects",
            "<= 0.5",
            lambda lab, seed: lab.cut_ratio(seed, "separators"),
        ),
    )
    yield _claim(
        "cut-binding",
        "causal",
        "Hiding each demonstrated subject from its own answer costs log-probability of"
        " the right answer where only the pairing tells the relation (nats).",
        "ours",
        (">= 0.1", lambda lab, seed: lab.binding_cut(seed)),
        _null(
            "hiding the subject one pair before instead",
            "<= 0.05",
            lambda lab, seed: lab.binding_cut(seed, earlier=1),
        ),
    )
    yield _claim(
        "patch-relation",
        "causal",
        "The last token's residual of a prompt with another relation and another query,"
        " put in, makes the model answer the own query by that relation.",
        "ours",
        (">= 0.3", lambda lab, seed: lab.moved(seed, shift=1)),
        _null(
            "put in from a prompt with the same relation",
            "<= 0.1",
            lambda lab, seed: lab.moved(seed, shift=0),
        ),
    )
    yield _claim(
        "swap",
        "causal",
        "Exchanging the demonstrated answers costs accuracy where only the pairing"
        " tells the relation.",
        "Section 3: confusing prompts",
        (">= 0.2", lambda lab, seed: lab.swapped_shared(seed)),
        _null("typed relations", "<= 0.1", lambda lab, seed: lab.swapped_typed(seed)),
    )

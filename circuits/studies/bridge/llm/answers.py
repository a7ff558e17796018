"""What a language model says to two-hop questions, and to parts of them."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from circuits.models.language_model import LanguageModel

from .data import answered, lenders, log_probs, questions, single_hops, tokens
from .facts import Place


@dataclass(frozen=True)
class Omitted:
    """Log-probabilities with the first hop left out, in nats.

    Attributes:
        own: the object under its own landmark.
        other_object: another object under that landmark.
        lent: the object under another landmark.
        lent_other_object: another object under another landmark.
    """

    own: Float[Tensor, " question"]
    other_object: Float[Tensor, " question"]
    lent: Float[Tensor, " question"]
    lent_other_object: Float[Tensor, " question"]

    @property
    def excess(self) -> float:
        """How much likelier objects are under their own landmark, mean."""
        return float((self.own - self.lent).mean())


@dataclass(frozen=True)
class TwoHop:
    """Whether two-hop questions are answered right.

    Attributes:
        right: the object beats all others of its kind.
        swapped: the object of another question, fixed beforehand, does.
    """

    right: Bool[Tensor, " question"]
    swapped: Bool[Tensor, " question"]

    @property
    def accuracy(self) -> float:
        """The share of right answers."""
        return float(self.right.double().mean())


def omitted(model: LanguageModel, several: Sequence[Place]) -> Omitted:
    """Ask for the attributes of landmarks' countries as if they were the landmarks'."""
    asked = questions(several)
    lent = lenders(asked)
    objects = tokens(model, (q.object for q in asked))
    others = tokens(model, (lender.object for lender in lent))
    own = log_probs(model, [q.omitting(q.place.landmark) for q in asked])
    pairs = zip(asked, lent, strict=True)
    borrowed = log_probs(model, [q.omitting(other.landmark) for q, other in pairs])
    return Omitted(
        own=_of(own, objects),
        other_object=_of(own, others),
        lent=_of(borrowed, objects),
        lent_other_object=_of(borrowed, others),
    )


def two_hop(model: LanguageModel, several: Sequence[Place]) -> TwoHop:
    """Ask for the attributes of landmarks' countries, with both hops."""
    asked = questions(several)
    objects = tokens(model, (q.object for q in asked))
    others = tokens(model, (lender.object for lender in lenders(asked)))
    scores = log_probs(model, [q.two_hop for q in asked])
    said = answered(scores, objects, [q.kind for q in asked])
    return TwoHop(said == objects, said == others)


def one_hop(model: LanguageModel, several: Sequence[Place]) -> float:
    """Right answers to the single hops, among those of one kind, in [0, 1]."""
    facts = single_hops(several, start="")
    half = len(facts["second"]) // 2
    kinds = [0] * len(facts["first"]) + [1] * half + [2] * half
    asked = [*facts["first"], *facts["second"]]
    answers = tokens(model, (fact.answer.strip() for fact in asked))
    scores = log_probs(model, [fact.prompt for fact in asked])
    return float((answered(scores, answers, kinds) == answers).double().mean())


def rise(before: Omitted, after: Omitted) -> Float[Tensor, " question"]:
    """How much more the object's log-probability rose than another object's."""
    return (after.own - before.own) - (after.other_object - before.other_object)


def lent_rise(before: Omitted, after: Omitted) -> Float[Tensor, " question"]:
    """The same under another landmark."""
    other = after.lent_other_object - before.lent_other_object
    return (after.lent - before.lent) - other


def difference(
    values: Float[Tensor, " question"], right: Bool[Tensor, " question"]
) -> float:
    """Mean where a question is answered right minus mean where it is not."""
    return float(values[right].mean() - values[~right].mean())


def _of(
    scores: Float[Tensor, "prompt d_vocab"], words: Int[Tensor, " prompt"]
) -> Float[Tensor, " prompt"]:
    return scores[torch.arange(len(words), device=scores.device), words]

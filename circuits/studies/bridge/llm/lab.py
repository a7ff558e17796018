"""A pretrained language model, opened for two-hop questions about landmarks.

A seed draws some landmarks and their order: which ones choose layers and which ones are
judged, who lends its object or its name as a control, and the order of fine-tuning. A
layer is chosen on half of the landmarks; the value comes from the other half.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from circuits.claims import NotTested
from circuits.interventions.part import column
from circuits.interventions.passes import activations
from circuits.lab import LanguageLab, once
from circuits.models.language_model import LanguageModel
from circuits.models.tuned import fine_tuned
from circuits.sites import Site
from probes.alignment import centred_paired_cosine
from probes.lens import target_rank

from .claims import Settings
from .data import (
    ATTRIBUTES,
    FIRST,
    PLAIN,
    WITH_IDENTITY,
    Place,
    answered,
    lenders,
    log_probs,
    other_countries,
    questions,
    single_hops,
    start,
    tokens,
    usable,
)

PerQuestion = Float[Tensor, " question"]
States = Float[Tensor, "layer prompt d_model"]


@dataclass(frozen=True)
class Omitted:
    """Log-probabilities with the first hop left out, in nats.

    Attributes:
        own: the object under its own landmark.
        other_object: another object under that landmark.
        lent: the object under another landmark.
        lent_other_object: another object under another landmark.
    """

    own: PerQuestion
    other_object: PerQuestion
    lent: PerQuestion
    lent_other_object: PerQuestion

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

    @property
    def lent(self) -> float:
        """The share of answers that are another landmark's."""
        return float(self.swapped.double().mean())


class Answers(NamedTuple):
    """What a model says to single hops, to both, and with the first left out."""

    one: float
    """Right answers to the single hops, among those of one kind, in [0, 1]."""
    two: TwoHop
    omitted: Omitted


class Rise(NamedTuple):
    """How much more the object's log-probability rose than another object's.

    Under its own landmark and under another one.
    """

    own: PerQuestion
    lent: PerQuestion


class BridgeLanguageLab(LanguageLab):
    """A language model with landmarks that it has single tokens for."""

    settings: Settings

    @once
    def places(self, seed: int) -> list[Place]:
        """The landmarks in a seed's order."""
        known = usable(self.model)
        if len(known) < self.settings.least_places:
            raise NotTested(
                f"{self.model.name} has single tokens for {len(known)} landmarks,"
                f" {self.settings.least_places} are needed"
            )
        return random.Random(seed).sample(known, len(known))

    def drawn(self, seed: int) -> list[Place]:
        """The landmarks that a seed fine-tunes on."""
        return self.places(seed)[: self.settings.n_places]

    @once
    def before(self, seed: int) -> Answers:
        """What the model says as it is."""
        return answers(self.model, self.drawn(seed), self.settings)

    @once
    def after(self, seed: int, *, identity: bool = False) -> Answers:
        """What it says after fine-tuning on single hops, or on identity facts too."""
        several = self.drawn(seed)
        facts = single_hops(several, start(self.model))
        curriculum = WITH_IDENTITY if identity else PLAIN
        tuned = fine_tuned(self.model, curriculum, facts, seed, self.settings.tuning)
        return answers(tuned, several, self.settings)

    def rise(self, seed: int) -> Rise:
        """What fine-tuning adds with the first hop left out."""
        return rise(self.before(seed).omitted, self.after(seed).omitted)

    def right_lead(self, name: str) -> list[float]:
        """Mean rise where the two-hop question is right minus where it is wrong.

        A seed without one of them says nothing.
        """
        found = []
        for seed in self.seeds:
            right = self.after(seed).two.right
            if 0 < int(right.sum()) < len(right):
                values = getattr(self.rise(seed), name)
                found.append(float(values[right].mean() - values[~right].mean()))
        if not found:
            raise NotTested("no seed has right and wrong two-hop questions")
        return found

    @once
    def bridge_rank(self, seed: int) -> float:
        """How much better the country ranks than another one; see `bridge_rank`."""
        return bridge_rank(self.model, self.places(seed), self.settings.at_once)

    @once
    def alignment(self, seed: int) -> tuple[float, float]:
        """Does the first hop's output point where the country's own state does?

        The last tokens of "[landmark] is in the country of" and of "[country]".

        Returns:
            Their centred cosine, mean over landmarks that did not choose the layer, and
            that with the state of another country.
        """
        several, at_once = self.places(seed), self.settings.at_once
        asked = [FIRST.format(place.landmark) for place in several]
        own = [place.country for place in several]
        texts = (asked, own, list(other_countries(several)))
        return best_alignment(*(states_at(self.model, t, t, at_once) for t in texts))


def answers(
    model: LanguageModel, several: Sequence[Place], settings: Settings
) -> Answers:
    """Ask for everything."""
    return Answers(
        one_hop(model, several, settings),
        two_hop(model, several, settings),
        omitted(model, several, settings),
    )


def omitted(
    model: LanguageModel, several: Sequence[Place], settings: Settings
) -> Omitted:
    """Ask for the attributes of landmarks' countries as if they were the landmarks'."""
    asked = questions(several)
    lent = lenders(asked, settings.landmark_after, settings.object_after)
    objects = tokens(model, (q.object for q in asked))
    others = tokens(model, (lender.object for lender in lent))
    texts = [q.omitting(q.place.landmark) for q in asked]
    own = log_probs(model, texts, settings.at_once)
    pairs = zip(asked, lent, strict=True)
    texts = [q.omitting(other.landmark) for q, other in pairs]
    borrowed = log_probs(model, texts, settings.at_once)
    return Omitted(
        own=_of(own, objects),
        other_object=_of(own, others),
        lent=_of(borrowed, objects),
        lent_other_object=_of(borrowed, others),
    )


def two_hop(
    model: LanguageModel, several: Sequence[Place], settings: Settings
) -> TwoHop:
    """Ask for the attributes of landmarks' countries, with both hops."""
    asked = questions(several)
    lent = lenders(asked, settings.landmark_after, settings.object_after)
    objects = tokens(model, (q.object for q in asked))
    others = tokens(model, (lender.object for lender in lent))
    scores = log_probs(model, [q.two_hop for q in asked], settings.at_once)
    said = answered(scores, objects, [q.kind for q in asked])
    return TwoHop(said == objects, said == others)


def one_hop(
    model: LanguageModel, several: Sequence[Place], settings: Settings
) -> float:
    """Right answers to the single hops, among those of one kind, in [0, 1]."""
    facts = single_hops(several, start="")
    half = len(facts["second"]) // 2
    kinds = [0] * len(facts["first"]) + [1] * half + [2] * half
    asked = [*facts["first"], *facts["second"]]
    right = tokens(model, (fact.answer.strip() for fact in asked))
    scores = log_probs(model, [fact.prompt for fact in asked], settings.at_once)
    return float((answered(scores, right, kinds) == right).double().mean())


def rise(before: Omitted, after: Omitted) -> Rise:
    """How much more the object rose than another object."""
    other = after.lent_other_object - before.lent_other_object
    return Rise(
        (after.own - before.own) - (after.other_object - before.other_object),
        (after.lent - before.lent) - other,
    )


def bridge_rank(model: LanguageModel, several: Sequence[Place], at_once: int) -> float:
    """How much better the country ranks than another one, in powers of ten.

    log10 rank(other) - log10 rank(own) under the logit lens at the landmark's last
    token of a two-hop question, mean over landmarks that did not choose the layer.
    """
    landmarks = [place.landmark for place in several]
    asked = [ATTRIBUTES[0].both.format(landmark) for landmark in landmarks]
    own = tokens(model, (place.country for place in several))
    other = tokens(model, other_countries(several))
    states = states_at(model, asked, landmarks, at_once)
    countries = torch.stack([own, other], -1)
    ranks = target_rank(states, model.readout.logits, countries).log10()
    gain = ranks[..., 1] - ranks[..., 0]
    layer = int(gain[:, 0::2].mean(1).argmax())
    return float(gain[layer, 1::2].mean())


def best_alignment(hops: States, names: States, others: States) -> tuple[float, float]:
    """Centred cosine of hops with names and with others, in the layer that is best.

    The even prompts choose the layer, the odd ones are measured.
    """
    halves = [slice(0, None, 2), slice(1, None, 2)]
    (chosen, chosen_null), (own, null) = (
        [
            centred_paired_cosine(hops[:, half], states[:, half]).mean(1)
            for states in (names, others)
        ]
        for half in halves
    )
    layer = int((chosen - chosen_null).argmax())
    return float(own[layer]), float(null[layer])


def states_at(
    model: LanguageModel, texts: Sequence[str], phrases: Sequence[str], at_once: int
) -> States:
    """The residual stream after every block, at the last token of each text's phrase.

    Args:
        model: the model.
        texts: the prompts, without what every prompt begins with.
        phrases: for each a part of it.
        at_once: prompts in one pass.
    """
    sites = [Site("resid_post", layer) for layer in range(model.n_layers)]
    first = start(model)
    parts = []
    for begin in range(0, len(texts), at_once):
        part = slice(begin, begin + at_once)
        written = [first + text for text in texts[part]]
        prompts = model.prompts(written, roles={"phrase": phrases[part]})
        seen = activations(model, prompts, sites)
        rows = torch.arange(len(prompts), device=model.device)
        at = column(prompts, "phrase")
        parts.append(torch.stack([seen[site][rows, at] for site in sites]))
    return torch.cat(parts, 1)


def _of(
    scores: Float[Tensor, "prompt d_vocab"], words: Int[Tensor, " prompt"]
) -> PerQuestion:
    return scores[torch.arange(len(words), device=scores.device), words]

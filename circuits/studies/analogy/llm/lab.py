"""What a language model makes of "[S] is classified as", before and after lessons.

A seed draws the facts, the exchange of their categories and the order of fine-tuning.
"""

import random
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from circuits.interventions.passes import activations
from circuits.lab import LanguageLab, once
from circuits.models.language_model import LanguageModel
from circuits.models.tuned import fine_tuned
from circuits.sites import Site
from probes.alignment import (
    centred_paired_cosine,
    paired_cosine,
    shifted_pair_cosine,
    sparsified,
)
from trained.analogy.facts import Fact, permuted_categories
from trained.task import Batch

from .claims import Settings
from .data import CURRICULA, category_tokens, draw, lists, subjects, written

Values = list[float]
"""One per seed."""


class Pairs(NamedTuple):
    """Mean cosine of partners, and of shifted pairs."""

    own: float
    shifted: float


class Drawn(NamedTuple):
    """The facts of a seed."""

    facts: list[Fact]
    permuted: tuple[Fact, ...]
    """The same with categories exchanged."""
    choose: list[Fact]
    """Facts to choose a layer on."""
    judge: list[Fact]
    """Facts to judge it on."""


class Reading(NamedTuple):
    """One pass over the subjects of some facts."""

    first: float
    """Share of first subjects whose category beats those of other facts."""
    second: float
    """The same for the second subjects."""
    similarity: Pairs
    """Raw cosine of a fact's subjects, last token, after the final norm."""
    sparse: Pairs
    """Cosine of their largest MLP activations at the relation's tokens."""


class AnalogyLanguageLab(LanguageLab):
    """A pretrained model with facts about look-alikes."""

    settings: Settings

    def success(self, lessons: str) -> Values:
        """Held-out success of the second subjects after lessons; see `reading`."""
        return self.each(lambda seed: self.reading(lessons, seed).second)

    def retained(self, lessons: str) -> Values:
        """The same of the first subjects, which were taught."""
        return self.each(lambda seed: self.reading(lessons, seed).first)

    def order(self) -> Values:
        """Mean success of joint and SA minus that of AS."""
        joint, late, early = (self.success(name) for name in ("joint", "SA", "AS"))
        rows = zip(joint, late, early, strict=True)
        return [(a + b) / 2 - c for a, b, c in rows]

    def gap(self, of: str, lessons: str, shifted: bool = False) -> Values:
        """How much more alike than after AS; `of` is `similarity` or `sparse`."""

        def difference(seed: int) -> float:
            after, early = (self.reading(name, seed) for name in (lessons, "AS"))
            found: Pairs = getattr(after, of)
            against: Pairs = getattr(early, of)
            return found[shifted] - against[shifted]

        return self.each(difference)

    def beyond_half(self, of: str, lessons: str) -> Values:
        """The gap of shifted pairs less half of the partners' gap."""
        shifted, own = self.gap(of, lessons, shifted=True), self.gap(of, lessons)
        return [null - gap / 2 for null, gap in zip(shifted, own, strict=True)]

    def aligned(self, shifted: bool = False) -> Values:
        """Centred cosine of a fact's subjects without fine-tuning, in one layer."""
        return self.each(lambda seed: self.alignment(seed)[shifted])

    def excess(self) -> Values:
        """The same less that of shifted pairs."""
        return [a - b for a, b in zip(self.aligned(), self.aligned(True), strict=True)]

    @once
    def drawn(self, seed: int) -> Drawn:
        """The facts of a seed."""
        source = random.Random(seed)
        facts = draw(self.model, self.settings.n_facts, source)
        permuted = permuted_categories(facts, generator=source)
        several = draw(self.model, 2 * self.settings.n_aligned, source)
        return Drawn(facts, permuted, several[0::2], several[1::2])

    @once
    def reading(self, lessons: str, seed: int) -> Reading:
        """The model after a curriculum, or as it was with `before`.

        The lessons `permuted`, and `permuted before`, exchange the categories.
        """
        drawn = self.drawn(seed)
        facts = drawn.permuted if lessons.startswith("permuted") else drawn.facts
        if lessons in CURRICULA:
            sentences, tuning = lists(self.model, facts), self.settings.tuning
            curriculum = CURRICULA[lessons]
            model = fine_tuned(self.model, curriculum, sentences, seed, tuning)
        else:
            model = self.model
        return read(model, facts, self.settings)

    @once
    def alignment(self, seed: int) -> Pairs:
        """Of a fact's subjects without fine-tuning, in a layer chosen on others."""
        drawn = self.drawn(seed)
        return alignment(self.model, drawn.choose, drawn.judge, self.settings.at_once)


def alignment(
    model: LanguageModel, choose: Sequence[Fact], judge: Sequence[Fact], at_once: int
) -> Pairs:
    """Centred cosine of a fact's subjects at their last token, in one layer.

    The layer is the one with the largest excess over shifted pairs on other facts.
    """
    chosen, chosen_null = layer_alignment(model, choose, at_once)
    layer = int((chosen - chosen_null).argmax())
    own, null = layer_alignment(model, judge, at_once)
    return Pairs(float(own[layer]), float(null[layer]))


def read(model: LanguageModel, facts: Sequence[Fact], settings: Settings) -> Reading:
    """Run the model on the attribution prompts of both subjects."""
    prompts = written(model, subjects(facts))
    parts = [_read(model, chunk) for chunk in prompts.chunks(settings.at_once)]
    logits, states, active = (torch.cat(part) for part in zip(*parts, strict=True))
    right = successes(logits, category_tokens(model, facts))
    # [fact relation layer d_mlp] -> [relation layer fact d_mlp]
    active = active.movedim(0, 2)
    return Reading(
        first=float(right[0].mean()),
        second=float(right[1].mean()),
        similarity=_cosines(states),
        sparse=_cosines(sparsified(active, settings.kept)),
    )


def successes(
    logits: Float[Tensor, "subject d_vocab"], categories: Int[Tensor, " fact"]
) -> Float[Tensor, "2 fact"]:
    """1 where the own category's first token beats those of the others, else 0."""
    best = logits[:, categories].argmax(-1).reshape(2, -1)
    own = torch.arange(len(categories), device=logits.device)
    return (best == own).double()


def layer_alignment(
    model: LanguageModel, facts: Sequence[Fact], at_once: int
) -> tuple[Float[Tensor, " layer"], Float[Tensor, " layer"]]:
    """Centred cosine of subjects after every block, of partners and shifted pairs."""
    prompts = written(model, subjects(facts))
    parts = [_subject_states(model, chunk) for chunk in prompts.chunks(at_once)]
    first, second = torch.cat(parts, 1).chunk(2, 1)
    shifted = second.roll(-1, 1)
    return (
        centred_paired_cosine(first, second).mean(1),
        centred_paired_cosine(first, shifted).mean(1),
    )


def _read(model: LanguageModel, prompts: Batch) -> tuple[Tensor, Tensor, Tensor]:
    last_layer = Site("resid_post", model.n_layers - 1)
    mlps = [Site("mlp_act", layer) for layer in range(model.n_layers)]
    seen = activations(model, prompts, [Site("logits"), last_layer, *mlps])
    rows = torch.arange(len(prompts), device=model.device)
    relation = prompts.role("relation")
    return (
        seen[Site("logits")][rows, prompts.last],
        model.readout.final_norm(seen[last_layer][rows, prompts.last]),
        torch.stack([seen[site][rows[:, None], relation] for site in mlps], 2),
    )


def _subject_states(
    model: LanguageModel, prompts: Batch
) -> Float[Tensor, "layer subject d_model"]:
    sites = [Site("resid_post", layer) for layer in range(model.n_layers)]
    seen = activations(model, prompts, sites)
    rows = torch.arange(len(prompts), device=model.device)
    # Shorter names repeat their last token, so the last column always holds it.
    at = prompts.role("subject")[:, -1]
    return torch.stack([seen[site][rows, at] for site in sites])


def _cosines(states: Float[Tensor, "*batch subject width"]) -> Pairs:
    """Mean over facts and all else; first subjects come before second ones."""
    first, second = states.chunk(2, -2)
    own, shifted = paired_cosine(first, second), shifted_pair_cosine(first, second)
    return Pairs(float(own.mean()), float(shifted.mean()))

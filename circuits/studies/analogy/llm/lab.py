"""What a language model makes of "[S] is classified as", before and after lessons.

A seed draws the facts, the invented names and the order of fine-tuning. Success is that
greedy decoding gives the whole category of the second subject, which no lesson teaches.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from circuits.interventions.ablation import ablate
from circuits.interventions.edit import Keep
from circuits.interventions.part import Part
from circuits.interventions.passes import activations
from circuits.lab import LanguageLab, once
from circuits.models.language_model import LanguageModel
from circuits.models.open import behind
from circuits.models.tuned import fine_tuned_phases
from circuits.sites import Site
from probes.alignment import (
    centred_paired_cosine,
    paired_cosine,
    shifted_pair_cosine,
    sparsified,
)
from trained.analogy.facts import Fact, load_facts
from trained.facts import Fact as TrainedFact
from trained.facts import answer_scores, encode
from trained.finetuning_config import FineTuning
from trained.seeding import generator
from trained.task import Batch

from .claims import FITTED, Settings
from .data import Drawn, Lessons, category_tokens, draw, lists, sentence, subjects
from .data import written as prompts_of

Values = list[float]
"""One per seed."""
PerFact = Float[Tensor, " fact"]


class Pairs(NamedTuple):
    """Cosine of a fact's subjects, and of shifted pairs, fact by fact."""

    own: PerFact
    shifted: PerFact


class Reading(NamedTuple):
    """A model after lessons, on the facts they were about."""

    success: PerFact
    """1 where greedy decoding gives the second subject's category, else 0."""
    retained: float
    """The same of the first subjects, which were taught; their mean."""
    fit: float
    """Least share of a taught list that is decoded when the phase that teaches it
    ends; 1 without lessons."""
    restricted: float
    """Share of second subjects whose category begins with the best of the first tokens
    of all categories."""
    similarity: Pairs
    """Raw, last token of the prompt, after the final norm."""
    sparse: Pairs
    """The same where only the largest MLP activations were kept at the relation."""
    random: Pairs
    """The same where as many were kept at random."""
    passive: Pairs
    """Of the largest MLP activations at the relation's tokens themselves."""


class AnalogyLanguageLab(LanguageLab):
    """A pretrained model with facts about look-alikes."""

    settings: Settings

    def success(self, lessons: str) -> Values:
        """Share of second subjects whose category is decoded."""
        return self.each(lambda seed: float(self.reading(lessons, seed).success.mean()))

    def of(self, quantity: str, lessons: str) -> Values:
        """`retained`, `fit` or `restricted` after lessons."""
        return self.each(lambda seed: getattr(self.reading(lessons, seed), quantity))

    def cosine(self, lessons: str, quantity: str, which: str = "own") -> Values:
        """Mean cosine after lessons; see `Reading` and `Pairs`."""
        return self.each(
            lambda seed: float(self._pairs(lessons, seed, quantity, which).mean())
        )

    def carried(self, lessons: str, against: str, *, low: bool = False) -> Values:
        """How much more success after lessons than after others.

        Args:
            lessons: one set, or several joined by commas: the least of them.
            against: what they are compared with.
            low: the lower end of the 95 % bootstrap interval over facts instead.
        """
        names = [*lessons.split(","), against]
        return self._compared(lambda s, x: self.reading(x, s).success, names, low)

    def gap(
        self, of: str, lessons: str, which: str = "own", *, low: bool = False
    ) -> Values:
        """How much more alike than after AS; see `Reading` and `carried`."""

        def cosines(seed: int, name: str) -> PerFact:
            return self._pairs(name, seed, of, which)

        return self._compared(cosines, [lessons, "AS"], low)

    def beyond_half(self, of: str, lessons: str, which: str, against: str) -> Values:
        """A null's gap less half of the gap it stands against."""
        null, own = self.gap(of, lessons, which), self.gap(against, lessons)
        return [a - b / 2 for a, b in zip(null, own, strict=True)]

    def aligned(self, shifted: bool = False) -> Values:
        """Centred cosine of a fact's subjects without fine-tuning, in one layer."""
        return self.each(lambda seed: float(self.alignment(seed)[shifted]))

    def excess(self) -> Values:
        """The same less that of shifted pairs."""
        return [a - b for a, b in zip(self.aligned(), self.aligned(True), strict=True)]

    @once
    def drawn(self, seed: int) -> Drawn:
        """The facts of a seed."""
        sizes, facts = self.settings, load_facts(self.settings.facts or None)
        return draw(facts, sizes.n_facts, sizes.n_aligned, seed)

    @once
    def tuning(self) -> FineTuning:
        """How the facts are taught; one learning rate for all lessons.

        The smallest of the settings' rates with which joint training fits its premises
        on the first seed, or the largest; never chosen on the test.
        """
        given = self.settings.tuning
        for lr in self.settings.rates:
            given = replace(given, lr=lr)
            if self._taught("joint", self.seeds[0], given)[1] >= FITTED:
                break
        return given

    @once
    def reading(self, lessons: str, seed: int) -> Reading:
        """The model after lessons such as `joint`, `before` or `AS invented`."""
        model, fit = self._taught(lessons, seed, self.tuning())
        facts = getattr(self.drawn(seed), Lessons.named(lessons).about)
        return read(model, facts, self.settings, seed)._replace(fit=fit)

    @once
    def alignment(self, seed: int) -> tuple[float, float]:
        """Of a fact's subjects without fine-tuning, in a layer chosen on others."""
        drawn = self.drawn(seed)
        return alignment(self.model, drawn.choose, drawn.judge, self.settings.at_once)

    def _taught(
        self, lessons: str, seed: int, tuning: FineTuning
    ) -> tuple[LanguageModel, float]:
        """The model after lessons, and how well the least taught list was learned."""
        curriculum, about = Lessons.named(lessons)
        if curriculum is None:
            return self.model, 1.0
        every = lists(self.model, getattr(self.drawn(seed), about))
        taught = {name: every[name] for name in (*curriculum.trained, "test")}
        if self.settings.loss == "sentence":
            taught = {name: [sentence(f) for f in taught[name]] for name in taught}
        phases = fine_tuned_phases(self.model, curriculum, taught, seed, tuning)
        fits: dict[str, float] = {}
        for names, trained in zip(curriculum.phases, phases, strict=True):
            model = trained
            for name in names:
                fits[name] = float(exact(trained, every[name]).mean())
        return model, min(fits.values())

    def _pairs(self, lessons: str, seed: int, quantity: str, which: str) -> PerFact:
        pairs: Pairs = getattr(self.reading(lessons, seed), quantity)
        found: PerFact = getattr(pairs, which)
        return found

    def _compared(
        self,
        of: Callable[[int, str], PerFact],
        names: Sequence[str],
        low: bool,
    ) -> Values:
        """The least mean of all names but the last, less that of the last."""

        def compared(seed: int) -> float:
            rows = torch.stack([of(seed, name) for name in names]).double()
            if not low:
                return float(_least_less_last(rows))
            source = generator(seed, "analogy", "bootstrap")
            n_facts, draws = rows.shape[1], self.settings.resamples
            chosen = torch.randint(n_facts, (draws, n_facts), generator=source)
            found = _least_less_last(rows.cpu()[:, chosen])
            return float(found.quantile(0.025))

        return self.each(compared)


def _least_less_last(rows: Float[Tensor, "name *draw fact"]) -> Float[Tensor, "*draw"]:
    means = rows.mean(-1)
    return means[:-1].amin(0) - means[-1]


@torch.no_grad()
def exact(model: LanguageModel, facts: Sequence[TrainedFact]) -> PerFact:
    """1 where greedy decoding gives the whole answer, else 0."""
    _, hf = behind(model.module)
    batch = encode(model.tokenizer, facts)
    return answer_scores(hf, type(batch)(*(t.to(model.device) for t in batch))).exact


def read(
    model: LanguageModel, facts: Sequence[Fact], settings: Settings, seed: int = 0
) -> Reading:
    """Run the model on the attribution prompts of both subjects."""
    asked, prompts = lists(model, facts), prompts_of(model, subjects(facts))
    parts = [_read(model, chunk) for chunk in prompts.chunks(settings.at_once)]
    logits, states, active = (torch.cat(part) for part in zip(*parts, strict=True))
    right = restricted(logits, category_tokens(model, facts))
    # [subject relation layer d_mlp] -> [relation layer subject d_mlp]
    passive = _cosines(sparsified(active.movedim(0, 2), settings.kept))
    largest, drawn = Keep(settings.kept), Keep(settings.kept, seed)
    return Reading(
        success=exact(model, asked["test"]),
        retained=float(exact(model, asked["attribution"]).mean()),
        fit=1.0,
        restricted=float(right[1].mean()),
        similarity=_cosines(states),
        sparse=_cosines(kept_states(model, prompts, largest, settings.at_once)),
        random=_cosines(kept_states(model, prompts, drawn, settings.at_once)),
        passive=Pairs(*(pairs.mean((0, 1)) for pairs in passive)),
    )


def kept_states(
    model: LanguageModel, prompts: Batch, rule: Keep, at_once: int
) -> Float[Tensor, "subject d_model"]:
    """The final states, where of the MLPs at the relation's tokens a share is kept.

    In every layer, in one pass: what is zeroed changes what later layers see (Table 3).
    """
    found = []
    for chunk in prompts.chunks(at_once):
        parts = [
            Part("mlp_act", layer, positions="relation")
            for layer in range(model.n_layers)
        ]
        with ablate(model, chunk, parts, rule):
            found.append(_final_states(model, chunk))
    return torch.cat(found)


def restricted(
    logits: Float[Tensor, "subject d_vocab"], categories: Int[Tensor, " fact"]
) -> Float[Tensor, "2 fact"]:
    """1 where the own category's first token is the best of all categories', else 0."""
    best = categories[logits[:, categories].argmax(-1)].reshape(2, -1)
    return (best == categories).double()


def alignment(
    model: LanguageModel, choose: Sequence[Fact], judge: Sequence[Fact], at_once: int
) -> tuple[float, float]:
    """Centred cosine of a fact's subjects at their last token, and of shifted pairs.

    In one layer: the one with the largest excess over shifted pairs on other facts.
    """
    chosen, chosen_null = layer_alignment(model, choose, at_once)
    layer = int((chosen - chosen_null).argmax())
    own, null = layer_alignment(model, judge, at_once)
    return float(own[layer]), float(null[layer])


def layer_alignment(
    model: LanguageModel, facts: Sequence[Fact], at_once: int
) -> tuple[Float[Tensor, " layer"], Float[Tensor, " layer"]]:
    """Centred cosine of subjects after every block, of partners and shifted pairs."""
    prompts = prompts_of(model, subjects(facts))
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


def _final_states(model: LanguageModel, prompts: Batch) -> Tensor:
    last_layer = Site("resid_post", model.n_layers - 1)
    seen = activations(model, prompts, [last_layer])[last_layer]
    rows = torch.arange(len(prompts), device=model.device)
    states: Tensor = model.readout.final_norm(seen[rows, prompts.last])
    return states


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
    """Of every fact's subjects; first subjects come before second ones."""
    first, second = states.chunk(2, -2)
    return Pairs(paired_cosine(first, second), shifted_pair_cosine(first, second))

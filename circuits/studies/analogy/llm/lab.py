"""What a language model makes of "[S] is classified as", before and after lessons.

A seed draws the facts, the invented names and the order of fine-tuning. Success is that
greedy decoding gives the whole category of the second subject, which no lesson teaches.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from circuits.backends import backend_of
from circuits.claims import NotTested
from circuits.interventions.ablation import ablate
from circuits.interventions.edit import Keep
from circuits.interventions.part import Part
from circuits.interventions.passes import activations
from circuits.lab import LanguageLab, once
from circuits.models.language_model import LanguageModel
from circuits.sites import Site
from circuits.tuning.tuned import Lesson, exact, taught
from probes.alignment import (
    centred_paired_cosine,
    paired_cosine,
    shifted_pair_cosine,
    sparsified,
)
from trained.analogy.facts import Fact
from trained.seeding import generator
from trained.task import Batch

from .data import Drawn, Lessons, category_tokens, draw, lists, sentence, subjects
from .data import written as prompts_of
from .rows import SCHEMA
from .settings import FITTED, Settings

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

    def tensors(self) -> dict[str, Tensor]:
        """As they are stored."""
        found: dict[str, Tensor] = {}
        for name, value in self._asdict().items():
            if isinstance(value, Pairs):
                found |= {f"{name}.{key}": t for key, t in value._asdict().items()}
            else:
                found[name] = torch.as_tensor(value, dtype=torch.float64)
        return found

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> "Reading":
        """What `tensors` gave."""
        values: dict[str, Any] = {
            name: float(tensor) if tensor.ndim == 0 else tensor
            for name, tensor in tensors.items()
            if "." not in name
        }
        for name in {name.partition(".")[0] for name in tensors if "." in name}:
            values[name] = Pairs(tensors[f"{name}.own"], tensors[f"{name}.shifted"])
        return cls(**values)


class AnalogyLanguageLab(LanguageLab):
    """A pretrained model with facts about look-alikes."""

    SCHEMA = SCHEMA
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
        assert self.data is not None
        return draw(self.data.rows, self.settings.facts, self.settings.n_aligned, seed)

    @once
    def rate(self) -> float:
        """The learning rate of all lessons.

        The smallest of the settings' rates with which joint training fits its premises
        on the first seed, or the largest; never chosen on the test.
        """
        lr = self.settings.lr
        for lr in self.settings.rates:
            if self._reading("joint", self.seeds[0], lr).fit >= FITTED:
                break
        return lr

    @once
    def reading(self, lessons: str, seed: int) -> Reading:
        """The model after lessons such as `joint`, `before` or `AS invented`."""
        untaught = Lessons.named(lessons).curriculum is None
        return self._reading(lessons, seed, 0.0 if untaught else self.rate())

    @once
    def _reading(self, lessons: str, seed: int, lr: float) -> Reading:
        def make(folder: Path | None) -> dict[str, Tensor]:
            facts = getattr(self.drawn(seed), Lessons.named(lessons).about)
            if not facts:
                reason = "one category covers half of the facts: none to exchange"
                raise NotTested(reason)
            lesson = self._lesson(lessons, seed, lr)
            with taught(self.model, lesson, folder=folder) as found:
                fit = min(found.fits.values(), default=1.0)
                seen = read(found.model, facts, self.settings, seed)
            return seen._replace(fit=fit).tensors()

        name = f"{lessons}, seed {seed}, rate {lr:g}"
        return Reading.of(self.keeper.kept(name, make))

    @once
    def alignment(self, seed: int) -> tuple[float, float]:
        """Of a fact's subjects without fine-tuning, in a layer chosen on others."""
        drawn = self.drawn(seed)
        return alignment(self.model, drawn.choose, drawn.judge, self.settings.at_once)

    def _lesson(self, lessons: str, seed: int, lr: float) -> Lesson | None:
        """What is taught; None: nothing."""
        curriculum, about = Lessons.named(lessons)
        if curriculum is None:
            return None
        asked = lists(self.model, getattr(self.drawn(seed), about))
        given = asked
        if self.settings.loss == "sentence":
            given = {name: [sentence(f) for f in asked[name]] for name in asked}
        return Lesson(curriculum, given, seed, replace(self.settings, lr=lr), asked)

    def _pairs(self, lessons: str, seed: int, quantity: str, which: str) -> PerFact:
        pairs: Pairs = getattr(self.reading(lessons, seed), quantity)
        found: PerFact = getattr(pairs, which)
        if bool(found.isnan().any()):
            raise NotTested(f"{self.model.name} has layers without MLP activations")
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


def read(
    model: LanguageModel, facts: Sequence[Fact], settings: Settings, seed: int = 0
) -> Reading:
    """Run the model on the attribution prompts of both subjects."""
    asked, prompts = lists(model, facts), prompts_of(model, subjects(facts))
    parts = [_read(model, chunk) for chunk in prompts.chunks(settings.at_once)]
    logits, states = (torch.cat(part) for part in zip(*parts, strict=True))
    right = restricted(logits, category_tokens(model, facts))
    return Reading(
        exact(model, asked["test"]),
        float(exact(model, asked["attribution"]).mean()),
        1.0,
        float(right[1].mean()),
        _cosines(states),
        *_sparse(model, prompts, settings, seed),
    )


def _sparse(
    model: LanguageModel, prompts: Batch, settings: Settings, seed: int
) -> tuple[Pairs, Pairs, Pairs]:
    """`sparse`, `random` and `passive` of a `Reading`; nan without MLP activations."""
    sites, at_once = backend_of(model.module).sites(model.module), settings.at_once
    mlps = [site for site in sites if site.kind == "mlp_act"]
    if len(mlps) < model.n_layers:
        none = torch.full((len(prompts) // 2,), torch.nan)
        return (Pairs(none, none),) * 3
    active = [_active(model, chunk, mlps) for chunk in prompts.chunks(at_once)]
    # [subject relation layer d_mlp] -> [relation layer subject d_mlp]
    passive = _cosines(sparsified(torch.cat(active).movedim(0, 2), settings.kept))
    largest, drawn = Keep(settings.kept), Keep(settings.kept, seed)
    return (
        _cosines(kept_states(model, prompts, largest, at_once)),
        _cosines(kept_states(model, prompts, drawn, at_once)),
        Pairs(*(pairs.mean((0, 1)) for pairs in passive)),
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


def _read(model: LanguageModel, prompts: Batch) -> tuple[Tensor, Tensor]:
    last_layer = Site("resid_post", model.n_layers - 1)
    seen = activations(model, prompts, [Site("logits"), last_layer])
    rows = torch.arange(len(prompts), device=model.device)
    return (
        seen[Site("logits")][rows, prompts.last],
        model.readout.final_norm(seen[last_layer][rows, prompts.last]),
    )


def _active(
    model: LanguageModel, prompts: Batch, mlps: Sequence[Site]
) -> Float[Tensor, "subject relation layer d_mlp"]:
    """The MLP activations at the relation's tokens."""
    seen = activations(model, prompts, mlps)
    rows = torch.arange(len(prompts), device=model.device)
    relation = prompts.role("relation")
    return torch.stack([seen[site][rows[:, None], relation] for site in mlps], 2)


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

"""The symbols study's signals on a pretrained language model.

The marker before the output and the matching head are chosen on programs of their own;
a seed draws the names and values of those that are judged.
"""

import random
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from circuits.hooks import record
from circuits.interventions.head_matrices import Circuit, head_matrices
from circuits.interventions.identity_surgery import Surgery, operate
from circuits.lab import LanguageLab, once
from circuits.models.language_model import LanguageModel
from circuits.models.norms import norm_parts
from circuits.sites import Site
from probes.attention import attention_mass
from trained.task import Batch

from .claims import Settings
from .data import (
    MARKERS,
    Form,
    Program,
    Words,
    answer_tokens,
    programs,
    with_strangers,
    words_of,
    written,
)

CIRCUITS: tuple[Circuit, ...] = ("qk", "ov")

Heads = Float[Tensor, "layer head"]
"""A score of every head."""


@dataclass(frozen=True)
class Chosen:
    """What was settled on programs that are not judged."""

    words: Words
    markers: dict[Form, str]
    head: tuple[int, int]


@dataclass(frozen=True)
class Drawn:
    """The programs of one seed."""

    frequent: list[Program]
    rare: list[Program]
    strangers: list[Program]

    @property
    def all(self) -> list[Program]:
        """Programs of both kinds, frequent words first."""
        return [*self.frequent, *self.rare]


@dataclass(frozen=True)
class Printed:
    """What follows some programs.

    Attributes:
        difference: logit of the right value minus that of the other one.
        best: the likeliest token of the whole vocabulary.
        matching: attention of the printed name to where it is assigned, minus that to
            the other name.
    """

    difference: Float[Tensor, " example"]
    best: Int[Tensor, " example"]
    matching: Float[Tensor, "layer example head"]

    @property
    def accuracy(self) -> float:
        """Share of programs whose right value is preferred to the other one."""
        return float((self.difference > 0).double().mean())


class SymbolsLanguageLab(LanguageLab):
    """A language model with programs whose names and values are any symbols."""

    settings: Settings

    def __init__(
        self, model: LanguageModel, settings: Settings, seeds: tuple[int, ...]
    ) -> None:
        super().__init__(model, settings, seeds)
        # A twin is tried with what was chosen for the model itself.
        self.chooser = self

    @once
    def diagonals(self, circuit: Circuit) -> Heads:
        """Z of every head's map; nan where scores are no bilinear map."""
        scores = []
        for layer in range(self.model.n_layers):
            matrices = head_matrices(self.model, layer)
            if circuit == "qk" and not matrices.bilinear:
                scores.append(torch.full((self.model.n_heads,), torch.nan))
            else:
                scores.append(matrices.identity_score(circuit).cpu())
        return torch.stack(scores)

    def diagonal_share(self, circuit: Circuit) -> float:
        """Share of heads with a strong diagonal."""
        return share_above(self.diagonals(circuit), self.settings.strong)

    def copying_share(self) -> float:
        """Share of heads that copy."""
        return share_above(copying_scores(self.model), self.settings.copies)

    @once
    def chosen(self) -> Chosen:
        """Markers and the matching head, from programs that are not judged."""
        if self.chooser is not self:
            return self.chooser.chosen()
        sizes = self.settings
        words = words_of(self.model, sizes.n_words)
        source = random.Random(sizes.choosing_seed)
        several = programs(words.frequent, sizes.n_choose, source)
        value_marker, printed = self._best_marker(several, "values")
        sign_marker, _ = self._best_marker(several, "signs")
        matching = printed.matching.mean(1)
        head = divmod(int(matching.argmax()), matching.shape[1])
        markers: dict[Form, str] = {"values": value_marker, "signs": sign_marker}
        return Chosen(words, {**markers, "repeated": ""}, head)

    @once
    def drawn(self, seed: int) -> Drawn:
        """The programs of a seed."""
        words, source = self.chosen().words, random.Random(seed)
        frequent = programs(words.frequent, self.settings.n_draws, source)
        rare = programs(words.rare, self.settings.n_draws, source)
        return Drawn(frequent, rare, with_strangers(frequent, words.frequent, source))

    @once
    def printed(self, seed: int, form: Form) -> Printed:
        """What the model makes of a seed's programs; signs have no rare values."""
        drawn = self.drawn(seed)
        several = drawn.frequent if form == "signs" else drawn.all
        return self.run(several, form, self.chosen().markers[form])

    def accuracies(self, form: Form) -> list[float]:
        """Share of programs that come out right, by seed."""
        return self.each(lambda seed: self.printed(seed, form).accuracy)

    def matching(self, seed: int) -> float:
        """Attention of the matching head to the printed name's assignment."""
        return float(self.printed(seed, "values").matching.mean(1)[self.chosen().head])

    def stranger_matching(self, seed: int) -> float:
        """The same for a printed name that was never assigned."""
        chosen = self.chosen()
        marker = chosen.markers["values"]
        strange = self.run(self.drawn(seed).strangers, "values", marker)
        return float(strange.matching.mean(1)[chosen.head])

    def diagonal_and_matching(self, seed: int) -> float:
        """Correlation over heads of the diagonal of W_Q W_K^T and matching."""
        matching = self.printed(seed, "values").matching.mean(1)
        return correlation(self.diagonals("qk"), matching)

    def emission(self, seed: int) -> float:
        """Share of programs after which one of their values is likeliest."""
        found = self.emitted(self.printed(seed, "values"), self.drawn(seed).all)
        return float(found.double().mean())

    def foreign_emission(self, seed: int) -> float:
        """The same for the values of another program."""
        several = self.drawn(seed).all
        # Both programs of a draw have the same two values.
        others = several[2:] + several[:2]
        found = self.emitted(self.printed(seed, "values"), others)
        return float(found.double().mean())

    def rarity_gap(self, seed: int) -> float:
        """Accuracy with frequent words minus that with rare ones."""
        frequent, rare = self._right(seed)
        return float(frequent.mean() - rare.mean())

    def frequent_gap(self, seed: int) -> float:
        """Accuracy of one half of the frequent words minus that of the other."""
        frequent, _ = self._right(seed)
        half = self.settings.n_draws
        return float(frequent[:half].mean() - frequent[half:].mean())

    def _right(self, seed: int) -> tuple[Tensor, Tensor]:
        """Which repeated programs come out right; nan without competence."""
        right = (self.printed(seed, "repeated").difference > 0).double()
        half = 2 * self.settings.n_draws
        frequent, rare = right[:half], right[half:]
        if float(frequent.mean()) < self.settings.competent:
            return frequent * torch.nan, rare * torch.nan
        return frequent, rare

    @once
    def lost_shares(
        self, seed: int, circuit: Circuit, rotation: int | None
    ) -> Float[Tensor, " kind"]:
        """Lost shares of the logit difference: frequent words, then rare ones.

        The heads with the largest z lose the identity part of a map, or, given a
        rotation's seed, a rotation in its place; nan if z is undefined.
        """
        scores = self.diagonals(circuit)
        if bool(scores.isnan().any()):
            return torch.full((2,), torch.nan)
        heads = strongest(scores, self.settings.surgery_share)
        surgeries = [Surgery(layer, n, circuit, rotation) for layer, n in heads]
        drawn, whole = self.drawn(seed), self.printed(seed, "repeated").difference
        shares = []
        for several, first in ((drawn.frequent, 0), (drawn.rare, len(drawn.frequent))):
            cut = several[: self.settings.n_cut]
            without = self.run(cut, "repeated", "", surgeries).difference
            shares.append(lost_share(whole[first : first + len(cut)], without))
        return torch.tensor(shares)

    def lost(self, circuit: Circuit, *, rotated: bool = False) -> list[float]:
        """Lost share of the logit difference over all words, by seed."""
        return [
            float(self.lost_shares(seed, circuit, seed if rotated else None).mean())
            for seed in self.seeds
        ]

    def lost_by_rarity(self, *, rotated: bool = False) -> list[float]:
        """Lost share with rare words minus that with frequent ones, both maps."""
        found = []
        for seed in self.seeds:
            rotation = seed if rotated else None
            rows = [self.lost_shares(seed, c, rotation) for c in CIRCUITS]
            frequent, rare = torch.stack(rows).mean(0).tolist()
            found.append(rare - frequent)
        return found

    @torch.no_grad()
    def run(
        self,
        several: Sequence[Program],
        form: Form,
        marker: str,
        surgeries: Sequence[Surgery] = (),
    ) -> Printed:
        """What the model makes of programs, as it is or after surgery."""
        size = self.settings.at_once
        parts = [
            self._run(several[start : start + size], form, marker, surgeries)
            for start in range(0, len(several), size)
        ]
        difference, best, matching = zip(*parts, strict=True)
        return Printed(torch.cat(difference), torch.cat(best), torch.cat(matching, 1))

    def _run(
        self,
        several: Sequence[Program],
        form: Form,
        marker: str,
        surgeries: Sequence[Surgery],
    ) -> tuple[Tensor, Tensor, Tensor]:
        model = self.model
        prompts = written(model, several, form, marker)
        sites = [Site("pattern", layer) for layer in range(model.n_layers)]
        operated: AbstractContextManager[None] = nullcontext()
        if surgeries:
            operated = operate(model, prompts, surgeries)
        with operated, record(model, sites) as seen:
            logits = model(prompts.tokens, prompts.mask)
        rows = torch.arange(len(several), device=logits.device)
        last = logits[rows, prompts.last]
        answers = torch.stack(answer_tokens(model, several, form), -1)
        right, wrong = last.gather(1, answers).unbind(-1)
        matching = torch.stack([name_matching(seen[site], prompts) for site in sites])
        return (right - wrong).cpu(), last.argmax(-1).cpu(), matching.cpu()

    def _best_marker(
        self, several: Sequence[Program], form: Form
    ) -> tuple[str, Printed]:
        """The marker after which most programs come out right, and what they print."""
        runs = {m: self.run(several, form, m) for m in MARKERS[form]}
        return max(runs.items(), key=lambda item: item[1].accuracy)

    def emitted(
        self, printed: Printed, several: Sequence[Program]
    ) -> Bool[Tensor, " example"]:
        """Whether the likeliest token is one of two values, those of the programs."""
        both = answer_tokens(self.model, several, "values")
        right, wrong = (side.cpu() for side in both)
        return (printed.best == right) | (printed.best == wrong)


def name_matching(
    pattern: Float[Tensor, "batch head query key"], prompts: Batch
) -> Float[Tensor, "batch head"]:
    """Attention of the printed name to its assignment beyond the other's, in [-1, 1].

    A[printed, own] - A[printed, other]. Over programs that print either name, a liking
    for the first or for the nearer assignment cancels out.
    """
    rows = torch.arange(len(pattern), device=pattern.device)
    looks = pattern[rows, :, prompts.role("printed")[:, -1]]
    on = partial(attention_mass, looks)
    own, other = (prompts.role(name)[:, None, -1:] for name in ("own", "other"))
    return on(own) - on(other)


def share_above(scores: Heads, least: float) -> float:
    """Share of heads with a larger score; nan if scores are undefined."""
    if bool(scores.isnan().any()):
        return float("nan")
    return float((scores > least).double().mean())


@torch.no_grad()
def copying_scores(model: LanguageModel) -> Heads:
    """Whether a head raises the logits of what it attends to, in [-1, 1].

    sum of the eigenvalues of W_E W_V W_O W_U over the sum of their sizes (Elhage et
    al. 2021, "A Mathematical Framework for Transformer Circuits"), with the norms'
    gains folded in. The eigenvalues are those of the small W_O W_U W_E W_V.
    """
    # What nnsight wraps is a transformers model.
    hf: Any = getattr(model.module, "transformers_model", model.module)
    embedding = hf.get_input_embeddings().weight.detach()
    gain = norm_parts(model.readout.final_norm, embedding[:1]).gain
    both = (gain[:, None] * model.readout.unembedding) @ embedding
    scores = []
    for layer in range(model.n_layers):
        matrices = head_matrices(model, layer)
        small = matrices.W_O @ both @ matrices.W_V
        values = torch.linalg.eigvals(small.double())
        scores.append((values.real.sum(-1) / values.abs().sum(-1)).cpu())
    return torch.stack(scores)


def strongest(scores: Heads, share: float) -> list[tuple[int, int]]:
    """The heads (layer, head) with the largest scores, a share of all."""
    n_chosen = max(1, round(share * scores.numel()))
    ranked = scores.flatten().argsort(descending=True)[:n_chosen]
    return [divmod(int(place), scores.shape[1]) for place in ranked]


def correlation(first: Heads, second: Heads) -> float:
    """Pearson correlation over heads, in [-1, 1]."""
    both = torch.stack([first.flatten().double(), second.flatten().double()])
    return float(torch.corrcoef(both)[0, 1])


def lost_share(
    whole: Float[Tensor, " example"], without: Float[Tensor, " example"]
) -> float:
    """The share of the mean logit difference that is lost; nan if there is none.

    1 - mean(without) / mean(whole).

    >>> lost_share(torch.tensor([4.0, 2.0]), torch.tensor([1.0, 2.0]))
    0.5
    """
    before = float(whole.mean())
    return 1 - float(without.mean()) / before if before > 0 else float("nan")

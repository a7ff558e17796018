"""The symbols study's signals on a pretrained language model.

The marker before the output and the matching head are chosen on programs of their own;
a seed draws the names and values of those that are judged.
"""

import random
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from circuits.claims import NotTested
from circuits.conditions import Share
from circuits.hooks import record
from circuits.interventions.head_matrices import Circuit, head_matrices
from circuits.interventions.identity_surgery import Surgery, operate
from circuits.lab import LanguageLab, once
from circuits.sites import Site
from circuits.studies.symbols.lab import crossing

from .data import (
    MARKERS,
    Chosen,
    Drawn,
    Form,
    Program,
    answer_tokens,
    programs,
    with_strangers,
    words_of,
    written,
)
from .diagonals import strengths
from .finetune import Case, Start, Tuned, finetune
from .perplexity import Scalars, perplexity
from .rows import SCHEMA, String
from .rows import drawn as drawn_strings
from .settings import Settings
from .signals import (
    Heads,
    copying_scores,
    correlation,
    lost_share,
    name_matching,
    share_above,
    strongest,
)

CIRCUITS: tuple[Circuit, ...] = ("qk", "ov")


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

    SCHEMA = SCHEMA
    settings: Settings
    chooser: "SymbolsLanguageLab | None" = None
    """A twin is tried with what this one chose, the model itself."""

    def twin(self) -> "SymbolsLanguageLab":
        """The null: the same architecture with random weights, on the first seed."""
        # Chosen now: later the model wears the twin's weights.
        self.chosen()
        twin = super().twin()
        twin.chooser = self
        return twin

    @once
    def diagonals(self, circuit: Circuit) -> Heads:
        """Z of every head's map."""
        self._require_maps(circuit)
        layers = range(self.model.n_layers)
        found = (head_matrices(self.model, layer) for layer in layers)
        return torch.stack([one.identity_score(circuit).cpu() for one in found])

    @once
    def strengths(self, circuit: Circuit, mismatched: int | None = None) -> Heads:
        """Mean diagonal over the rest of every head's map."""

        def make(_folder: Path | None) -> dict[str, Tensor]:
            self._require_maps(circuit)
            return {"heads": strengths(self.model, circuit, mismatched=mismatched)}

        name = f"diagonals, {circuit}, mismatched {mismatched}"
        return self.keeper.kept(name, make)["heads"]

    def _require_maps(self, circuit: Circuit) -> None:
        """Nothing is tested where a layer's scores are no bilinear map."""
        layers = range(self.model.n_layers)
        found = (head_matrices(self.model, layer).bilinear for layer in layers)
        if circuit == "qk" and not all(found):
            raise NotTested(
                f"{self.model.name} normalises queries and keys, or caps scores: they "
                "are no bilinear map W_Q W_K^T"
            )

    def strong_heads(
        self, circuit: Circuit, mismatched: int | None = None
    ) -> list[Share]:
        """Heads whose diagonal is stronger than the rest, by layer."""
        found = self.strengths(circuit, mismatched) > 1
        return [Share(int(row.sum()), len(row)) for row in found]

    def strong_ratio(self, circuit: Circuit) -> list[float]:
        """Their share over that with mismatched heads, one pairing for each seed.

        Where no mismatched head is strong, half a head is taken to be.
        """
        own = float((self.strengths(circuit) > 1).sum())
        others = [float((self.strengths(circuit, s) > 1).sum()) for s in self.seeds]
        return [own / max(other, 0.5) for other in others]

    def perplexity_ratio(self, scalars: Scalars) -> list[float]:
        """Perplexity with scalars over that without, from scratch, paired seeds."""
        both = (self.perplexities(scalars), self.perplexities("none"))
        return [own / plain for own, plain in zip(*both, strict=True)]

    def perplexities(self, scalars: Scalars) -> list[float]:
        """The least validation perplexity from scratch, by seed."""
        own = self.settings.perplexity
        each = -(-own.n_seeds // len(self.seeds))
        seeds = [1000 * seed + index for seed in self.seeds for index in range(each)]
        return [self._perplexity(scalars, seed) for seed in seeds]

    @once
    def _perplexity(self, scalars: Scalars, seed: int) -> float:
        own = self.settings.perplexity
        if own.train_file is None or own.valid_file is None:
            raise NotTested("no text is given to train on")

        def make(folder: Path | None) -> dict[str, Tensor]:
            with TemporaryDirectory() as spare:
                at, device = folder or Path(spare), str(self.model.device)
                found = perplexity(own, scalars, seed, folder=at, device=device)
            return {"perplexity": torch.tensor(found, dtype=torch.float64)}

        name = f"perplexity, {scalars}, seed {seed}"
        return float(self.keeper.kept(name, make)["perplexity"])

    def strings(self, n: int, seed: int) -> tuple[String, ...]:
        """The strings of a seed: the file's, or drawn from the model's words."""
        if self.data is not None:
            return self.data.rows
        words = words_of(self.model, self.settings.n_words)
        both, own = [*words.frequent, *words.rare], self.settings.finetune
        return drawn_strings(self.model.tokenizer, both, own, n, seed)

    def own_rows(self) -> tuple[String, ...]:
        """The strings of the first seed, as many as the settings train on at most."""
        own = self.settings.finetune
        return self.strings(max(*own.n, *own.many), self.seeds[0])

    @once
    def tuned(self, start: Start, n: int, seed: int) -> Tuned:
        """What fine-tuning on n strings gives."""
        rows, case = partial(self.strings, n, seed), Case(start, n, seed)
        return finetune(self.model, rows, case, self.settings.finetune, self.keeper)

    @property
    def tuning_seeds(self) -> tuple[int, ...]:
        """The seeds that fine-tune."""
        return self.seeds[: self.settings.finetune.n_seeds]

    def tuned_errors(self, start: Start, n: int) -> list[float]:
        """Test MSE after fine-tuning, by seed."""
        return [self.tuned(start, n, seed).test for seed in self.tuning_seeds]

    def untuned_errors(self, n: int) -> list[float]:
        """Test MSE of the pretrained model before any step, by seed."""
        return [self.tuned("pretrained", n, seed).before for seed in self.tuning_seeds]

    def finetune_ratio(self) -> list[float]:
        """The n at MSE .5, re-initialised over pretrained, by seed; 0 if neither.

        At most the last n of the re-initialised: the ratio is then a lower bound.
        """
        own = self.settings.finetune
        few, all_n = own.n, (*own.n, *own.many)

        def needed(start: Start, sizes: tuple[int, ...], seed: int) -> float:
            errors = [self.tuned(start, n, seed).test for n in sizes]
            return crossing(sizes, torch.tensor(errors), 0.5)

        return [
            min(needed("reinitialised", all_n, seed), all_n[-1])
            / needed("pretrained", few, seed)
            for seed in self.tuning_seeds
        ]

    def copying_share(self) -> float:
        """Share of heads that copy."""
        return share_above(copying_scores(self.model), self.settings.copies)

    @once
    def chosen(self) -> Chosen:
        """Markers and the matching head, from programs that are not judged."""
        if self.chooser is not None:
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
        return Drawn(
            frequent,
            rare,
            strangers=with_strangers(frequent, words.frequent, source),
            rare_strangers=with_strangers(rare, words.rare, source),
        )

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

    def unassigned_gap(self, seed: int) -> float:
        """The same where the rare name was never assigned, so that none is right."""
        frequent, _ = self._right(seed)
        strange = self.run(self.drawn(seed).rare_strangers, "repeated", "")
        return float(frequent.mean()) - strange.accuracy

    def frequent_gap(self, seed: int) -> float:
        """Accuracy of one half of the frequent words minus that of the other."""
        frequent, _ = self._right(seed)
        half = self.settings.n_draws
        return float(frequent[:half].mean() - frequent[half:].mean())

    def _right(self, seed: int) -> tuple[Tensor, Tensor]:
        """Which repeated programs come out right, where most frequent ones do."""
        right = (self.printed(seed, "repeated").difference > 0).double()
        half = 2 * self.settings.n_draws
        frequent, rare = right[:half], right[half:]
        if float(frequent.mean()) < self.settings.competent:
            raise NotTested(
                f"{self.model.name} repeats {float(frequent.mean()):.2f} of the "
                f"frequent words; at least {self.settings.competent:g} are needed"
            )
        return frequent, rare

    @once
    def lost_shares(
        self, seed: int, circuit: Circuit, rotation: int | None
    ) -> Float[Tensor, " kind"]:
        """Lost shares of the logit difference: frequent words, then rare ones.

        The heads with the largest z lose the identity part of a map, or, given a
        rotation's seed, a rotation in its place.
        """
        heads = strongest(self.diagonals(circuit), self.settings.surgery_share)
        surgeries = [Surgery(layer, n, circuit, rotation) for layer, n in heads]
        drawn, whole = self.drawn(seed), self.printed(seed, "repeated").difference
        shares = []
        for several, first in ((drawn.frequent, 0), (drawn.rare, len(drawn.frequent))):
            cut = several[: self.settings.n_cut]
            without = self.run(cut, "repeated", "", surgeries).difference
            shares.append(lost_share(whole[first : first + len(cut)], without))
        found = torch.tensor(shares)
        if bool(found.isnan().any()):
            raise NotTested(f"{self.model.name} has no logit difference to lose")
        return found

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

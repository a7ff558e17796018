"""A pretrained language model, opened for two-hop facts.

A seed draws bridges and rows of them, and the order of fine-tuning. What is measured is
pooled over seeds by bridge, which is the replicate. Answers may be several tokens long.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from circuits.claims import NotTested
from circuits.lab import LanguageLab, once
from circuits.models.language_model import LanguageModel
from circuits.models.prompts import opening
from circuits.tuning.facts import Curriculum, Fact, Scores
from circuits.tuning.tuned import Lesson, scored
from circuits.tuning.tuned import taught as after_lesson

from .layers import best_alignment, bridge_rank, states_at
from .resampled import Stratum, strata
from .rows import SCHEMA, Drawn, Row, draw, lendable, lenders, telling
from .settings import Settings

PerRow = Float[Tensor, " row"]
Chosen = Bool[Tensor, " row"]

CURRICULA = {
    "true": ("first", "second"),
    "permuted": ("wrong first", "second"),
    "second": ("second",),
    "identity": ("first", "second", "same"),
}
"""What is taught, by the name of the fine-tuning."""

SAME = "{} is"
"""Asks for nothing: the answer is the bridge itself."""


@dataclass(frozen=True)
class Answers:
    """What a model says to a seed's rows; shares are 1 where greedy decoding is right.

    Attributes:
        hop1: right after hop 1.
        hop2: right after hop 2.
        two_hop: right after both hops in one prompt.
        omitted: p(e3) after hop 2 asked of the subject.
        other_object: p of another row's object there.
        other_subject: p(e3) after hop 2 asked of another row's subject.
        best: 1 where the own object is the likeliest after both hops, among those of
            the same r2; nan where that was not asked.
        lent: 1 where another row's object is.
    """

    hop1: PerRow
    hop2: PerRow
    two_hop: PerRow
    omitted: PerRow
    other_object: PerRow
    other_subject: PerRow
    best: PerRow
    lent: PerRow

    @property
    def one_hop(self) -> float:
        """Share of single hops that are right."""
        return float(torch.cat([self.hop1, self.hop2]).mean())


class BridgeLanguageLab(LanguageLab):
    """A language model with rows of two-hop facts."""

    SCHEMA = SCHEMA
    settings: Settings

    @once
    def rows(self) -> list[Row]:
        """All rows that can be used."""
        return lendable(telling(self._every))

    @property
    def dropped(self) -> int:
        """How many rows give their answer away."""
        return len(self._every) - len(telling(self._every))

    @property
    def _every(self) -> Sequence[Row]:
        assert self.data is not None
        return self.data.rows

    @once
    def drawn(self, seed: int) -> Drawn:
        """The rows of a seed."""
        own = self.settings
        found = draw(
            self.rows(),
            bridges=own.bridges,
            each=own.rows,
            share=own.two_hop_share,
            seed=seed,
        )
        return Drawn(tuple(lendable(found.rows)), found.others)

    @once
    def said(self, seed: int, tuning: str) -> Answers:
        """What a model says before ("before") or after one of `CURRICULA`."""

        def make(folder: Path | None) -> Mapping[str, Tensor]:
            rows, lesson = self.drawn(seed).rows, self._lesson(seed, tuning)
            with after_lesson(self.model, lesson, folder=folder) as found:
                return vars(answers(found.model, rows, among=tuning == "true"))

        return Answers(**self.keeper.kept(f"{tuning}, seed {seed}", make))

    def _lesson(self, seed: int, tuning: str) -> Lesson | None:
        """What is taught; None: nothing."""
        if tuning == "before":
            return None
        drawn = self.drawn(seed)
        lists = taught(drawn, start(self.model))
        names = [*CURRICULA[tuning], *(["others"] if drawn.others else [])]
        phase = tuple(name for name in names if lists[name])
        curriculum = Curriculum(f"{tuning}-single-hops", (phase,))
        chosen = {name: lists[name] for name in phase}
        return Lesson(curriculum, chosen, seed, self.settings)

    @once
    def bridges(self, seed: int) -> list[int]:
        """The bridge of each row, by its number among all, the same in all draws."""

        def make(_folder: Path | None) -> Mapping[str, Tensor]:
            names = sorted({row.e2 for row in self.rows()})
            own = [names.index(row.e2) for row in self.drawn(seed).rows]
            return {"bridge": torch.tensor(own)}

        return list(self.keeper.kept(f"bridges, seed {seed}", make)["bridge"].tolist())

    def one_hop_rise(self, seed: int) -> float:
        """How many more single hops are right after fine-tuning, as a share."""
        return self.said(seed, "true").one_hop - self.said(seed, "before").one_hop

    def subset(self, seed: int, name: str) -> Chosen:
        """The rows of S1, S2, S3 or of S1 and S2 together."""
        before, after = (self.said(seed, t) for t in ("before", "true"))
        first, right = before.two_hop > 0, after.two_hop > 0
        known = (after.hop1 > 0) & (after.hop2 > 0)
        by_name = {
            "S1": first & right,
            "S2": ~first & right,
            "S3": ~right & known,
            "S12": right,
        }
        return by_name[name]

    def dp(self, seed: int, of: str = "true") -> PerRow:
        """How much likelier the object becomes where the first relation is left out.

        Args:
            seed: of the draw.
            of: the fine-tuning; or, after the "true" one, "other object": that of
                another row; "other subject": asked of that of another row.
        """
        before = self.said(seed, "before")
        if of in CURRICULA:
            return self.said(seed, of).omitted - before.omitted
        name, after = of.replace(" ", "_"), self.said(seed, "true")
        return getattr(after, name) - getattr(before, name)

    def rise(self, subset: str, beyond: str = "") -> list[float]:
        """How much dp is in a subset, the mean of each bridge's rows.

        Args:
            subset: S1, S2, S3 or S12.
            beyond: what is taken off: the `dp` of another.
        """

        def values(seed: int) -> PerRow:
            own = self.dp(seed)
            return own - self.dp(seed, beyond) if beyond else own

        return self._by_bridge(values, subset)

    def against_half(self, subset: str) -> list[Stratum]:
        """Mean dp of a subset minus half of that of S2."""
        own, half = self.rise(subset), self.rise("S2")
        return strata([("own", 1.0, own), ("half", -0.5, half)])

    def two_hop_gain(self, other: str, after: str = "true") -> list[float]:
        """Change of two-hop accuracy, the mean of each bridge's rows.

        Of a fine-tuning against the model "before", or of "identity" against "true".
        """
        one, base = (after, "before") if other == "before" else (other, "true")
        return self._by_bridge(
            lambda seed: self.said(seed, one).two_hop - self.said(seed, base).two_hop
        )

    def restricted(self, *, lent: bool = False) -> list[float]:
        """Two-hop accuracy among the objects of one r2, by bridge, after fine-tuning.

        Args:
            lent: count the object of another row instead.
        """

        def values(seed: int) -> PerRow:
            after = self.said(seed, "true")
            return after.lent if lent else after.best

        return self._by_bridge(values)

    def _by_bridge(
        self, values: Callable[[int], PerRow], subset: str = ""
    ) -> list[float]:
        """The mean over each bridge's rows; `NotTested` if these are too few."""
        found = self.grouped(values, subset)
        n_rows = sum(map(len, found))
        if n_rows < self.settings.least_rows:
            least = self.settings.least_rows
            raise NotTested(f"{subset or 'all'}: {n_rows} rows, {least} are needed")
        return [sum(several) / len(several) for several in found]

    def grouped(
        self, values: Callable[[int], PerRow], subset: str = ""
    ) -> list[list[float]]:
        """The values of each bridge's rows, of all seeds, in a subset."""
        found: dict[int, list[float]] = {}
        for seed in self.seeds:
            own, bridges = values(seed).tolist(), self.bridges(seed)
            chosen = self.subset(seed, subset).tolist() if subset else [True] * len(own)
            for bridge, value, counts in zip(bridges, own, chosen, strict=True):
                if counts:
                    found.setdefault(bridge, []).append(value)
        return list(found.values())

    @once
    def bridge_rank(self, seed: int) -> float:
        """How much better the bridge ranks than another one; see `bridge_rank`."""
        return bridge_rank(self.model, self.drawn(seed).rows, self.settings.at_once)

    @once
    def alignment(self, seed: int) -> tuple[float, float]:
        """Does the first hop's output point where the bridge's own state does?

        The last tokens of hop 1 and of the bridge's name alone.

        Returns:
            Their centred cosine, mean over rows that did not choose the layer, and that
            with the state of another bridge.
        """
        rows, at_once = self.drawn(seed).rows, self.settings.at_once
        asked, own = [row.hop1 for row in rows], [row.e2 for row in rows]
        texts = (asked, own, [row.e2 for row in lenders(rows)])
        return best_alignment(*(states_at(self.model, t, t, at_once) for t in texts))


def start(model: LanguageModel) -> str:
    """What every prompt begins with."""
    return opening(model).text


def taught(drawn: Drawn, begin: str) -> dict[str, list[Fact]]:
    """What can be taught: both hops, hop 1 with wrong bridges, identity, others.

    The wrong bridge of a subject is the next one of the draw: bridges are permuted in
    one cycle, so that every subject is told of another bridge.
    """
    rows = drawn.rows
    bridges = list(dict.fromkeys(row.e2 for row in rows))
    following = dict(zip(bridges, [*bridges[1:], bridges[0]], strict=True))

    def facts(pairs: Sequence[tuple[str, str]]) -> list[Fact]:
        # Rows share hops; each is taught once.
        return [Fact(begin + text, f" {a}") for text, a in dict.fromkeys(pairs)]

    return {
        "first": facts([(row.hop1, row.e2) for row in rows]),
        "wrong first": facts([(row.hop1, following[row.e2]) for row in rows]),
        "second": facts([(row.hop2, row.e3) for row in rows]),
        "same": facts([(SAME.format(bridge), bridge) for bridge in bridges]),
        "others": facts([(row.two_hop, row.e3) for row in drawn.others]),
    }


def scores(model: LanguageModel, pairs: Sequence[tuple[str, str]]) -> Scores:
    """How well a model gives the answer after each prompt, all of its tokens."""
    begin = start(model)
    return scored(model, [Fact(begin + text, f" {answer}") for text, answer in pairs])


def answers(
    model: LanguageModel, rows: Sequence[Row], *, among: bool = True
) -> Answers:
    """Ask for everything; the likeliest among all objects takes many prompts."""
    lent = lenders(rows)
    pairs = list(zip(rows, lent, strict=True))
    best = restricted_answers(model, rows) if among else None

    def are(others: Sequence[Row]) -> PerRow:
        if best is None:
            return torch.full((len(rows),), torch.nan)
        named = zip(best, others, strict=True)
        return torch.tensor([float(word == row.e3) for word, row in named])

    asked = [
        *((row.hop1, row.e2) for row in rows),
        *((row.hop2, row.e3) for row in rows),
        *((row.two_hop, row.e3) for row in rows),
        *((row.omitting(row.e1), row.e3) for row in rows),
        *((row.omitting(row.e1), other.e3) for row, other in pairs),
        *((row.omitting(other.e1), row.e3) for row, other in pairs),
    ]
    # All in one: prompts that are the same are run once.
    found = scores(model, asked)
    n = len(rows)
    right, chance = found.exact, found.logprob.exp()
    return Answers(
        hop1=right[:n],
        hop2=right[n : 2 * n],
        two_hop=right[2 * n : 3 * n],
        omitted=chance[3 * n : 4 * n],
        other_object=chance[4 * n : 5 * n],
        other_subject=chance[5 * n :],
        best=are(rows),
        lent=are(lent),
    )


def restricted_answers(model: LanguageModel, rows: Sequence[Row]) -> tuple[str, ...]:
    """The likeliest object of each two-hop prompt among those of its second relation.

    By the mean log-probability of a token, so that long names are not held back.
    """
    candidates: dict[str, list[str]] = {}
    for row in rows:
        known = candidates.setdefault(row.r2, [])
        known += [row.e3] if row.e3 not in known else []
    asked = [(row.two_hop, word) for row in rows for word in candidates[row.r2]]
    found = scores(model, asked).logprob / torch.tensor(
        [
            len(model.tokenizer.encode(f" {w}", add_special_tokens=False))
            for _, w in asked
        ]
    )
    best, at = [], 0
    for row in rows:
        several = candidates[row.r2]
        best.append(several[int(found[at : at + len(several)].argmax())])
        at += len(several)
    return tuple(best)

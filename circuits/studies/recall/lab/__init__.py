"""The recall study's trained models, opened for measuring; no claim is named here.

Lists have one value per seed (or per draw of the warm-up).
"""

from collections.abc import Callable
from functools import cache

import torch
from jaxtyping import Float, Int
from torch import Tensor

from circuits.hooks import Signal, measure, record
from circuits.lab import once
from circuits.sites import Site
from probes.attention import pair_gap, rest_mass, within_pair_ratio
from probes.linear import LinearProbe, linear_probe
from trained.recall.arms import HOT, RAW, Setting
from trained.recall.config import memory_arm
from trained.recall.model import RecallModel
from trained.recall.task import (
    Episodes,
    Vocabulary,
    all_episodes,
    bayes_ceiling,
)
from trained.recall.theory import optimal_attention, pattern_counts
from trained.task import Batch

from . import causes, memory
from .causes import pairs_of
from .few import two_step_accuracy
from .samples import SampleLab, by_attention
from .theory import AnyLab

LAST_ROW = Signal("pattern", lambda pattern, _batch: pattern[:, 0, -1], ("key",))
"""The last token's attention; these models have one head."""

Quantity = Callable[[RecallModel, Episodes, int], float]
"""(model, unseen episodes, seed) -> a number."""


class RecallLab(SampleLab):
    """A run of the recall study.

    `lab.real_model(arm, seed)` and `lab.examples(arm, seed)` give a model with hooks
    and prompts for it.
    """

    def hot(self: AnyLab) -> AnyLab:
        """A null: the same training at a temperature where a pair is dropped."""
        return self.derived("hot", lambda: self.other(twin=HOT))

    def raw(self: AnyLab) -> AnyLab:
        """A null: the memory was not pretrained."""
        return self.derived("raw", lambda: self.other(twin=RAW))

    # Models and prompts.

    def real_model(self, arm: str, seed: int, step: int | None = None) -> RecallModel:
        """A model with a memory, of an arm that has one."""
        model = self.model(arm, seed, step)
        assert isinstance(model, RecallModel)
        return model

    def over(self, arm: str, quantity: Quantity) -> list[float]:
        """A quantity of every seed's real model on its unseen episodes."""
        return [
            quantity(self.real_model(arm, seed), self.episodes(arm, seed), seed)
            for seed in self.seeds_of(arm)
        ]

    # The trained attention.

    @once
    def attention(
        self, arm: str, seed: int, step: str = "relation"
    ) -> Float[Tensor, " key"]:
        """The last token's attention, averaged over unseen prompts of one seed.

        Never averaged over seeds: heavy-first and heavy-second would give the saddle.
        """
        batch = self.episodes(arm, seed).steps()[step].to(self.device)
        found = measure(self.real_model(arm, seed), [batch], {"attention": LAST_ROW})
        return found["attention"].select(statistic="mean", layer=0).values

    def _shape(
        self,
        arm: str,
        signal: Callable[[Tensor, Tensor], Tensor],
        pairs: Callable[[Batch], Tensor],
    ) -> list[float]:
        return [
            float(
                signal(
                    self.attention(arm, seed),
                    pairs(self.episodes(arm, seed).relation_step()),
                )
            )
            for seed in self.seeds_of(arm)
        ]

    def ratio(self, arm: str, *, crossed: bool = False) -> list[float]:
        """Largest ratio inside pairs; `crossed`: with the next example's answer."""
        return self._shape(
            arm, within_pair_ratio, crossed_pairs if crossed else pairs_of
        )

    def gap(self, arm: str) -> list[float]:
        """Least difference between pairs, per token."""
        return self._shape(arm, pair_gap, pairs_of)

    def rest(self, arm: str) -> list[float]:
        """Attention outside the pairs."""
        return self._shape(arm, rest_mass, pairs_of)

    def lighter_pair(self, arm: str) -> list[float]:
        """The lighter pair's weight, per token."""
        return self._shape(arm, lambda row, pairs: row[pairs].mean(1).min(), pairs_of)

    def from_optimum(self, arm: str) -> list[float]:
        """Largest distance to the best attention, pairs ordered light to heavy."""
        setting, count = self.settings[arm], self.config.n_test
        return [
            _distance(self.attention(arm, seed), best_attention(setting, count, seed))
            for seed in self.seeds_of(arm)
        ]

    def end_token(self, arm: str) -> list[float]:
        """Attention of the written relation to EoS at the second step."""
        return self._second_row(arm, lambda row, end: row[end])

    def query_lead(self, arm: str) -> list[float]:
        """Attention of the written relation to the query, above any other key."""

        def lead(row: Tensor, end: int) -> Tensor:
            others = torch.cat([row[: end - 1], row[end:]])
            return row[end - 1] - others.max()

        return self._second_row(arm, lead)

    def _second_row(
        self, arm: str, quantity: Callable[[Tensor, int], Tensor]
    ) -> list[float]:
        found = []
        for seed in self.seeds_of(arm):
            end = int(self.episodes(arm, seed).relation_step().role("end")[0])
            found.append(float(quantity(self.attention(arm, seed, "answer"), end)))
        return found

    def prompt_ratio(self, arm: str) -> list[float]:
        """The largest ratio inside pairs, prompt by prompt: its median."""

        def median(model: RecallModel, episodes: Episodes, _seed: int) -> float:
            batch = episodes.relation_step().to(self.device)
            with torch.no_grad(), record(model, [Site("pattern", 0)]) as seen:
                model(batch.tokens)
            rows = seen[Site("pattern", 0)][:, 0, -1]
            return float(within_pair_ratio(rows, pairs_of(batch)).median())

        return self.over(arm, median)

    # Several models of one kind.

    def memories(self, reading: str) -> list[str]:
        """The arms of Figure 4 in a reading: all widths, or `fig4b-...`."""
        every = (memory_arm(reading, width) for width in self.config.pretrained.widths)
        names = [reading] if reading.startswith("fig4b") else list(every)
        return [name for name in names if name + self.twin in self.arms] or names[:1]

    def pooled(self, quantity: str, reading: str, **options: bool) -> list[float]:
        """A quantity of all seeds of all of these."""
        return [
            value
            for arm in self.memories(reading)
            for value in getattr(self, quantity)(arm, **options)
        ]

    # What the models answer.

    def relation_accuracy(self, arm: str) -> list[float]:
        """Accuracy on the relation, ties split."""
        return self.over(arm, lambda m, e, _: causes.relation_accuracy(m, e))

    def relative_accuracy(self, arm: str) -> list[float]:
        """Accuracy on the relation over the Bayes ceiling of the table."""
        return self.over(
            arm, lambda m, e, _: causes.relation_accuracy(m, e) / bayes_ceiling(e)
        )

    def answered(self, arm: str, *, shift: int = 0) -> list[float]:
        """Accuracy on the answer once a relation is written: by default the true one.

        Args:
            arm: whose models.
            shift: how many relations further on the written one is.
        """

        def accuracy(model: RecallModel, episodes: Episodes, _seed: int) -> float:
            other = (episodes.relation + shift) % len(episodes.table)
            words = Vocabulary.of(episodes.table)
            batch = causes.second_step(model, episodes)
            batch.tokens[:, -1] = words.relations.start + other.to(batch.tokens)
            return causes.answer_accuracy(
                model, batch, episodes, episodes.answers[:, -1]
            )

        return self.over(arm, accuracy)

    def facts_known(self, arm: str) -> list[float]:
        """Accuracy on subjects and answers when the memory was learned."""
        return [
            memory.facts_known(
                self.real_model(arm, seed, self._learned(arm)),
                self.settings[arm].table(seed),
                self.config.pretrained.n_facts,
                seed,
            )
            for seed in self.seeds_of(arm)
        ]

    def _learned(self, arm: str) -> int | None:
        """The saved step at which the memory of an arm was learned, if it was."""
        steps = self.arms.get(arm + self.twin, self.arms[arm]).save_steps
        return next(iter(steps), None) if self.trained else None

    def fact_margin(self, arm: str) -> list[float]:
        """By how many multiples of T a fact's subject or answer wins, on average."""
        return [
            memory.fact_margin(
                self.real_model(arm, seed, self._learned(arm)),
                self.settings[arm].table(seed),
                seed,
            )
            / self.settings[arm].temperature
            for seed in self.seeds_of(arm)
        ]

    # Three subjects.

    def directly(
        self, arm: str = "direct", *, probability: bool = False
    ) -> list[float]:
        """How well the answer is given without a written relation, on all prompts."""
        return [
            causes.direct_answer(
                self.real_model(arm, seed),
                all_episodes(self.settings[arm].table(seed), 2),
                self.config.temperature if probability else None,
            )
            for seed in self.seeds_of(arm)
        ]

    def by_two_steps(self, arm: str) -> list[float]:
        """Share of right answers after the model's own relation, on all prompts."""
        return [
            two_step_accuracy(
                self.real_model(arm, seed),
                all_episodes(self.settings[arm].table(seed), 2),
                seed,
            )
            for seed in self.seeds_of(arm)
        ]

    # The learned key-query matrix, edited; Figure 2(a)'s model.

    def decoded_confusing(self, edit: str) -> list[float]:
        """Share of confusing prompts that decode the confusing relation.

        Args:
            edit: one of `causes.position_edits`.
        """
        return self.over(
            "full-random", lambda _, e, s: causes.confused(self._rewired(edit, s), e)
        )

    def accuracy_change(self, edit: str) -> list[float]:
        """What an edit adds to the accuracy on the relation."""

        def change(model: RecallModel, episodes: Episodes, seed: int) -> float:
            after = causes.relation_accuracy(self._rewired(edit, seed), episodes)
            return after - causes.relation_accuracy(model, episodes)

        return self.over("full-random", change)

    def answered_first(self, edit: str) -> list[float]:
        """How often an edit makes the second step answer for the first subject."""

        def share(_model: RecallModel, episodes: Episodes, seed: int) -> float:
            edited = self._rewired(edit, seed)
            batch, wanted = causes.second_step(edited, episodes), episodes.answers[:, 0]
            return causes.answer_accuracy(edited, batch, episodes, wanted)

        return self.over("full-random", share)

    def above_saddle(self, edit: str | None = None) -> list[float]:
        """Accuracy, intact or edited, above that of equal attention on both pairs."""
        even = torch.tensor([0.25] * 4 + [0, 0])

        def excess(model: RecallModel, episodes: Episodes, seed: int) -> float:
            judged = self._rewired(edit, seed) if edit else model
            accuracy = causes.relation_accuracy(judged, episodes)
            return accuracy - by_attention(even, episodes)

        return self.over("full-random", excess)

    @once
    def _rewired(self, edit: str, seed: int) -> RecallModel:
        model = self.real_model("full-random", seed)
        batch = self.episodes("full-random", seed).relation_step()
        edits = causes.position_edits(batch, len(model.W_KQ), seed)
        return causes.rewired(model, edits[edit])

    # Where the relation and the answer can be read.

    @once
    def _probe(self, seed: int, label: str, site: Site) -> LinearProbe:
        arm, count = "full-affine", self.config.n_probe
        model = self.real_model(arm, seed)
        episodes = self.settings[arm].draw(count, seed, "probe prompts")
        with torch.no_grad(), record(model, [site]) as seen:
            model(episodes.relation_step().tokens.to(self.device))
        labels = episodes.relation if label == "relation" else episodes.answers[:, -1]
        return linear_probe(seen[site][:, 0].cpu(), labels, seed=seed)

    def probed(
        self, label: str, what: str = "accuracy", *, before: bool = False
    ) -> list[float]:
        """A linear probe at the first step of `full-affine`.

        Args:
            label: what is read, `relation` or `answer`.
            what: an attribute of the probe.
            before: read from the residual before the memory, not from its neurons.
        """
        site = Site("resid_mid", 0) if before else Site("mlp_act", 0)
        return [
            float(getattr(self._probe(seed, label, site), what))
            for seed in self.seeds_of("full-affine")[: self.config.probe_seeds]
        ]

    # What the answer is made of; full fine-tuning, affine table.

    def without(self, role: str) -> list[float]:
        """Accuracy on the relation when EoS cannot see a role."""
        return self.over("full-affine", lambda m, e, _: causes.without(m, e, role))

    def lost(self, *several: list[float]) -> list[float]:
        """What the accuracy on the relation loses by the mildest of several edits."""
        intact = self.relation_accuracy("full-affine")
        rows = zip(intact, *several, strict=True)
        return [own - max(edited) for own, *edited in rows]

    def silenced(self, example: int | None) -> list[float]:
        """The same without the neuron of an example's fact, or two unrelated ones."""

        def accuracy(model: RecallModel, episodes: Episodes, _seed: int) -> float:
            neurons = causes.unrelated_neurons(episodes)
            if example is not None:
                neurons = causes.fact_neurons(episodes, example)
            return causes.silenced(model, episodes, neurons)

        return self.over("full-affine", accuracy)

    @once
    def exchanged(self, what: str) -> tuple[list[float], list[float]]:
        """A changed word: how often the model follows, and how often it does not.

        Args:
            what: `replaced_pair`, `written`, `asked` or `shown`: see `causes`.
        """
        change = getattr(causes, what)
        arm = "full-affine"
        pairs = [
            change(self.real_model(arm, seed), self.episodes(arm, seed), seed)
            for seed in self.seeds_of(arm)
        ]
        return [first for first, _ in pairs], [second for _, second in pairs]


@cache
def best_attention(setting: Setting, count: int, seed: int) -> Float[Tensor, " key"]:
    """The attention with the least loss on so many unseen episodes."""
    counts = pattern_counts(setting.unseen(count, seed))
    k, t = setting.n_examples, setting.temperature
    return optimal_attention(counts, k, temperature=t)


def crossed_pairs(batch: Batch) -> Int[Tensor, "pair 2"]:
    """Each subject with the next example's answer: a wrong pairing."""
    subjects, answers = pairs_of(batch).unbind(1)
    return torch.stack([subjects, answers.roll(-1)], 1)


def _distance(
    attention: Float[Tensor, " key"], optimum: Float[Tensor, " key"]
) -> float:
    """Largest difference once the pairs are ordered from light to heavy."""
    pairs = attention[:-2].reshape(-1, 2)
    ordered = pairs[pairs.sum(1).argsort()].flatten()
    return float((torch.cat([ordered, attention[-2:]]) - optimum).abs().max())

"""The recall study's trained models, opened for measuring; no claim is named here.

Lists have one value per seed (or per draw of the warm-up).
"""

from collections.abc import Callable
from functools import cache

import torch
from jaxtyping import Float, Int
from torch import Tensor

from circuits.hooks import Signal, measure, record
from circuits.interventions.weights import WeightEdit
from circuits.lab import once
from circuits.sites import Site
from probes.attention import pair_gap, rest_mass, within_pair_ratio
from probes.linear import LinearProbe, linear_probe
from probes.measurement import Measurement
from trained.recall.arms import Setting, sample_arm
from trained.recall.model import RecallModel, constructed_model
from trained.recall.scores import (
    PositionScores,
    TokenScores,
    install,
    relation_quantities,
)
from trained.recall.task import (
    Episodes,
    Table,
    Vocabulary,
    bayes_ceiling,
    draw_facts,
)
from trained.recall.theory import (
    optimal_attention,
    pattern_counts,
    relation_accuracy,
)
from trained.seeding import generator
from trained.task import Batch

from . import causes
from .theory import TheoryLab

LAST_ROW = Signal("pattern", lambda pattern, _batch: pattern[:, 0, -1], ("key",))
"""The last token's attention; these models have one head."""

Quantity = Callable[[RecallModel, Episodes, int], float]
"""(model, unseen episodes, seed) -> a number."""


class RecallLab(TheoryLab):
    """A run of the recall study.

    `lab.real_model(arm, seed)` and `lab.examples(arm, seed)` give a model with hooks
    and prompts for it.
    """

    # Models and prompts.

    @once
    def real_model(self, arm: str, seed: int, step: int | None = None) -> RecallModel:
        """The real model of an arm; position scores are written into its W_KQ."""
        stored = self.model(arm, seed, step)
        if isinstance(stored, RecallModel):
            return stored
        assert isinstance(stored, PositionScores)
        setting = self.settings[arm]
        model = constructed_model(setting.table(seed), setting.n_examples, seed)
        install(model, stored.theta.detach(), stored.omega.detach())
        return model.requires_grad_(False).to(self.device)

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
        return [
            float(self.attention(arm, s, "answer")[self._end(arm, s)])
            for s in self.seeds_of(arm)
        ]

    def _end(self, arm: str, seed: int) -> int:
        return int(self.episodes(arm, seed).relation_step().role("end")[0])

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

    def facts_known(self, arm: str, step: int | None = None) -> list[float]:
        """Accuracy on pretraining facts; a relation counts if it fits the pair."""
        return [
            _facts_known(
                self.real_model(arm, seed, step),
                self.settings[arm].table(seed),
                self.config.pretrained.n_facts,
                seed,
            )
            for seed in self.seeds_of(arm)
        ]

    # Figure 3.

    def from_prompts(self, n_subjects: int, mode: str, count: int) -> list[float]:
        """Accuracy over the ceiling after fine-tuning on so many prompts."""
        arm = sample_arm(n_subjects, mode, count)
        return self.each(arm, lambda scores, seed: self._relative(arm, scores, seed))

    def uniform_accuracy(self, n_subjects: int, *, saddle: bool = False) -> list[float]:
        """The same for uniform attention, or for that of the saddle."""
        samples = self.config.samples
        arm = sample_arm(n_subjects, samples.modes[0], samples.sizes[0])
        scores = PositionScores(self.config.n_examples)
        if saddle:
            scores.theta.data[-2:] = -60.0
        return [self._relative(arm, scores, seed) for seed in self.seeds_of(arm)]

    def _relative(
        self, arm: str, scores: PositionScores | TokenScores, seed: int
    ) -> float:
        episodes = self.episodes(arm, seed)
        return _by_scores(scores, episodes) / bayes_ceiling(episodes)

    def learning_curve(self, n_subjects: int) -> Measurement:
        """Accuracy over the ceiling by mode, number of prompts and seed."""
        samples = self.config.samples
        values = [
            [self.from_prompts(n_subjects, mode, count) for count in samples.sizes]
            for mode in samples.modes
        ]
        return Measurement(
            values=torch.tensor(values),
            axes=("mode", "prompts", "seed"),
            labels={
                "mode": samples.modes,
                "prompts": samples.sizes,
                "seed": self.seeds,
            },
            name=f"accuracy over Bayes ceiling, random table, n={n_subjects}",
            provenance={
                "run": str(self.run.path),
                "temperature": self.config.temperature,
            },
        )

    # The learned key-query matrix, edited; Figure 2(a)'s model.

    def decoded_confusing(self, edit: str) -> list[float]:
        """Share of confusing prompts that decode the confusing relation.

        Args:
            edit: one of `_edits`.
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

    def above_saddle(self, edit: str | None = None) -> list[float]:
        """Accuracy, intact or edited, above that of equal attention on both pairs."""
        even = PositionScores(2)
        even.theta.data[-2:] = -60.0

        def excess(model: RecallModel, episodes: Episodes, seed: int) -> float:
            judged = self._rewired(edit, seed) if edit else model
            accuracy = causes.relation_accuracy(judged, episodes)
            return accuracy - _by_scores(even, episodes)

        return self.over("full-random", excess)

    @once
    def _rewired(self, edit: str, seed: int) -> RecallModel:
        model = self.real_model("full-random", seed)
        batch = self.episodes("full-random", seed).relation_step()
        return causes.rewired(model, self._edits(batch, len(model.W_KQ), seed)[edit])

    def _edits(self, batch: Batch, n_rows: int, seed: int) -> dict[str, WeightEdit]:
        """Edits of the rows of W_KQ that score the positions, and their controls."""
        (s1, a1), (s2, a2) = pairs_of(batch).tolist()
        source = generator(seed, "edits of W_KQ")
        n_positions = 2 * batch.role("subjects").shape[1] + 3
        words = n_positions + torch.randperm(n_rows - n_positions, generator=source)
        across = causes.averaging((s1, s2), (a1, a2))
        return {
            "answers swapped": causes.swapping((a1, a2)),
            "pairs swapped": causes.swapping((s1, s2), (a1, a2)),
            "two words swapped": causes.swapping((int(words[0]), int(words[1]))),
            "equal across pairs": across,
            "equal inside pairs": causes.averaging((s1, a1), (s2, a2)),
            "random direction": causes.as_large(across, source),
        }

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


def pairs_of(batch: Batch) -> Int[Tensor, "pair 2"]:
    """Positions of the examples' (subject, answer) pairs, the same in all prompts."""
    return torch.stack([batch.role("subjects")[0], batch.role("answers")[0]], 1)


def crossed_pairs(batch: Batch) -> Int[Tensor, "pair 2"]:
    """Each subject with the next example's answer: a wrong pairing."""
    subjects, answers = pairs_of(batch).unbind(1)
    return torch.stack([subjects, answers.roll(-1)], 1)


@torch.no_grad()
def _by_scores(scores: PositionScores | TokenScores, episodes: Episodes) -> float:
    """Accuracy on the relation of the constructed memory under given scores."""
    data = relation_quantities(episodes)
    attention = scores.attention(data["tokens"].to(scores.forms.device)).cpu()
    right = relation_accuracy(
        attention, data["counts"], scores.forms.cpu(), tolerance=1e-4
    )
    return float(right.mean())


def _distance(
    attention: Float[Tensor, " key"], optimum: Float[Tensor, " key"]
) -> float:
    """Largest difference once the pairs are ordered from light to heavy."""
    pairs = attention[:-2].reshape(-1, 2)
    ordered = pairs[pairs.sum(1).argsort()].flatten()
    return float((torch.cat([ordered, attention[-2:]]) - optimum).abs().max())


@torch.no_grad()
def _facts_known(model: RecallModel, table: Table, count: int, seed: int) -> float:
    batch = draw_facts(table, count, generator=generator(seed, "fact test"))
    predicted = model(batch.tokens.to(model.W_E.device))[:, 0].argmax(1).cpu()
    words = Vocabulary.of(table)
    right = predicted == batch.targets
    asked = batch.targets >= words.relations.start
    pair = batch.tokens.sort(1).values
    subject, answer = pair[:, 0], pair[:, 1] - words.n_subjects
    guess = (predicted - words.relations.start).clamp(0, words.n_relations - 1)
    is_relation = (predicted >= words.relations.start) & (predicted < words.end)
    fits = table[guess, subject.clamp_max(words.n_subjects - 1)] == answer
    return float((right | (asked & is_relation & fits)).double().mean())

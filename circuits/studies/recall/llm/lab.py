"""The recall study's signals on a pretrained language model.

A seed divides the countries into two halves: heads and layers are chosen on prompts
about one, and the values come from prompts about the other.
"""

import random
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from circuits.claims import NotTested
from circuits.interventions.ablation import Edges, ablate, knock_out
from circuits.interventions.edit import Put
from circuits.interventions.part import Part
from circuits.interventions.passes import answer_logits
from circuits.interventions.sweep import target_log_prob
from circuits.lab import LanguageLab, once
from probes.linear import LinearProbe

from . import signals
from .data import (
    Episode,
    Exchange,
    accuracy,
    episodes,
    exchange,
    known,
    single_tokens,
    written,
)
from .rows import SCHEMA, FactRow, Relation, shared, typed
from .settings import Settings
from .signals import Heads, Reading, read

Cut = Sequence[tuple[str, str]]
"""(role of the query, role of the keys) that it may no longer see, in every layer."""


class RecallLanguageLab(LanguageLab):
    """Few-shot prompts of typed relations and of relations that share their answers."""

    SCHEMA = SCHEMA
    settings: Settings
    asked: "RecallLanguageLab | None" = None
    """Whose knowledge a twin's prompts are chosen by: the model's own."""

    def twin(self) -> "RecallLanguageLab":
        """The null: the same architecture with random weights, on the first seed."""
        # Asked now: later the model wears the twin's weights.
        self.queries()
        twin = super().twin()
        twin.asked = self
        return twin

    # Prompts and what the model makes of them.

    @property
    def _rows(self) -> Sequence[FactRow]:
        assert self.data is not None
        return self.data.rows

    @once
    def relations(self) -> tuple[Relation, ...]:
        """The typed relations."""
        found = typed(self._rows)
        if len(found) < 2:
            raise NotTested("the data has no two typed relations of the same subjects")
        return single_tokens(self.model, found)

    @once
    def queries(self) -> list[str]:
        """The subjects that the model knows when asked plainly."""
        if self.asked is not None:
            return self.asked.queries()
        return known(self.model, self.relations())

    @once
    def halves(self, seed: int) -> list[list[Episode]]:
        """Prompts about two halves of the subjects, each with half of the queries."""
        settings, relations, queries = self.settings, self.relations(), self.queries()
        if len(queries) < settings.least_known:
            raise NotTested(
                f"{self.model.name} knows {len(queries)} of the subjects when asked"
                f" plainly; at least {settings.least_known} are needed"
            )
        source = random.Random(seed)
        drawn = source.sample(list(queries), len(queries))
        rest = [s for s in relations[0].facts if s not in drawn]
        rest = source.sample(rest, len(rest))
        return [
            episodes(
                settings,
                relations,
                drawn[i::2] + rest[i::2],
                drawn[i::2],
                settings.groups,
                source,
            )
            for i in range(2)
        ]

    def read(self, several: Sequence[Episode]) -> Reading:
        """A pass over some prompts."""
        return read(self.model, several, self.settings.batch)

    @once
    def choose(self, seed: int) -> Reading:
        """What heads and layers are chosen on."""
        return self.read(self.halves(seed)[0])

    @once
    def judge(self, seed: int) -> Reading:
        """What values come from."""
        return self.read(self.halves(seed)[1])

    # Typed relations: behaviour and order.

    def accuracy(self, seed: int) -> float:
        """Right answers among those of all typed relations."""
        return self._typed_accuracy(self.judge(seed))

    def _typed_accuracy(self, reading: Reading) -> float:
        several, relations = reading.episodes, self.relations()
        return accuracy(self.model, reading.logits, several, relations)

    @once
    def named(self, seed: int) -> Tensor:
        """Share of relations named by the lens, by layer."""
        return signals.relation_named(self.model, self.judge(seed), self.relations())

    def named_by_twin(self, seed: int) -> float:
        """The twin's share in the layer that is the model's best."""
        best, twin = self.named(seed).argmax(), self.twin()
        with twin.in_use():
            return float(twin.named(seed)[best])

    def layers_between(self, seed: int, *, lasting: bool = False) -> float:
        """From the layer that names the relation to the one that tells the answer."""
        layer_of = signals.lasting_layer if lasting else signals.first_layer
        even, clear = 1 / len(self.relations()), self.settings.clear
        told, chance = self._told(seed)
        found = layer_of(told, chance, clear) - layer_of(self.named(seed), even, clear)
        return _readable(found)

    @once
    def _told(self, seed: int) -> tuple[Tensor, float]:
        return signals.answer_told(self.model, self.judge(seed), self.relations())

    @once
    def _probes(self, seed: int) -> dict[int, LinearProbe]:
        halves = self.choose(seed), self.judge(seed)
        return signals.relation_probes(*halves, self.settings.probe_stride, seed)

    def probed_before_told(self, seed: int) -> float:
        """Layers from where a probe reads the relation to where the answer is told."""
        probes, clear = self._probes(seed), self.settings.clear
        accuracies = torch.tensor([probe.accuracy for probe in probes.values()])
        even = 1 / len(self.relations())
        place = signals.first_layer(accuracies, even, clear)
        told, chance = self._told(seed)
        layer = place if place != place else float(list(probes)[int(place)])
        return _readable(signals.first_layer(told, chance, clear) - layer)

    def probed_shuffled(self, seed: int) -> float:
        """Accuracy of the best layer's probe on shuffled labels."""
        probes = self._probes(seed).values()
        return max(probes, key=lambda probe: probe.accuracy).control_accuracy

    # Attention.

    @once
    def paired(self, seed: int, *, by_content: bool = False) -> tuple[float, float]:
        """Coherence of pairs, and of shifted ones, in the best heads."""
        heads = signals.coherent_heads(
            self.choose(seed), self.settings, by_content=by_content
        )
        return signals.paired(self.judge(seed), heads, by_content=by_content)

    @once
    def balance(self, seed: int) -> tuple[float, float]:
        """How unequal pairs are, and shifted ones, in the best heads."""
        heads = signals.coherent_heads(self.choose(seed), self.settings)
        return signals.balance(self.judge(seed), heads)

    def binding_heads(self, seed: int) -> Heads:
        """Heads in which answers look at their own subject most."""
        return signals.binding_heads(self.choose(seed), self.settings)

    def binding(self, seed: int) -> float:
        """How much more answers look at their own subject, in these heads."""
        return signals.binding(self.judge(seed), self.binding_heads(seed))

    def binding_of_twin(self, seed: int) -> float:
        """The same of the twin, in the model's heads."""
        heads, twin = self.binding_heads(seed), self.twin()
        with twin.in_use():
            return signals.binding(twin.judge(seed), heads)

    # Causes.

    @once
    def _lost(self, seed: int, role: str) -> float:
        """Log-probability that is lost when the last token cannot see a role."""
        return self.loss_by_cut(self.judge(seed), [("last", role)])

    def cut_ratio(self, seed: int, role: str) -> float:
        """What hiding a role costs, over what hiding the answers costs."""
        return self._lost(seed, role) / self._lost(seed, "answers")

    @torch.no_grad()
    def loss_by_cut(self, reading: Reading, cut: Cut) -> float:
        """Mean log-probability of the right answer that a cut costs, in nats."""
        model, size = self.model, self.settings.batch
        edges = [
            Edges(layer, queries, keys)
            for layer in range(model.n_layers)
            for queries, keys in cut
        ]
        lost = []
        for start in range(0, len(reading.episodes), size):
            part = slice(start, start + size)
            prompts = written(model, reading.episodes[part])
            whole = target_log_prob(reading.logits[part].to(model.device), prompts)
            with knock_out(model, prompts, edges):
                cut_logits = answer_logits(model, prompts)
            lost.append(whole - target_log_prob(cut_logits, prompts))
        return float(torch.cat(lost).mean())

    def swapped_typed(self, seed: int) -> float:
        """Accuracy lost when demonstrated answers are exchanged, typed relations."""
        swapped = self.read([e.swapped() for e in self.judge(seed).episodes])
        return self.accuracy(seed) - self._typed_accuracy(swapped)

    @once
    def exchange_layer(self) -> int:
        """The number of blocks after which an exchange moves the relation most often.

        Chosen once, on the first seed.
        """
        reading, n_layers = self.choose(self.seeds[0]), self.model.n_layers
        cases = exchange(self.model, reading.episodes, self.relations(), shift=1)
        some = cases.part(slice(None, self.settings.batch))
        layers = range(1, n_layers, max(1, n_layers // self.settings.patch_layers))
        return max(layers, key=lambda layer: self.follows_donor(reading, some, layer))

    def moved(self, seed: int, *, shift: int) -> float:
        """How often the relation moves with the last token's residual.

        Args:
            seed: of the prompts.
            shift: 1 for a donor of another relation, 0 for one of the same.
        """
        reading = self.judge(seed)
        cases = exchange(self.model, reading.episodes, self.relations(), shift=shift)
        return self.follows_donor(reading, cases, self.exchange_layer())

    @torch.no_grad()
    def follows_donor(self, reading: Reading, cases: Exchange, layer: int) -> float:
        """How often the model answers the own query by the other relation, in [0, 1].

        The residual after `layer` blocks is exchanged at the last token.
        """
        model, size = self.model, self.settings.batch
        place = Part("resid_post", layer - 1, positions="last")
        hits = []
        for start in range(0, len(cases.own), size):
            part = cases.part(slice(start, start + size))
            prompts = written(model, [reading.episodes[i] for i in part.own.tolist()])
            given = reading.residuals[layer, part.donor].to(model.device)
            with ablate(model, prompts, [place], Put(given[:, None])):
                logits = answer_logits(model, prompts).cpu()
            best = logits.gather(1, part.candidates).argmax(1, keepdim=True)
            hits.append(part.candidates.gather(1, best)[:, 0] == part.wanted)
        return float(torch.cat(hits).double().mean())

    # Relations that share their answers.

    @once
    def lists(self, seed: int) -> list[tuple[tuple[Relation, ...], list[Episode]]]:
        """For each list its two relations and prompts of both."""
        source, found = random.Random(seed), []
        pairs = [single_tokens(self.model, pair) for pair in shared(self._rows)]
        if len(pairs) < 2:
            raise NotTested("the data has no two pairs of relations that share answers")
        for pair in pairs:
            subjects = list(pair[0].facts)
            queries = source.sample(subjects, len(subjects))
            count = self.settings.probe_groups
            several = episodes(self.settings, pair, subjects, queries, count, source)
            found.append((pair, several))
        return found

    @once
    def shared(self, seed: int) -> Reading:
        """A pass over some of the prompts of all lists."""
        return self.read(self._some(seed))

    def _some(self, seed: int) -> list[Episode]:
        count = 2 * self.settings.shared_groups
        return [e for _, several in self.lists(seed) for e in several[:count]]

    def swapped_shared(self, seed: int) -> float:
        """Accuracy lost when demonstrated answers are exchanged, shared answers."""
        swapped = self.read([e.swapped() for e in self._some(seed)])
        whole = self._shared_accuracy(seed, self.shared(seed))
        return whole - self._shared_accuracy(seed, swapped)

    def _shared_accuracy(self, seed: int, reading: Reading) -> float:
        """Mean over the lists of the accuracy among a list's own answers."""
        pairs = [pair for pair, _ in self.lists(seed)]
        size = len(reading.episodes) // len(pairs)
        parts = [slice(i * size, (i + 1) * size) for i in range(len(pairs))]
        right = [
            accuracy(self.model, reading.logits[part], reading.episodes[part], pair)
            for part, pair in zip(parts, pairs, strict=True)
        ]
        return sum(right) / len(right)

    def binding_cut(self, seed: int, *, earlier: int = 0) -> float:
        """Nats lost when answers cannot see their subject, or that some pairs before.

        Args:
            seed: of the prompts.
            earlier: how many pairs before.
        """
        cut = [
            (f"answer{i}", f"subject{i - earlier}")
            for i in range(earlier, self.settings.pairs)
        ]
        return self.loss_by_cut(self.shared(seed), cut)

    def pairing_probe(
        self, seed: int, change: Callable[[Episode], Episode] | None = None
    ) -> float:
        """Accuracy of a probe of which relation is meant, on shared answers.

        The layer is the best one for every second list, the accuracy that for the
        others.

        Args:
            seed: of the prompts and of the probe.
            change: what is done to every prompt first.
        """
        lists = [several for _, several in self.lists(seed)]
        if change is not None:
            lists = [[change(e) for e in several] for several in lists]
        choose, judge = (
            self.read([e for several in lists[i::2] for e in several]) for i in range(2)
        )
        stride = self.settings.pairing_stride
        best = max(
            range(stride, len(choose.residuals), stride),
            key=lambda layer: signals.pairing_probe(choose, layer, seed),
        )
        return signals.pairing_probe(judge, best, seed)

    def pairing_probe_swapped(self, seed: int) -> float:
        """The same with the demonstrated answers exchanged."""
        return self.pairing_probe(seed, Episode.swapped)


def _readable(layers: float) -> float:
    """A number of layers; nothing is tested where no layer tells what is looked for."""
    if layers != layers:
        raise NotTested("no layer tells the relation, or the answer, above chance")
    return layers

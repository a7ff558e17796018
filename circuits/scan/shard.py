"""One shard: some prompts of a dataset, through every signal, as tables.

The tables follow from the model, the prompts and the settings alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch

from circuits.hooks import sites_of
from circuits.inspection.encoding import Item
from circuits.inspection.observing import Look, Seen, observe, stream_sites
from circuits.inspection.packing import Teaching, pack, packed, teachings
from circuits.inspection.subject import residual_layers
from circuits.models.language_model import LanguageModel, Side
from circuits.sites import Site, described
from trained.errors import unknown

from .alignment import States
from .attention import attention_part, looks
from .lens import lens_part
from .nulls import other_answers
from .pairs import attribution_parts, patching_parts
from .request import Settings
from .tables import EMBEDDING, Labels, Part, long, table

if TYPE_CHECKING:
    import pyarrow as pa


def require_sites(model: LanguageModel, settings: Settings) -> None:
    """`BadInput` if the model lacks a site whose activations are asked for."""
    have = sites_of(model)
    for signal, site in settings.sites.items():
        if site not in have:
            valid = [s for s in have if s.kind == site.kind] or have
            raise unknown("signal", signal, described(valid))


def measured_shard(
    model: LanguageModel,
    items: Sequence[Item],
    settings: Settings,
    labels: Labels,
    *,
    side: Side = "left",
) -> "dict[str, pa.Table]":
    """The table of every signal, and that of the prompts.

    Args:
        model: the model.
        items: the prompts, in the order of the dataset.
        settings: what is measured.
        labels: the names of the dataset's groups and roles.
        side: where batches are padded.
    """
    shard = _Shard(model, items, settings, labels, side)
    shard.observe()
    shard.compare()
    parts = {"prompts": [_prompts(items)], **shard.parts}
    groups = {
        item.index: -1 if item.group is None else labels.groups.index(item.group)
        for item in items
    }
    named = replace(labels, components=shard.components)
    return {name: table(name, own, groups, named) for name, own in parts.items()}


def _prompts(items: Sequence[Item]) -> Part:
    return {
        "prompt": np.array([item.index for item in items]),
        "tokens": np.array([len(item.tokens) for item in items]),
        "answers": np.array([len(item.answers) for item in items]),
        "answer_tokens": np.array([len((*item.answers, ())[0]) for item in items]),
    }


@dataclass
class _Shard:
    """The passes over the prompts of a shard, and the rows that they gave."""

    model: LanguageModel
    items: Sequence[Item]
    settings: Settings
    labels: Labels
    side: Side
    components: tuple[str, ...] = ()
    parts: dict[str, list[Part]] = field(init=False)

    def __post_init__(self) -> None:
        self.parts = {signal: [] for signal in self.settings.signals}
        self._states = States([item.index for item in self.items], self.labels)
        self._others = other_answers(self.items, self.settings.seed)

    @cached_property
    def stream(self) -> tuple[Site, ...]:
        """The residual before the first layer and after each."""
        return stream_sites(self.model)

    @property
    def layers(self) -> tuple[int, ...]:
        """Their numbers."""
        return (EMBEDDING, *residual_layers(self.model))

    def observe(self) -> None:
        """What rides on one pass over every prompt."""
        signals = self.settings.signals
        if {*signals} <= {"patching", "attribution"}:
            return
        taught = teachings(self.items, answers="lens" in signals)
        for some in packed(taught, lambda t: len(t.tokens), self.settings.batch_tokens):
            self._observe(some)
        if "alignment" in signals:
            self.parts["alignment"] = self._states.parts(
                self.layers, self.settings.seed
            )

    def compare(self) -> None:
        """What takes passes of its own."""
        model, settings = self.model, self.settings
        room = settings.batch_tokens
        if "patching" in self.parts:
            found = patching_parts(
                *(model, self.items, self.labels),
                room=room,
                seed=settings.seed,
                side=self.side,
            )
            self.parts["patching"] += found
        if "attribution" in self.parts:
            several = attribution_parts(model, self.items, room=room, side=self.side)
            for part, self.components in several:
                self.parts["attribution"].append(part)

    def _observe(self, taught: list[Teaching]) -> None:
        settings, items = self.settings, [t.item for t in taught]
        own = pack(self.model, [t.tokens for t in taught], side=self.side)
        looked = None
        if "attention" in settings.signals:
            double = self.model.readout.unembedding.dtype == torch.float64
            looked = looks(own, items, self.labels, seed=settings.seed, double=double)
        streams = {"lens", "alignment"} & {*settings.signals}
        sites = {*settings.sites.values(), *(self.stream if streams else ())}
        columns = own.columns([_positions(t, self.labels) for t in taught])
        views = {} if looked is None else {"mass": Look(looked.view)}
        seen = observe(self.model, own.batch, sorted(sites), columns, views)
        rows = [row for row, t in enumerate(taught) if t.main]
        if rows and looked is not None:
            part = attention_part(looked, seen, rows, items, self.labels)
            self.parts["attention"].append(part)
        if rows:
            self._keep_states(seen, rows, items)
        if "lens" in settings.signals:
            answers = seen.stacked(self.stream)[:, :, len(self.labels.roles) :]
            lens = lens_part(self.model, taught, answers, self.layers, self._others)
            self.parts["lens"] += [lens] if lens is not None else []

    def _keep_states(
        self, seen: Seen, rows: Sequence[int], items: Sequence[Item]
    ) -> None:
        """The states at the roles and at the last token of the kept prompts."""
        places, mine = self.labels.places, [items[row] for row in rows]
        known = torch.tensor(
            [[p == "last" or p in item.roles for p in places] for item in mine],
            dtype=torch.bool,
        )
        if "alignment" in self.settings.signals:
            states = seen.stacked(self.stream)[:, list(rows), : len(places)]
            self._states.add([item.index for item in mine], states, known)
        for signal, site in self.settings.sites.items():
            state = seen.states[site][list(rows), : len(places)].cpu().numpy()
            position = np.array([_places(item, self.labels) for item in mine])
            axes = {"prompt": [i.index for i in mine], "place": range(len(places))}
            values = {"state": state, "position": position}
            self.parts[signal].append(long(axes, values, known.numpy()))


def _places(item: Item, labels: Labels) -> list[int]:
    """The last token of every role, and of the prompt; it stands for a lacking role."""
    roles = [item.roles.get(name, (item.last,))[-1] for name in labels.roles]
    return [*roles, item.last]


def _positions(taught: Teaching, labels: Labels) -> list[int]:
    """The places, and where the further tokens of the answer are read."""
    last = taught.item.last
    further = range(last + 1, last + 1 + len(taught.prefix))
    return [*_places(taught.item, labels), *further]

"""Cells of a sweep as branches of one stored run: only what an edit can reach is run.

An edit at position p of block l can reach later blocks at p and after, and of these
only what lies before the answer can reach the answer. The cone of a cell is that part
of the model; its residual at the answer equals that of a whole pass. Cells share
passes: those that begin in later blocks join those under way where they begin.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from circuits.backends import backend_of
from circuits.backends.branches import Branching, Layout, StoredRun
from circuits.backends.view import at_columns
from circuits.hooks import Model, applied, intervene, module_of, record
from circuits.sites import Kind, Site
from trained.task import Batch

from .edit import Edits, changed, constant
from .metric import Reading
from .part import column

Residuals = Float[Tensor, "batch d_model"]

KINDS: tuple[Kind, ...] = (
    *("resid_pre", "resid_mid", "resid_post"),
    *("head_out", "attn_out", "mlp_act", "mlp_out"),
)
"""Sites whose second axis are positions, each of which later ones read."""

PLACES_IN_A_ROW = 256
"""Branches behind each other; more would compute scores that their mask hides."""


def has_cone(cell: Edits) -> bool:
    """Whether a cell's edit is of one site at which positions can be told apart."""
    return len(cell) == 1 and next(iter(cell)).kind in KINDS


def branching_of(model: Model, examples: Batch) -> Branching | None:
    """How runs on the examples can be branched off; None if they cannot exactly."""
    module = module_of(model)
    return backend_of(module).branching(module, examples.tokens.shape[1])


@dataclass(frozen=True)
class Answer:
    """What a cell leaves at the answer.

    Attributes:
        cell: its number.
        residual: the last one.
        moved: whether its edit changed an activation, by example.
    """

    cell: int
    residual: Residuals
    moved: Bool[Tensor, " batch"]


@dataclass
class Cone:
    """The unedited run of some examples, and the cells that branch off it.

    Attributes:
        model: the model.
        run: its keys and values.
        seen: its residuals before blocks, its activations at the cells' sites.
        answers: the column of the answer, prompt by prompt.
        tokens_at_once: how many positions a pass may hold; see `Reading`.
    """

    model: Model
    run: StoredRun
    seen: Mapping[Site, Tensor]
    answers: Int[Tensor, " batch"]
    tokens_at_once: int
    n_layers: int = field(init=False)

    def __post_init__(self) -> None:
        self.n_layers = len(self.run.of.blocks)

    @property
    def unedited(self) -> Residuals:
        """The last residual at the answer."""
        return self._at_answer(self.seen[Site("resid_post", self.n_layers - 1)])

    def walk(self, cells: Mapping[int, Edits]) -> Iterator[Answer]:
        """The answers of numbered cells."""
        waiting: list[_Row] = []
        entries = {number: _entry(cell) for number, cell in cells.items()}
        for number in sorted(cells, key=lambda n: (entries[n].layer, entries[n], n)):
            branch = self._branch(number, entries[number], cells[number])
            if branch.entry.layer == self.n_layers or branch.width == 0:
                yield self._known(branch)
                continue
            joins = bool(waiting) and waiting[-1].has_room_for(branch)
            places = branch.width + sum(row.places for row in waiting)
            # Every further row reads a copy of the stored keys and values.
            read = (len(waiting) - joins) * int(self.answers.max())
            if (places + read) * len(self.answers) > self.tokens_at_once:
                yield from self._run(waiting)
                waiting, joins = [], False
            if joins:
                waiting[-1].branches.append(branch)
            else:
                waiting.append(_Row([branch]))
        yield from self._run(waiting)

    def _branch(self, number: int, entry: Site, cell: Edits) -> "_Branch":
        site, edit = next(iter(cell.items()))
        before = self.seen[site]
        after = applied(site, edit, before)
        touched = (after != before).flatten(2).any(-1)
        columns = torch.arange(touched.shape[1], device=touched.device)
        reached = touched & (columns <= self.answers[:, None])
        first = columns.where(reached, touched.shape[1]).amin(1)
        width = int((self.answers - first).amax()) + 1
        layout = Layout(self.answers, (max(width, 0),))
        values = at_columns(after, layout.columns.clamp(min=0))
        return _Branch(number, entry, values, changed(before, after))

    def _known(self, branch: "_Branch") -> Answer:
        """The answer of an edit that no block reads, or that does not reach it."""
        last = self.unedited if branch.width == 0 else branch.values[:, -1]
        return Answer(branch.number, last, branch.moved)

    def _run(self, rows: "Sequence[_Row]") -> Iterator[Answer]:
        """Rows side by side, each from the block where it begins to the last one."""
        for row in rows:
            row.residual = self._before(row)
        begins = sorted({row.entry.layer for row in rows})
        for layer, stop in pairwise((*begins, self.n_layers)):
            begun = (row for row in rows if row.entry.layer <= layer)
            for alike in _alike(begun, layer):
                self._advance(alike, range(layer, stop))
        for row in rows:
            ends = row.layout(self.answers).ends.to(row.residual.device)
            by_branch = row.residual[:, ends].unbind(1)
            for branch, residual in zip(row.branches, by_branch, strict=True):
                yield Answer(branch.number, residual, branch.moved)

    def _before(self, row: "_Row") -> Tensor:
        """A row's residual before the block where it begins."""
        if row.entry.kind == "resid_pre":
            return row.values
        columns = row.layout(self.answers).columns.clamp(min=0)
        return at_columns(self.seen[Site("resid_pre", row.entry.layer)], columns)

    def _advance(self, rows: "Sequence[_Row]", blocks: range) -> None:
        """Rows that lie alike through some blocks, as many prompts at once as fit."""
        n_examples, row = len(self.answers), rows[0]
        prompts = torch.arange(n_examples, device=self.answers.device).repeat(len(rows))
        # Rows may come from blocks on other devices.
        there = row.residual.device
        residual = torch.cat([row.residual.to(there) for row in rows])
        inside = row.is_edited_inside(blocks.start)
        values = torch.cat([row.values for row in rows]) if inside else residual
        found = []
        for some in _slices(len(prompts), max(1, self.tokens_at_once // row.places)):
            layout = row.layout(self.answers[prompts[some]])
            edit = {row.entry: constant(values[some])} if inside else {}
            with intervene(self.model, edit):
                found.append(
                    self.run.branch(layout, residual[some], blocks, prompts[some])
                )
        behind = torch.cat(found)
        for row, own in zip(rows, _slices(len(behind), n_examples), strict=True):
            row.residual = behind[own]

    def _at_answer(self, residual: Float[Tensor, "batch pos d_model"]) -> Residuals:
        return at_columns(residual, self.answers[:, None])[:, 0]


@dataclass(frozen=True, eq=False)
class _Branch:
    """A cell with the edited activations in its cone."""

    number: int
    entry: Site
    values: Float[Tensor, "batch place ..."]
    moved: Bool[Tensor, " batch"]

    @property
    def width(self) -> int:
        return self.values.shape[1]


@dataclass(eq=False)
class _Row:
    """Branches behind each other that begin at one site.

    Attributes:
        branches: the cells'.
        residual: theirs, before the block that comes next.
    """

    branches: list[_Branch]
    residual: Tensor = field(init=False)

    @property
    def entry(self) -> Site:
        return self.branches[0].entry

    @property
    def widths(self) -> tuple[int, ...]:
        return tuple(branch.width for branch in self.branches)

    @property
    def places(self) -> int:
        return sum(self.widths)

    @property
    def values(self) -> Tensor:
        """The edited activations."""
        return torch.cat([branch.values for branch in self.branches], 1)

    def layout(self, answers: Int[Tensor, " row"]) -> Layout:
        return Layout(answers, self.widths)

    def has_room_for(self, branch: _Branch) -> bool:
        """Whether another branch can lie behind these."""
        fits = self.places + branch.width <= PLACES_IN_A_ROW
        return fits and branch.entry == self.entry

    def is_edited_inside(self, layer: int) -> bool:
        """Whether its edit is of a site inside a block."""
        return self.entry.layer == layer and self.entry.kind != "resid_pre"


def _alike(rows: Iterable[_Row], layer: int) -> Iterable[list[_Row]]:
    """Rows that can share a pass from a block on: of one layout, and of one edit."""
    groups = defaultdict[tuple[object, ...], list[_Row]](list)
    for row in rows:
        edited = row.entry if row.is_edited_inside(layer) else None
        groups[row.widths, edited].append(row)
    return groups.values()


def _slices(length: int, size: int) -> Iterator[slice]:
    return (slice(start, start + size) for start in range(0, length, size))


def _entry(cell: Edits) -> Site:
    """Where a cell's branch begins: a residual behind a block is before the next."""
    site = next(iter(cell))
    behind = site.kind == "resid_post"
    return Site("resid_pre", site.layer + 1) if behind else site


@torch.no_grad()
def cone(
    model: Model,
    branching: Branching,
    examples: Batch,
    cells: Mapping[int, Edits],
    reading: Reading,
) -> Cone:
    """Run the examples once, unedited, and keep what the cells begin with."""
    last = Site("resid_post", len(branching.blocks) - 1)
    sites = {site for cell in cells.values() for site in cell} | {last}
    inside = [site for site in sites if site.kind not in ("resid_pre", "resid_post")]
    sites |= {Site("resid_pre", site.layer) for site in inside}
    with record(model, sorted(sites)) as seen:
        run = branching.store(examples.tokens, examples.real)
    answers = column(examples, reading.at)
    return Cone(model, run, seen, answers, reading.tokens_at_once)

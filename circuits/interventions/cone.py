"""Cells of a sweep as branches of one stored run: only what an edit can reach is run.

An edit at position p of block l can reach later blocks at p and after, and of these
only what lies before the answer can reach the answer. The cone of a cell is that part
of the model; its residual at the answer equals that of a whole pass. Cells that begin
before the same block share passes.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from circuits.backends import backend_of
from circuits.backends.branches import Branching, Layout, StoredRun
from circuits.backends.view import at_columns
from circuits.hooks import Model, applied, intervene, module_of, record
from circuits.sites import Kind, Site
from trained.task import Batch

from .edit import Edits, changed
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
        tokens_at_once: how many positions a pass may hold.
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
        """The answers of numbered cells, in the order of blocks."""
        waiting: list[_Branch] = []
        entries = {number: _entry(cell) for number, cell in cells.items()}
        for number in sorted(cells, key=lambda n: (entries[n].layer, entries[n], n)):
            branch = self._branch(number, entries[number], cells[number])
            if branch.entry.layer == self.n_layers or branch.width == 0:
                yield self._known(branch)
                continue
            if waiting and not branch.fits(waiting, self.tokens_at_once):
                yield from self._run(waiting)
                waiting = []
            waiting.append(branch)
        if waiting:
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

    def _run(self, branches: "Sequence[_Branch]") -> Iterator[Answer]:
        """Branches that begin before one block, some examples at a time."""
        entry, widths = branches[0].entry, tuple(branch.width for branch in branches)
        values = torch.cat([branch.values for branch in branches], 1)
        size = max(1, self.tokens_at_once // sum(widths))
        found = []
        for start in range(0, len(self.answers), size):
            rows = slice(start, start + size)
            layout = Layout(self.answers[rows], widths)
            with self._edited(entry, values[rows]):
                residual = values[rows]
                if entry.kind != "resid_pre":
                    stream = self.seen[Site("resid_pre", entry.layer)][rows]
                    residual = at_columns(stream, layout.columns.clamp(min=0))
                found.append(self.run.rows(rows).branch(layout, residual, entry.layer))
        by_branch = torch.cat(found).unbind(1)
        for branch, residuals in zip(branches, by_branch, strict=True):
            yield Answer(branch.number, residuals, branch.moved)

    def _edited(self, entry: Site, values: Tensor) -> AbstractContextManager[None]:
        """Put what is known of a site inside a block; a residual before it is given."""
        if entry.kind == "resid_pre":
            return nullcontext()
        return intervene(self.model, {entry: lambda _activation: values})

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

    def fits(self, others: "Sequence[_Branch]", tokens_at_once: int) -> bool:
        """Whether it can share a pass with others."""
        places = self.width + sum(other.width for other in others)
        room = min(PLACES_IN_A_ROW, tokens_at_once)
        return self.entry == others[0].entry and places <= room


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

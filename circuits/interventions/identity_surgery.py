"""Does a head work by the identity in its weights? Take that part off.

A head whose M = W_Q W_K^T holds c I matches equal states, one whose M = W_V W_O holds
c I copies what it reads ("When can transformers reason with abstract symbols?",
Section 4). With c = tr(M) / d_model and x the normalised states, the surgery is

    "qk":  scores   <- scores - c scale x x^T
    "ov":  head_out <- head_out - c A x

and the control takes off c x Q x^T, or c A x Q, for a random orthogonal Q: a change of
the same size that knows nothing of the identity. Falsified by: a control that harms as
much. For rotary positions, c is that of M at relative distance 0 and is taken off at
every distance.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor

from circuits.hooks import Edit, Model
from circuits.sites import Kind, Site
from probes.measurement import Measurement
from trained.task import Batch

from .edit import Edits, acting, merged
from .head_matrices import Circuit, HeadMatrices, head_matrices
from .part import Grid, Part
from .sweep import Reading, sweep

Pattern = Float[Tensor, "batch head query key"]
States = Float[Tensor, "batch pos d_model"]


@dataclass(frozen=True)
class Surgery:
    """The identity part of a head's map, to be taken off.

    Attributes:
        layer: the head's block.
        head: its number.
        circuit: "qk" or "ov".
        rotation: None for the identity; a seed for the control, a random orthogonal
            matrix in its place.
    """

    layer: int
    head: int
    circuit: Circuit
    rotation: int | None = None


def operate(
    model: Model, examples: Batch, surgeries: Sequence[Surgery]
) -> AbstractContextManager[None]:
    """Take identity parts off in every pass over these examples in the block.

    `BadInput` at the end of the block if that changed no pattern or no output.
    """
    # Patterns first: what is taken off an output depends on them.
    ordered = sorted(surgeries, key=lambda surgery: surgery.circuit != "qk")
    theatres = _theatres(model, examples, ordered)
    # Surgeries on one layer look at the same things: once is enough.
    edits = dict.fromkeys(e for s in ordered for e in theatres[s.layer].edits(s))
    edited = {_part(surgery).site for surgery in ordered}
    looking = {site for site, _ in edits} - edited
    return acting(model, merged(edits), looking=looking)


def surgery_sweep(
    model: Model, examples: Batch, grid: Grid[Surgery], reading: Reading
) -> Measurement:
    """The metric with each surgery of a grid on its own; see `sweep`."""
    matrices = {s.layer: head_matrices(model, s.layer) for s in grid.items}

    def cell(surgery: Surgery) -> Edits:
        theatre = _Theatre(matrices[surgery.layer], surgery.layer, examples)
        return merged(theatre.edits(surgery))

    return sweep(model, examples, grid, cell, reading)


def surgery_grid(
    layers: Sequence[int],
    heads: Sequence[int],
    circuit: Circuit,
    *,
    rotation: int | None = None,
) -> Grid[Surgery]:
    """The same surgery on every head of some layers."""
    items = tuple(
        Surgery(layer, head, circuit, rotation) for layer in layers for head in heads
    )
    return Grid({"layer": tuple(layers), "head": tuple(heads)}, items)


@lru_cache(maxsize=4)
def random_rotation(size: int, seed: int) -> Float[Tensor, "row col"]:
    """A random orthogonal matrix, uniform among them (Haar).

    Q of a Gaussian matrix, with the signs that make R's diagonal positive (Mezzadri
    2007, "How to generate random matrices from the classical compact groups").
    """
    source = torch.Generator().manual_seed(seed)
    factors = torch.linalg.qr(torch.randn(size, size, generator=source))
    return factors.Q * factors.R.diagonal().sign()


def _theatres(
    model: Model, examples: Batch, surgeries: Sequence[Surgery]
) -> "dict[int, _Theatre]":
    layers = {surgery.layer for surgery in surgeries}
    return {n: _Theatre(head_matrices(model, n), n, examples) for n in layers}


def _part(surgery: Surgery) -> Part:
    kind: Kind = "pattern" if surgery.circuit == "qk" else "head_out"
    return Part(kind, surgery.layer, surgery.head)


class _Theatre:
    """A layer under surgery: its weights, and what its attention reads in this pass."""

    def __init__(self, matrices: HeadMatrices, layer: int, examples: Batch) -> None:
        self.matrices, self.layer, self.examples = matrices, layer, examples
        self.states: States
        self.pattern: Pattern

    def edits(self, surgery: Surgery) -> list[tuple[Site, Edit]]:
        """What to look at and what to change, in order."""
        before = (Site("resid_pre", self.layer), self._see_states)
        c = float(self.matrices.identity_part(surgery.circuit)[surgery.head])
        part = _part(surgery)
        if surgery.circuit == "qk":
            edit = self._less_matching(c, surgery)
            return [before, (part.site, part.limited(edit, self.examples))]
        return [
            before,
            (Site("pattern", self.layer), self._see_pattern),
            (part.site, part.limited(self._less_copying(c, surgery), self.examples)),
        ]

    def _see_states(self, residual: Tensor) -> Tensor:
        self.states = self.matrices.folded.normalised(residual)
        return residual

    def _see_pattern(self, pattern: Tensor) -> Tensor:
        self.pattern = pattern
        return pattern

    def _less_matching(self, c: float, surgery: Surgery) -> Edit:
        def edit(pattern: Tensor) -> Tensor:
            match = einsum(
                self.states, self._turned(surgery), "b query d, b key d -> b query key"
            )
            return score_lowered(pattern, (c * self.matrices.scale * match)[:, None])

        return edit

    def _less_copying(self, c: float, surgery: Surgery) -> Edit:
        def edit(head_out: Tensor) -> Tensor:
            read = self.pattern[:, surgery.head] @ self._turned(surgery)
            return head_out - c * read[:, :, None]

        return edit

    def _turned(self, surgery: Surgery) -> States:
        """The states, rotated for the control."""
        if surgery.rotation is None:
            return self.states
        width = self.states.shape[-1]
        rotation = random_rotation(width, surgery.rotation)
        return self.states @ rotation.to(self.states)


def score_lowered(
    pattern: Pattern, less: Float[Tensor, "batch 1 query key"]
) -> Pattern:
    """The pattern whose scores are lower by `less`; keys without weight stay so.

    softmax(s - less) is softmax(s) exp(-less), renormalised.
    """
    seen = pattern > 0
    change = (-less).expand_as(pattern).masked_fill(~seen, -torch.inf)
    largest = change.amax(-1, keepdim=True)
    weights = pattern * torch.where(seen, (change - largest).exp(), 0.0)
    total = weights.sum(-1, keepdim=True)
    before = pattern.sum(-1, keepdim=True)
    return torch.where(total > 0, weights * (before / total), pattern)

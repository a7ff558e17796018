"""Which later part reads what a sender writes? Patch one path and nothing beside it.

The direct path from a sender to a receiver is the residual stream between them, with
every component on the way frozen at its corrupt value. Residual streams add up, so
freezing needs no pass: the receiver's input is its corrupt input plus

    delta = what the sender writes on the clean prompt - what it writes on the corrupt

The receiver then computes from that input, everything after it runs on, and everybody
else still reads the corrupt stream (Wang et al. 2022, "Interpretability in the Wild",
Section 3.1; Goldowsky-Dill et al. 2023, "Localizing Model Behavior with Path
Patching"). Falsified by: a path whose restored share is that of a path to a part which
reads nothing of the sender.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.hooks import Edit, Model, intervene, sites_of
from circuits.sites import Kind, Site
from probes.measurement import Measurement
from trained.errors import BadInput, unknown
from trained.task import Batch

from .edit import Edits, constant
from .metric import Reading
from .part import Grid, Part, Places, require_same_layout, require_same_places
from .passes import activations, logits_and_activations
from .patching import by_examples, with_clean
from .sweep import unproven_sweep

Delta = Float[Tensor, "batch pos d_model"]

Through = Literal["input", "pattern", "value"]

SENDERS: tuple[Kind, ...] = ("resid_pre", "head_out", "attn_out", "mlp_out")


@dataclass(frozen=True)
class Receiver:
    """Who reads the sender.

    Attributes:
        part: "attention" or "mlp" of a block, or "logits": the final residual.
        layer: the block; of no meaning for the logits.
        head: the one head that reads; None for the whole attention.
        through: "input": by queries, keys and values; "pattern": by queries and keys,
            the values being corrupt; "value": by values, the pattern being corrupt.
    """

    part: Literal["attention", "mlp", "logits"]
    layer: int = 0
    head: int | None = None
    through: Through = "input"

    def __post_init__(self) -> None:
        if self.part != "attention" and (self.head, self.through) != (None, "input"):
            raise BadInput(f"receiver {self.part} has neither heads nor a pattern")


@dataclass(frozen=True)
class Path:
    """From what a target writes to what a receiver reads.

    The sender is a `Part` at "head_out", "attn_out" or "mlp_out", or at
    "resid_pre" of block 0: the embedding. Its positions limit where it is patched.
    """

    sender: Part
    receiver: Receiver


def path_grid(senders: Grid[Part], receiver: Receiver) -> Grid[Path]:
    """Paths from every sender of a grid to one receiver."""
    return Grid(senders.axes, tuple(Path(item, receiver) for item in senders.items))


def paths_by_head(
    sender: Part,
    layers: Sequence[int],
    heads: Sequence[int],
    *,
    through: Through = "input",
) -> Grid[Path]:
    """Paths from one sender to every head of some layers."""
    items = tuple(
        Path(sender, Receiver("attention", layer, head, through))
        for layer in layers
        for head in heads
    )
    return Grid({"layer": tuple(layers), "head": tuple(heads)}, items)


@torch.no_grad()
def path_patch_sweep(
    model: Model,
    clean: Batch,
    corrupt: Batch,
    grid: Grid[Path],
    reading: Reading,
) -> Measurement:
    """The metric on corrupt prompts with each path of a grid patched on its own.

    Returns:
        A Measurement like that of `patch_sweep`, for `effect` and `summary`.
    """

    def patched(clean: Batch, corrupt: Batch, reading: Reading) -> Measurement:
        runs = _Runs(model, clean, corrupt, grid.items, reading.at)
        swept = unproven_sweep(model, corrupt, grid, runs.cell, reading)
        return with_clean(swept, reading.of(runs.clean_logits, clean))

    whole = any(isinstance(path.sender.units, Tensor) for path in grid.items)
    return by_examples(clean, corrupt, reading, patched, whole=whole)


class _Runs:
    """What the clean and the corrupt run wrote, and the cells made of it."""

    def __init__(
        self,
        model: Model,
        clean: Batch,
        corrupt: Batch,
        paths: Sequence[Path],
        read_at: Places,
    ) -> None:
        self.model, self.corrupt_examples = model, corrupt
        self.sites = sites_of(model)
        self.n_layers = 1 + max(site.layer for site in self.sites)
        require_same_layout(corrupt, clean)
        for path in paths:
            self._check(path)
            require_same_places(corrupt, clean, path.sender.positions)
        wanted = {site for path in paths for site in self._needed(path)}
        self.clean_logits, self.clean = logits_and_activations(
            model, clean, wanted, read_at
        )
        self.corrupt = activations(model, corrupt, sorted(wanted))
        for path in paths:
            if path.sender.kind == "head_out":
                self._check_heads_add_up(path.sender.site.layer)

    def cell(self, path: Path) -> Edits:
        """The edits that patch one path."""
        receiver, delta = path.receiver, self.delta(path.sender)
        if receiver.part == "logits":
            return {Site("resid_post", self.n_layers - 1): _added(delta)}
        if receiver.part == "mlp":
            return self._into_mlp(receiver.layer, delta)
        if receiver.through == "pattern":
            return self._into_pattern(receiver, delta)
        return self._into_attention(receiver, delta)

    def delta(self, sender: Part) -> Delta:
        """The change of what the sender adds to the residual."""
        change = self.clean[sender.site] - self.corrupt[sender.site]
        chosen = sender.mask(self.corrupt_examples, change)
        change = torch.where(chosen, change, 0.0)
        return change.sum(2) if sender.kind == "head_out" else change

    def _into_mlp(self, layer: int, delta: Delta) -> Edits:
        back = {Site("mlp_out", layer): _added(-delta)}
        if self._parallel():
            attention = Site("attn_out", layer)
            frozen = {attention: constant(self.corrupt[attention])}
            return {Site("resid_pre", layer): _added(delta), **frozen, **back}
        return {Site("resid_mid", layer): _added(delta), **back}

    def _into_attention(self, receiver: Receiver, delta: Delta) -> Edits:
        layer = receiver.layer
        # The stream carries delta to the attention and loses it right behind it.
        cell: dict[Site, Edit] = {
            Site("resid_pre", layer): _added(delta),
            Site("attn_out", layer): _added(-delta),
        }
        if receiver.head is not None:
            cell[Site("head_out", layer)] = self._others_frozen(receiver)
        if receiver.through == "value":
            cell[Site("pattern", layer)] = constant(
                self.corrupt[Site("pattern", layer)]
            )
        if self._parallel():
            cell[Site("mlp_out", layer)] = constant(
                self.corrupt[Site("mlp_out", layer)]
            )
        return cell

    def _into_pattern(self, receiver: Receiver, delta: Delta) -> Edits:
        """The pattern that delta makes, in a run whose values know nothing of it."""
        site = Site("pattern", receiver.layer)
        before = Site("resid_pre", receiver.layer)
        with intervene(self.model, {before: _added(delta)}):
            made = activations(self.model, self.corrupt_examples, [site])[site]
        part = Part("pattern", receiver.layer, receiver.head)
        return {site: part.limited(constant(made), self.corrupt_examples)}

    def _others_frozen(self, receiver: Receiver) -> Edit:
        site = Site("head_out", receiver.layer)
        part = Part("head_out", receiver.layer, receiver.head)

        def edit(head_out: Tensor) -> Tensor:
            own = part.mask(self.corrupt_examples, head_out)
            return torch.where(own, head_out, self.corrupt[site])

        return edit

    def _needed(self, path: Path) -> list[Site]:
        """The sites whose clean or corrupt values the path's cell is made of."""
        sender, receiver = path.sender.site, path.receiver
        needed = [sender]
        if sender.kind == "head_out":
            needed.append(Site("attn_out", sender.layer))
        if receiver.part == "logits":
            return needed
        kinds: list[Kind] = ["attn_out", "mlp_out"] if self._parallel() else []
        kinds += ["head_out"] * (receiver.head is not None)
        kinds += ["pattern"] * (receiver.through == "value")
        return needed + [Site(kind, receiver.layer) for kind in kinds]

    def _parallel(self) -> bool:
        """Whether attention and MLP of a block read the same residual."""
        kinds = {site.kind for site in self.sites}
        return "mlp_out" in kinds and "resid_mid" not in kinds

    def _check(self, path: Path) -> None:
        sender, receiver = path.sender.site, path.receiver
        inside = sender.kind == "resid_pre" and sender.layer > 0
        if sender.kind not in SENDERS or inside:
            raise unknown("sender", sender, (*SENDERS[1:], "resid_pre[0]"))
        if receiver.part == "logits":
            return
        # On a line where attention writes at its layer and an MLP half a block later.
        half = 0.0 if self._parallel() else 0.5
        writes = -1.0 if sender.kind == "resid_pre" else float(sender.layer)
        writes += half * (sender.kind == "mlp_out")
        reads = receiver.layer + half * (receiver.part == "mlp")
        if writes >= reads:
            raise BadInput(
                f"{sender} writes after the {receiver.part} of block {receiver.layer} "
                "has read: there is no path"
            )

    def _check_heads_add_up(self, layer: int) -> None:
        """Heads must join the residual as they are, not through a norm of their sum."""
        heads, total = Site("head_out", layer), Site("attn_out", layer)
        rest = [run[total] - run[heads].sum(2) for run in (self.clean, self.corrupt)]
        size = self.clean[total].abs().max()
        tolerance = max(1e-4, 8 * torch.finfo(size.dtype).eps)
        if (rest[0] - rest[1]).abs().max() > tolerance * size:
            raise BadInput(
                f"the heads of block {layer} are normalised together before they join "
                'the residual: send from "attn_out"'
            )


def _added(delta: Delta) -> Edit:
    return lambda activation: activation + delta

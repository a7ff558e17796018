"""What somebody wants of an activation, when it is less than all of it."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from trained.errors import BadInput


@dataclass(frozen=True, eq=False)
class View:
    """Some queries of a pattern, and of their rows the mass on some sets of keys.

    Attributes:
        queries: whose rows, prompt by prompt; None for all. Those below 0 count from
            the end, so that -1 is the newest in passes of any length.
        sets: the keys of each set, prompt by prompt; None for the rows themselves.
    """

    queries: Int[Tensor, "batch query"] | None = None
    sets: Bool[Tensor, "batch set key"] | None = None

    def of(
        self, pattern: Float[Tensor, "batch head query key"]
    ) -> Float[Tensor, "batch head chosen last"]:
        """The view of a whole pattern: what every faster way must equal."""
        return self.summed(self.rows(pattern))

    def rows(
        self, pattern: Float[Tensor, "batch head query last"]
    ) -> Float[Tensor, "batch head chosen last"]:
        """The rows of the queries; models of one output position have one."""
        if self.queries is None or pattern.shape[2] == 1:
            return pattern
        return rows_at(pattern, self.queries)

    def summed(
        self, rows: Float[Tensor, "batch head query key"]
    ) -> Float[Tensor, "batch head query last"]:
        """The mass on each set, sum over k in set of A[k]; or the rows."""
        if self.sets is None:
            return rows
        if self.sets.shape[-1] != rows.shape[-1]:
            raise BadInput(
                f"sets of {self.sets.shape[-1]} keys for a pattern of {rows.shape[-1]}"
            )
        keys = rearrange(self.sets, "batch set key -> batch 1 key set")
        return rows @ keys.to(rows.dtype)


def shown(
    view: View, show: Callable[[Tensor], None]
) -> Callable[[Float[Tensor, "batch head query key"]], None]:
    """A callback at the whole pattern, for models that make it anyway."""
    return lambda pattern: show(view.of(pattern))


def rows_at(
    rows: Shaped[Tensor, "batch head query last"], queries: Int[Tensor, "batch chosen"]
) -> Shaped[Tensor, "batch head chosen last"]:
    """The rows of some queries, prompt by prompt: of a pattern, a mask, queries."""
    prompts = torch.arange(len(queries), device=queries.device)[:, None]
    return rows[prompts, :, queries].transpose(1, 2)


@dataclass(frozen=True, eq=False)
class Unembedded:
    """The columns whose logits a pass gives; None for all."""

    columns: Int[Tensor, "batch place"] | None = None

    def at(self, logits: Tensor, wanted: Int[Tensor, "batch some"]) -> Tensor:
        """The logits at some of these columns."""
        if self.columns is None:
            return at_columns(logits, wanted)
        same = self.columns[:, None] == wanted[:, :, None]
        return at_columns(logits, same.int().argmax(-1))


def at_columns(activation: Tensor, columns: Int[Tensor, "batch place"]) -> Tensor:
    """Some positions of an activation [batch, pos, ...], prompt by prompt."""
    # A model may be spread over devices.
    columns = columns.to(activation.device)
    rows = torch.arange(len(columns), device=columns.device)[:, None]
    return activation[rows, columns]

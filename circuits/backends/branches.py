"""Many short continuations of one stored run of a transformers model, side by side.

A change at position p of block l leaves every earlier position and every earlier block
as they were. A branch therefore holds the positions from p to the answer only, starts
before block l, and reads the keys and values of the positions before p from the stored
run. Branches of a prompt lie behind each other in a row, as a mask lets them: none sees
another. A prompt may have several rows.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from trained.interrupts import Holding

from .anatomy import skipping

if TYPE_CHECKING:
    from transformers import DynamicCache

Residual = Float[Tensor, "batch pos d_model"]
KeysAndValues = tuple[Tensor, Tensor]
"""Of one layer, each [batch, kv_head, pos, d_head]."""


@dataclass(frozen=True, eq=False)
class Layout:
    """Where the branches of every row lie: all end at the answer of the row's prompt.

    Attributes:
        answers: the answer's column, row by row.
        widths: how many positions each branch has; as many in every row. What
            would lie before a prompt's first column is filled up and seen by nobody.
    """

    answers: Int[Tensor, " batch"]
    widths: tuple[int, ...]

    @property
    def ends(self) -> Int[Tensor, " branch"]:
        """The place of every branch's answer."""
        return self._widths.cumsum(0) - 1

    @property
    def columns(self) -> Int[Tensor, "batch place"]:
        """The column of each place, below 0 where it fills up."""
        places = torch.arange(sum(self.widths), device=self.answers.device)
        return self.answers[:, None] - (self.ends[self._branch] - places)

    @property
    def starts(self) -> Int[Tensor, "batch place"]:
        """The first column of each place's branch."""
        first = self.answers[:, None] - (self._widths[self._branch] - 1)
        return first.clamp(min=0)

    def seen(
        self, real: Bool[Tensor, "batch pos"], n_stored: int
    ) -> Bool[Tensor, "batch place key"]:
        """What each place may look at: stored columns first, then places."""
        stored = torch.arange(n_stored, device=real.device)
        before = (stored < self.starts[..., None]) & real[:, None, :n_stored]
        columns = self.columns
        kept = (columns >= 0) & real.gather(1, columns.clamp(min=0))
        same = self._branch[:, None] == self._branch
        within = same & (columns[:, None] <= columns[..., None]) & kept[:, None]
        # A place that fills up sees itself, as a row without keys has no softmax.
        itself = torch.eye(len(same), dtype=torch.bool, device=real.device)
        return torch.cat([before & kept[..., None], within | itself], -1)

    @property
    def _widths(self) -> Int[Tensor, " branch"]:
        return torch.tensor(self.widths, device=self.answers.device)

    @property
    def _branch(self) -> Int[Tensor, " place"]:
        """Whose each place is."""
        widths = self._widths
        return torch.arange(len(widths), device=widths.device).repeat_interleave(widths)


@dataclass(frozen=True, eq=False)
class Branching:
    """A transformers model whose runs can be branched off.

    Attributes:
        model: the model.
        blocks: its blocks.
        last_parts: those of the last block whose output nobody looks at but the
            answers themselves: its MLP, and what heads are multiplied by.
        unembedding: its last layer, which neither stored runs nor branches reach.
    """

    model: nn.Module
    blocks: Sequence[nn.Module]
    last_parts: Sequence[nn.Module]
    unembedding: nn.Module

    def store(
        self, tokens: Int[Tensor, "batch pos"], real: Bool[Tensor, "batch pos"]
    ) -> "StoredRun":
        """Run prompts once and keep every layer's keys and values."""
        # Small models are swept without it.
        from transformers import DynamicCache

        cache, positions = DynamicCache(), (real.cumsum(1) - 1).clamp(min=0)
        self.run(tokens, real, positions, cache)
        layers = [(layer.keys, layer.values) for layer in cache.layers]
        return StoredRun(self, layers, real)

    def run(
        self, tokens: Tensor, mask: Tensor, positions: Tensor, cache: "DynamicCache"
    ) -> None:
        """One pass that ends before the unembedding."""

        def nothing(_module: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
            return inputs[0][:, :0]

        with Holding() as held:
            held.add(self.unembedding.register_forward_pre_hook, nothing)
            self.model(
                input_ids=tokens,
                attention_mask=mask,
                position_ids=positions,
                past_key_values=cache,
                use_cache=True,
            )


@dataclass(frozen=True, eq=False)
class StoredRun:
    """A run to branch off.

    Attributes:
        of: the model.
        layers: keys and values.
        real: True at what is not padding.
    """

    of: Branching
    layers: Sequence[KeysAndValues]
    real: Bool[Tensor, "batch pos"]

    def branch(
        self,
        layout: Layout,
        residual: Residual,
        blocks: range,
        prompts: Int[Tensor, " batch"],
    ) -> Residual:
        """The residual behind some blocks, at the places of the layout.

        Behind the last block it is right at the branches' answers alone.

        Args:
            layout: where the branches lie.
            residual: before the first of the blocks, at the places of the layout.
            blocks: those that are run; hooks of others do not fire.
            prompts: whose branches lie in each row; a prompt may have several rows.
        """
        real, columns = self.real[prompts], layout.columns.clamp(min=0)
        n_stored = int(layout.starts.max())
        seen = layout.seen(real, n_stored)
        lowest = torch.finfo(residual.dtype).min
        mask = torch.zeros(seen.shape, dtype=residual.dtype, device=seen.device)
        positions = (real.cumsum(1) - 1).clamp(min=0).gather(1, columns)
        with self._ending(layout, blocks), self._running(residual, blocks) as last:
            self.of.run(
                torch.zeros_like(columns),
                mask.masked_fill(~seen, lowest)[:, None],
                positions,
                self._cache(blocks, prompts, n_stored),
            )
        return last[0]

    def _cache(
        self, blocks: range, prompts: Int[Tensor, " batch"], n_stored: int
    ) -> "DynamicCache":
        """The stored keys and values of the blocks that run."""
        from transformers import DynamicCache

        def begun(layer: Tensor) -> Tensor:
            return layer[prompts.to(layer.device), :, :n_stored]

        # One after the other: the cache copies each.
        return DynamicCache(
            (begun(keys), begun(values)) if number in blocks else (None, None)
            for number, (keys, values) in enumerate(self.layers)
        )

    @contextmanager
    def _running(self, residual: Residual, blocks: range) -> Iterator[list[Tensor]]:
        """Let a pass run some blocks, and keep what the last of them gives."""
        last: list[Tensor] = []

        def enter(_module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
            return (residual, *inputs[1:])

        def keep(_module: nn.Module, _inputs: Any, output: Any) -> None:
            last.append(output[0] if isinstance(output, tuple) else output)

        every = self.of.blocks
        first, final = every[blocks.start], every[blocks.stop - 1]
        with Holding() as held:
            others = (*every[: blocks.start], *every[blocks.stop :])
            held.enter_context(skipping(others))
            # Before those who listen to the block's input.
            held.add(first.register_forward_pre_hook, enter, prepend=True)
            held.add(final.register_forward_hook, keep)
            yield last

    @contextmanager
    def _ending(self, layout: Layout, blocks: range) -> Iterator[None]:
        """Let the end of the last block read the answers alone, if nobody listens."""
        final = self.of.blocks[-1]
        heard = any(m._forward_hooks or m._forward_pre_hooks for m in final.modules())
        if heard or blocks.stop < len(self.of.blocks):
            yield
            return
        places = sum(layout.widths)

        def narrow(_module: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
            return inputs[0][:, layout.ends.to(inputs[0].device)]

        def widen(_module: nn.Module, _inputs: Any, output: Tensor) -> Tensor:
            whole = output.new_zeros(len(output), places, output.shape[-1])
            whole[:, layout.ends.to(output.device)] = output
            return whole

        with Holding() as held:
            for part in self.of.last_parts:
                held.add(part.register_forward_pre_hook, narrow)
                held.add(part.register_forward_hook, widen)
            yield

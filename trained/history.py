"""The course of training: metric values per seed, step by step."""

from collections.abc import Mapping

import torch
from torch import Tensor


class History:
    """Rows of (step, metric values per seed), kept on the CPU in order of steps."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        self._values: dict[str, list[Tensor]] = {}

    def append(self, step: int, values: Mapping[str, Tensor]) -> None:
        """Add one record; every value has the seed axis only."""
        self.steps.append(step)
        for name, value in values.items():
            self._values.setdefault(name, []).append(value.detach().cpu().clone())

    def repeat(self, step: int) -> None:
        """Add a record equal to the last one: nothing can have changed."""
        self.append(step, {name: column[-1] for name, column in self._values.items()})

    def tensors(self) -> dict[str, Tensor]:
        """Every metric as [seed, record]."""
        return {name: torch.stack(col, dim=1) for name, col in self._values.items()}

    @classmethod
    def restore(cls, steps: list[int], tensors: Mapping[str, Tensor]) -> "History":
        """The history that `steps` and `tensors` came from."""
        history = cls()
        history.steps = list(steps)
        history._values = {name: list(t.unbind(1)) for name, t in tensors.items()}
        return history

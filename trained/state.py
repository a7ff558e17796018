"""The state of a group of seeds on disk: two files written in turn.

Each holds a hash of its content, so one that was cut or edited is not believed, and
the one before it is taken instead. Training from there ends with the same bits.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from .errors import BadInput
from .files import content_hash, read_tensors, write_tensors

State = tuple[dict[str, Tensor], dict[str, Any]]
"""Tensors, and where in the course of training they belong."""


def write_checked(
    file: Path, tensors: dict[str, Tensor], place: dict[str, Any] | None = None
) -> None:
    """Write tensors with a hash of their content."""
    place = place or {}
    # Once from a device, not for the hash and for the file.
    tensors = {name: tensor.cpu() for name, tensor in tensors.items()}
    write_tensors(file, tensors, {"hash": _hash(tensors, place), **place})


def read_checked(file: Path) -> State:
    """What `write_checked` wrote; `BadInput` if it is not that any more."""
    tensors, place = read_tensors(file)
    if place.pop("hash", None) != _hash(tensors, place):
        raise BadInput(f"{file} was changed since it was written")
    return tensors, place


class StateFiles:
    """The two files of a directory; `place` has a `stage` and a `step`."""

    def __init__(self, folder: Path) -> None:
        self._files = [folder / f"state-{i}.safetensors" for i in (0, 1)]
        self._next = 0

    def write(self, tensors: dict[str, Tensor], place: dict[str, Any]) -> None:
        """Put the state into the place of the older one."""
        write_checked(self._files[self._next], tensors, place)
        self._next = 1 - self._next

    def read(self) -> State | None:
        """The newest state that is whole, if there is one."""
        newest: State | None = None
        for index, file in enumerate(self._files):
            if not file.exists():
                continue
            try:
                tensors, place = read_checked(file)
            except BadInput as error:
                if isinstance(error.__cause__, OSError):
                    # It may be whole, and readable another time.
                    raise
                continue
            if newest is None or _order(place) > _order(newest[1]):
                newest, self._next = (tensors, place), 1 - index
        return newest


def _hash(tensors: dict[str, Tensor], place: dict[str, Any]) -> str:
    text = json.dumps(place, sort_keys=True) + content_hash(tensors)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _order(place: dict[str, Any]) -> tuple[int, int]:
    return place["stage"], place["step"]


def below(prefix: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a state whose names begin so, by the rest of their names."""
    return {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}

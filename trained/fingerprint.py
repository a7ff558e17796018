"""What an arm is: hashes of its data, first weights, settings and code.

A run in a directory of its own choosing may be met again by a program that has changed.
What was stored says what it was made of, so that stale work is refused, not continued.
"""

import hashlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any

from torch import Tensor

from .arm import Arm
from .ensemble import leaves

_ENGINE = ("arm", "decoder", "ensemble", "seeding", "trainer")
"""Our own modules on which the bits of a trained model depend."""

SAMPLE = 256
"""Values of each parameter that tell one model from another."""


def fingerprint(arm: Arm, seeds: Sequence[int]) -> dict[str, str]:
    """Hashes by name: `data_hash`, `weights_hash`, `settings_hash`, `code_hash`."""
    return {
        "data_hash": _data_hash(arm, seeds),
        "weights_hash": parameter_hash(dict(arm.build(seeds[0]).named_parameters())),
        "settings_hash": _digest([_settings(arm).encode()]),
        "code_hash": _digest(_code(arm)),
    }


def parameter_hash(parameters: Mapping[str, Tensor]) -> str:
    """A hash of the first values of every parameter."""
    samples = (
        parameters[name].detach().flatten()[:SAMPLE].float().cpu().numpy().tobytes()
        for name in sorted(parameters)
    )
    return _digest(samples)


def _data_hash(arm: Arm, seeds: Sequence[int]) -> str:
    return _digest(
        leaf.contiguous().cpu().numpy().tobytes()
        for stage in arm.stages
        for seed in seeds
        for leaf in leaves(stage.data(seed, 0))
    )


def _settings(arm: Arm) -> str:
    """How the arm is trained, in words: all fields that are plain values."""
    whole = (arm.record_every, arm.save_steps, arm.stores, arm.stackable, arm.threads)
    stages = [
        {k: v for k, v in vars(stage).items() if not callable(v)}
        for stage in arm.stages
    ]
    return repr((whole, sorted(arm.metrics), stages))


def _code(arm: Arm) -> Iterator[bytes]:
    """The files that define what the arm calls, and what its functions hold fast."""
    here = Path(__file__).parent
    files = {here / f"{name}.py" for name in _ENGINE}
    values: list[str] = []
    for function in _functions(arm):
        for inner in _unwrapped(function):
            values += _held(inner)
            file = getattr(sys.modules.get(inner.__module__), "__file__", None)
            if file is None:
                values.append(_source(inner))
            else:
                files.add(Path(file))
    yield from (file.read_bytes() for file in sorted(files))
    yield repr(values).encode()


def _functions(arm: Arm) -> list[Callable[..., Any]]:
    found: list[Any] = [arm.build, arm.held_out, arm.measure, *arm.metrics.values()]
    for stage in arm.stages:
        found += [stage.loss, stage.data, stage.label]
        found += [stage.prepare, stage.edit_gradients]
    return [function for function in found if function is not None]


def _unwrapped(function: Any) -> Iterator[Any]:
    """What has code of its own: functions and classes, also inside partials."""
    if isinstance(function, partial):
        yield from _unwrapped(function.func)
        for value in (*function.args, *function.keywords.values()):
            if isinstance(value, partial | FunctionType):
                yield from _unwrapped(value)
    elif isinstance(function, MethodType):
        yield function.__func__
    elif isinstance(function, FunctionType | type):
        # A decorator's own frame is no part of what is computed.
        function = inspect.unwrap(function)
        yield function
        for value in _cells(function):
            if isinstance(value, partial | FunctionType):
                yield from _unwrapped(value)
    else:
        yield type(function)


def _held(function: Any) -> list[str]:
    """The plain values in a function's closure."""
    return [repr(value) for value in _cells(function) if _is_plain(value)]


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(_is_plain(item) for item in value)
    return isinstance(value, int | float | str)


def _cells(function: Any) -> list[Any]:
    return [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]


def _source(function: Any) -> str:
    """The text of what was written in a notebook."""
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return function.__qualname__


def _digest(parts: Any) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        digest.update(part)
    return digest.hexdigest()

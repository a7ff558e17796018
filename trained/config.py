"""Frozen dataclasses to and from the command line and JSON.

A study's configuration is a frozen dataclass of plain numbers, names and tuples of
them. Its `__post_init__` refuses impossible values with `BadInput`, so a
configuration that exists is one that can be run.
"""

import dataclasses
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import (
    Any,
    Generic,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from .errors import BadInput, unknown

Config = TypeVar("Config")
"""Any frozen dataclass; dataclasses have no common base to bind to."""


def override(config: Config, assignments: Iterable[str]) -> Config:
    """The configuration with `key=value` assignments applied, types checked.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Sizes:
    ...     width: int = 4
    >>> override(Sizes(), ["width=8"])
    Sizes(width=8)
    """
    changes: dict[str, Any] = {}
    for assignment in assignments:
        key, separator, text = assignment.partition("=")
        if not separator:
            raise BadInput(f"'{assignment}' is not of the form key=value")
        changes[key.strip()] = text.strip()
    hints = _hints(type(config))
    for key, text in changes.items():
        if key not in hints:
            raise unknown("config key", key, hints)
        changes[key] = _parse(text, hints[key], key)
    return dataclasses.replace(config, **changes)  # type: ignore[type-var]


def as_dict(config: Any) -> dict[str, Any]:
    """The configuration as JSON-ready values (tuples become lists)."""
    return {
        field.name: _plain(getattr(config, field.name))
        for field in dataclasses.fields(config)
    }


def from_dict(kind: type[Config], mapping: Mapping[str, Any]) -> Config:
    """The configuration of the given class that `as_dict` wrote."""
    hints = _hints(kind)
    for key in mapping:
        if key not in hints:
            raise unknown("config key", key, hints)
    try:
        return kind(**{key: _typed(mapping[key], hints[key]) for key in mapping})
    except TypeError as error:
        raise BadInput(f"config {dict(mapping)} does not fit: {error}") from error


def require(condition: bool, message: str) -> None:
    """Raise `BadInput` unless the condition holds; for `__post_init__` checks."""
    if not condition:
        raise BadInput(message)


def _hints(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _typed(value: Any, hint: Any) -> Any:
    return tuple(value) if get_origin(hint) is tuple else value


def _parse(text: str, hint: Any, key: str) -> Any:
    origin = get_origin(hint)
    if origin is tuple:
        item = get_args(hint)[0]
        return tuple(_parse(part, item, key) for part in text.split(",") if part)
    if origin in (Union, types.UnionType):
        if text.lower() == "none":
            return None
        inner = next(arg for arg in get_args(hint) if arg is not type(None))
        return _parse(text, inner, key)
    if origin is Literal:
        if text not in get_args(hint):
            raise unknown(f"value for {key}", text, get_args(hint))
        return text
    return _parse_scalar(text, hint, key)


def _parse_scalar(text: str, hint: Any, key: str) -> Any:
    if hint is bool:
        if text.lower() not in ("true", "false"):
            raise BadInput(f"{key}={text}: expected true or false")
        return text.lower() == "true"
    try:
        return hint(text)
    except ValueError as error:
        name = {"int": "a whole number", "float": "a number"}[hint.__name__]
        raise BadInput(f"{key}={text}: expected {name}") from error


@dataclass(frozen=True)
class Preset(Generic[Config]):
    """What `--preset` chooses."""

    config: Config
    n_seeds: int
    cost: str
    """How long it takes on two CPU cores, for people."""

"""Frozen dataclasses to and from the command line and JSON.

A study's configuration is a frozen dataclass of plain numbers, names, tuples of them
and groups of these, themselves frozen dataclasses (`gpt.steps=200`). Its
`__post_init__` refuses impossible values with `BadInput`, so a configuration that
exists is one that can be run.
"""

import ast
import dataclasses
import inspect
import itertools
import textwrap
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import (
    Any,
    Generic,
    Literal,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from .errors import BadInput, unknown

Config = TypeVar("Config")
"""Any frozen dataclass; dataclasses have no common base to bind to."""

_NAMES = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}


def override(config: Config, assignments: Iterable[str]) -> Config:
    """The configuration with `key=value` assignments applied, types checked.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Sizes:
    ...     width: int = 4
    >>> override(Sizes(), ["width=8"])
    Sizes(width=8)
    """
    changes: dict[str, str] = {}
    for assignment in assignments:
        key, separator, text = assignment.partition("=")
        if not separator:
            raise BadInput(f"'{assignment}' is not of the form key=value")
        if key.strip() not in keys(config):
            raise unknown("config key", key.strip(), keys(config))
        changes[key.strip()] = text.strip()
    return _changed(config, changes, "")


def keys(config: Any) -> list[str]:
    """Every key that can be set; those of a group as `group.key`."""
    return list(values(config))


def values(config: Any, prefix: str = "") -> dict[str, Any]:
    """Every key that can be set -> what it is set to."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        value, name = getattr(config, field.name), prefix + field.name
        nested = dataclasses.is_dataclass(value)
        found |= values(value, name + ".") if nested else {name: value}
    return found


def meanings(config: Any, prefix: str = "") -> dict[str, str]:
    """Every key that can be set -> its docstring on one line, or ``""``."""
    found: dict[str, str] = {}
    said = _docstrings(type(config))
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        name = prefix + field.name
        if dataclasses.is_dataclass(value):
            found |= meanings(value, name + ".")
        else:
            found[name] = said.get(field.name, "")
    return found


def _docstrings(kind: type) -> dict[str, str]:
    """The strings below a class's fields, which Python itself forgets."""
    said: dict[str, str] = {}
    for base in filter(dataclasses.is_dataclass, kind.__bases__):
        said |= _docstrings(base)
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    except (OSError, TypeError):
        # A class made in a session has no source.
        return said
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    for field, below in itertools.pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr):
            text = ast.literal_eval(below.value)
            said[ast.unparse(field.target)] = " ".join(str(text).split())
    return said


def as_dict(config: Any) -> dict[str, Any]:
    """The configuration as JSON-ready values (tuples become lists)."""
    return {
        field.name: _plain(getattr(config, field.name))
        for field in dataclasses.fields(config)
    }


def changes(config: Any, mapping: Mapping[str, Any], prefix: str = "") -> list[str]:
    """The `key=value` assignments that lead from a configuration to a stored one.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Sizes:
    ...     width: int = 4
    >>> changes(Sizes(), {"width": 8})
    ['width=8']
    """
    found = []
    for name, value in as_dict(config).items():
        asked = mapping.get(name, value)
        nested = getattr(config, name)
        if dataclasses.is_dataclass(nested):
            found += changes(nested, asked, f"{prefix}{name}.")
        elif asked != value:
            text = ",".join(map(str, asked)) if isinstance(asked, list) else asked
            found.append(f"{prefix}{name}={text}")
    return found


def from_dict(kind: type[Config], mapping: Mapping[str, Any]) -> Config:
    """The configuration of the given class that `as_dict` wrote."""
    hints = _hints(kind)
    for key in mapping:
        if key not in hints:
            raise unknown("config key", key, hints)
    values = {key: _typed(mapping[key], hints[key], key) for key in mapping}
    try:
        return kind(**values)
    except TypeError as error:
        raise BadInput(f"config {dict(mapping)} does not fit: {error}") from error


def _changed(config: Config, changes: Mapping[str, str], prefix: str) -> Config:
    """All changes at once, since values are checked against each other."""
    values: dict[str, Any] = {}
    for name, hint in _hints(type(config)).items():
        key, value = prefix + name, getattr(config, name)
        if dataclasses.is_dataclass(value):
            values[name] = _changed(value, changes, key + ".")
        elif key in changes:
            values[name] = _parse(changes[key], hint, key)
    return dataclasses.replace(config, **values)  # type: ignore[type-var]


def require(condition: bool, message: str) -> None:
    """Raise `BadInput` unless the condition holds; for `__post_init__` checks."""
    if not condition:
        raise BadInput(message)


def _hints(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return as_dict(value)
    return list(value) if isinstance(value, tuple) else value


def _typed(value: Any, hint: Any, key: str) -> Any:
    """A value out of JSON, as the field's type has it; `BadInput` if it cannot be."""
    origin, inner = get_origin(hint), get_args(hint)
    if dataclasses.is_dataclass(hint) and isinstance(value, Mapping):
        return from_dict(cast(type, hint), value)
    if origin is tuple and isinstance(value, list | tuple):
        return tuple(_typed(item, inner[0], key) for item in value)
    if origin in (Union, types.UnionType):
        if value is None:
            return None
        return _typed(value, next(arg for arg in inner if arg is not type(None)), key)
    if origin is Literal and value in inner:
        return value
    # True is an int to Python, and a whole number may stand for a float.
    fits = (int, float) if hint is float else hint
    is_bool = isinstance(value, bool)
    if origin is None and isinstance(value, fits) and is_bool == (hint is bool):
        return value
    others = {tuple: "a list", Literal: f"one of {inner}", None: "a group of values"}
    wanted = _NAMES.get(hint) or others[origin]
    raise BadInput(f"{key}={value!r}: expected {wanted}")


def _parse(text: str, hint: Any, key: str) -> Any:
    origin = get_origin(hint)
    if origin is tuple:
        item = get_args(hint)[0]
        parts = filter(None, map(str.strip, text.split(",")))
        return tuple(_parse(part, item, key) for part in parts)
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
            raise BadInput(f"{key}={text}: expected {_NAMES[bool]}")
        return text.lower() == "true"
    try:
        return hint(text)
    except ValueError as error:
        raise BadInput(f"{key}={text}: expected {_NAMES[hint]}") from error


@dataclass(frozen=True)
class Preset(Generic[Config]):
    """What `--preset` chooses."""

    config: Config
    n_seeds: int
    cost: str
    """How long it takes on two CPU cores, for people."""

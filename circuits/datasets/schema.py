"""Rows of a study's own file, typed: what is wrong names the row and the field.

A row is a frozen dataclass; the types of its fields are what is checked (`str`, `int`,
`float`, `Literal`, `tuple[str, ...]`, a dictionary of these, or one of them or None),
and fields with a default may be missing. Its `__post_init__` may refuse more.
"""

import hashlib
import json
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar, get_args, get_origin, get_type_hints

from trained.errors import BadInput

from .files import columns_of, entries
from .row import ALIKE, checked_text, said

Row = TypeVar("Row")


@dataclass(frozen=True)
class Rows(Generic[Row]):
    """The rows of a file that were checked.

    Attributes:
        name: of the file.
        rows: in its order.
        path: where it is; None: it came with the study.
        columns: what its columns are named otherwise.
    """

    name: str
    rows: tuple[Row, ...]
    path: str | None = None
    columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.rows:
            raise BadInput(f"{self.name}: it holds no row")

    @cached_property
    def sha256(self) -> str:
        """A hash of what the rows say, whatever the format they came in."""
        found = hashlib.sha256()
        for row in self.rows:
            # Every row is a dataclass, which no type variable can say.
            found.update(json.dumps(asdict(row)).encode() + b"\n")  # type: ignore[call-overload]
        return found.hexdigest()


@dataclass(frozen=True)
class Schema(Generic[Row]):
    """What the rows of a study's data are.

    Attributes:
        row: the dataclass of a row.
        shipped: the file that comes with the study; None: it is made for a model.
        prompts: rows -> the same for `reasonscope scan`.
    """

    row: type[Row]
    shipped: Path | None
    prompts: Callable[[Sequence[Row]], Iterable[Mapping[str, Any]]]

    def read(self, path: str | Path, columns: Sequence[str] = ()) -> Rows[Row]:
        """The rows of a file.

        Args:
            path: a `.jsonl`, `.json` (a list), `.csv` or `.parquet` file.
            columns: `old=new` for columns that the file names otherwise.

        Raises:
            BadInput: names the row and the field.
        """
        file = Path(path)
        renamed = columns_of(columns, _names(self.row))
        if not file.is_file():
            raise BadInput(f"{path}: there is no such file")
        texts = file.suffix.lower() == ".csv"
        rows = tuple(
            self.row_of(entry, where, texts=texts)
            for where, entry in entries(file, renamed)
        )
        return Rows(file.name, rows, str(path), tuple(columns))

    def own(self) -> Rows[Row] | None:
        """The rows that come with the study, if some do."""
        if self.shipped is None:
            return None
        return Rows(self.shipped.name, self.read(self.shipped).rows)

    def row_of(self, entry: object, where: str, *, texts: bool = False) -> Row:
        """The row that an entry of a file is; `BadInput` names what is wrong with it.

        Args:
            entry: field -> value.
            where: the row as a reader finds it.
            texts: whether everything is a text, as in CSV; what is not one is JSON
                there.
        """
        if not isinstance(entry, Mapping):
            kind = type(entry).__name__
            raise BadInput(f"{where}: a row is an object with fields, not a {kind}")
        known = {name: value for name, value in entry.items() if value is not None}
        _require_fields(self.row, known, where)
        values = {}
        for name, hint in self._hints.items():
            if name in known:
                place = f"{where}: field '{name}'"
                given = _unpacked(known[name], hint, place) if texts else known[name]
                values[name] = _checked(given, hint, name, where)
        try:
            return self.row(**values)
        except BadInput as error:
            raise BadInput(f"{where}: {error}") from None

    @cached_property
    def _hints(self) -> dict[str, Any]:
        hints = get_type_hints(self.row)
        return {name: hints[name] for name in _names(self.row)}


def _require_fields(kind: type, known: Mapping[Any, object], where: str) -> None:
    wanted = _names(kind)
    needed = [
        f.name
        for f in fields(kind)
        if f.default is MISSING and f.default_factory is MISSING
    ]
    for name in needed:
        if name not in known:
            near = [n for n in known if isinstance(n, str) and n not in wanted]
            close = get_close_matches(name, near, 1, ALIKE)
            hint = f"; is it --columns {close[0]}={name}?" if close else ""
            raise BadInput(
                f"{where}: field '{name}' is missing; fields are "
                f"{', '.join(wanted)}{hint}"
            )


def _unpacked(value: object, hint: Any, place: str) -> object:
    """A cell of a table; what is no text is written as JSON in it."""
    if hint is str or get_origin(hint) is Literal or not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        if str in get_args(hint):
            return value
        raise BadInput(f"{place} is {said(value)}; write it as JSON") from None


def _checked(value: object, hint: Any, name: str, where: str) -> Any:
    """A value of a type; `BadInput` if it is none."""
    if hint is str:
        return checked_text(value, name, where)
    origin, inner = get_origin(hint), get_args(hint)
    if origin is types.UnionType:
        return _checked(value, inner[0], name, where)
    wanted = _misfit(value, hint, origin, inner)
    if wanted:
        raise BadInput(f"{where}: field '{name}' is {said(value)}; {wanted}")
    if isinstance(value, list | tuple):
        return tuple(_checked(one, inner[0], name, where) for one in value)
    if isinstance(value, Mapping):
        rows = value.items()
        return {str(k): _checked(one, inner[1], name, where) for k, one in rows}
    return value if origin is Literal else hint(value)


def _misfit(value: object, hint: Any, origin: Any, inner: tuple[Any, ...]) -> str:
    """What a value that does not fit its type should have been."""
    if hint in (int, float):
        fits = isinstance(value, int | hint) and not isinstance(value, bool)
        fits = fits and value == value
        word = "it must be a whole number" if hint is int else "it must be a number"
        return "" if fits else word
    if origin is Literal:
        return "" if value in inner else f"choose from: {', '.join(map(str, inner))}"
    if origin is tuple:
        return "" if isinstance(value, list | tuple) else "it must be a list"
    return "" if isinstance(value, Mapping) else "it must be an object"


def _names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))

"""The rows of a file, one after the other: JSONL, a JSON list, CSV or Parquet.

Files come from elsewhere: every size is bounded before it is read, and whatever breaks
is one line that names the row.
"""

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

from trained.errors import BadInput, unknown

from .row import FIELDS

LONGEST_LINE = 16 * 2**20
"""Bytes of a line: longer ones are refused before they are read to their end."""

LARGEST_LIST = 2**28
"""Bytes of a `.json` file."""

ROWS_AT_ONCE = 256
"""Rows of a Parquet file that are held at a time."""

Entry = tuple[str, object]
"""(the row as a reader finds it, what stands there)"""


def entries(file: Path, columns: Mapping[str, str]) -> Iterator[Entry]:
    """The rows of a file, by the format that its name says.

    Args:
        file: `.jsonl`, `.json` (a list), `.csv` or `.parquet`.
        columns: the file's name of a column -> ours.
    """
    suffix = file.suffix.lower()
    if suffix not in READERS:
        raise unknown("format of a dataset", suffix or file.name, READERS)
    for where, entry in READERS[suffix](file):
        yield f"{file.name}: {where}", _renamed(entry, columns, f"{file.name}: {where}")


def columns_of(
    assignments: Sequence[str], fields: Sequence[str] = FIELDS
) -> dict[str, str]:
    """`old=new`, several times, as the new name of every old one.

    Args:
        assignments: as they are given.
        fields: the new names that there are.

    >>> columns_of(["question=prompt", "target=answer"])
    {'question': 'prompt', 'target': 'answer'}
    """
    found: dict[str, str] = {}
    for assignment in assignments:
        old, sign, new = assignment.partition("=")
        if not sign or not old or old in found or new in found.values():
            raise BadInput(f"--columns {assignment}: give old=new, each name once")
        if new not in fields:
            raise unknown("field", new, fields)
        found[old] = new
    return found


def _renamed(entry: object, columns: Mapping[str, str], where: str) -> object:
    if not columns or not isinstance(entry, dict):
        return entry
    missing = [old for old in columns if old not in entry]
    if missing:
        have = ", ".join(str(name)[:40] for name in list(entry)[:20]) or "none"
        raise BadInput(f"{where}: no column {missing[0]!r} to rename; it has {have}")
    kept = {name: v for name, v in entry.items() if name not in columns.values()}
    return {columns.get(name, name): value for name, value in kept.items()} | {
        new: entry[old] for old, new in columns.items()
    }


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    """The lines of a text and their numbers, none of them endless."""
    with file.open("rb") as stream:
        for number in count(1):
            line = stream.readline(LONGEST_LINE + 1)
            if not line:
                return
            if len(line) > LONGEST_LINE:
                raise BadInput(
                    f"{file.name}: line {number} has more than {LONGEST_LINE} bytes"
                )
            try:
                yield number, line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError:
                raise BadInput(f"{file.name}: line {number} is not UTF-8") from None


def _jsonl(file: Path) -> Iterator[Entry]:
    for number, line in _lines(file):
        if line.strip():
            yield f"line {number}", _parsed(line, f"{file.name}: line {number}")


def _json(file: Path) -> Iterator[Entry]:
    """A list of rows; read as a whole, so it is bounded as a whole."""
    if file.stat().st_size > LARGEST_LIST:
        raise BadInput(
            f"{file.name}: more than {LARGEST_LIST} bytes; write it as JSONL"
        )
    found = _parsed("".join(line for _, line in _lines(file)), file.name)
    if not isinstance(found, list):
        raise BadInput(f"{file.name}: a .json file is a list of rows")
    yield from ((f"row {number}", entry) for number, entry in enumerate(found, 1))


def _parsed(text: str, where: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_once, parse_constant=_refused)
    except (ValueError, RecursionError) as error:
        # What the parser says of a deep nesting or a long number is long itself.
        reason = " ".join(str(error).split())[:80]
        raise BadInput(f"{where}: not JSON: {reason}") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice in one object")
    return found


def _refused(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no value")


def _csv(file: Path) -> Iterator[Entry]:
    """Cells are texts; roles and lists of answers are written as JSON in theirs."""
    reader = csv.DictReader(_record_lines(file), restkey="", strict=True)
    while True:
        try:
            entry = next(reader, None)
        except csv.Error as error:
            line = reader.reader.line_num
            raise BadInput(f"{file.name}: line {line}: {error}") from None
        if entry is None:
            return
        where = f"line {reader.line_num}"
        if "" in entry:
            raise BadInput(f"{file.name}: {where}: more cells than the first line has")
        yield where, _cells(entry, f"{file.name}: {where}")


def _record_lines(file: Path) -> Iterator[str]:
    """Lines for the CSV reader; a lost quote does not make it read on for ever."""
    csv.field_size_limit(LONGEST_LINE)
    for _, line in _lines(file):
        yield line


def _cells(entry: Mapping[str, str | None], where: str) -> dict[str, Any]:
    found: dict[str, Any] = {name: text or None for name, text in entry.items()}
    if found.get("roles"):
        found["roles"] = _parsed(found["roles"], f"{where}: field 'roles'")
    answer = found.get("answer")
    if answer and answer.startswith('["'):
        found["answer"] = _parsed(answer, f"{where}: field 'answer'")
    return found


def _parquet(file: Path) -> Iterator[Entry]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = 0
    try:
        with pq.ParquetFile(file) as stored:
            for batch in stored.iter_batches(ROWS_AT_ONCE, use_threads=False):
                for entry in batch.to_pylist(maps_as_pydicts="strict"):
                    number += 1
                    yield f"row {number}", _with_roles(entry, f"{file.name}: {number}")
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        if isinstance(error, BadInput | FileNotFoundError | PermissionError):
            raise
        reason = " ".join(str(error).split())[:120]
        raise BadInput(f"{file.name}: not a whole Parquet file: {reason}") from None


def _with_roles(entry: dict[str, Any], where: str) -> dict[str, Any]:
    """Roles may be a struct, a map, or JSON in a text."""
    roles = entry.get("roles")
    if isinstance(roles, str):
        entry["roles"] = _parsed(roles, f"{where}: field 'roles'")
    return entry


READERS: dict[str, Callable[[Path], Iterator[Entry]]] = {
    ".jsonl": _jsonl,
    ".json": _json,
    ".csv": _csv,
    ".parquet": _parquet,
}

"""Finite group actions, by name, by generators or by a table.

An action is a table [g, y] -> g(y) whose rows are permutations of the values that
together form a group. Written as text, so that a command line can ask for any:

    C6              the cyclic group on its 6 elements (simply transitive)
    S5, A5, D5      all permutations, even permutations, the dihedral group of 5 points
    S3reg           any of these acting on itself by left multiplication
    C2xC3           a direct product acting on pairs
    generators:1.2.0.3/1.0.2.3      what these permutations of 4 points generate
    table:0.1.2/1.2.0/2.0.1         every permutation written out
    file:my.json                    the same as a JSON list of rows

Free of torch, so that a configuration is refused at once.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from itertools import permutations, product
from math import factorial
from pathlib import Path

from trained.errors import BadInput, unknown

Permutation = tuple[int, ...]
"""The image of every point."""

LARGEST = 50_000
"""Most entries of a table; all permutations of 7 points have 35280."""

LARGEST_FILE = 10**6
"""Bytes of a table that can be meant: a device or a wrong file is refused unread."""

FORMS = (
    "C6, S5, A4, D4 and the like, S3reg, C2xC3, generators:1.2.0/1.0.2,"
    " table:0.1/1.0, file:table.json"
)

_NAME = re.compile(r"([CSAD])([1-9]\d*)(reg)?")


@dataclass(frozen=True)
class Action:
    """A group acting on values 0 to n - 1."""

    name: str
    table: tuple[Permutation, ...]
    """[g, y] -> g(y)."""

    @property
    def slug(self) -> str:
        """The name, or a short stand-in for a long text, fit for a file name."""
        if ":" not in self.name:
            return self.name
        digest = hashlib.blake2b(self.name.encode(), digest_size=3).hexdigest()
        return f"{self.name.partition(':')[0]}-{digest}"

    @property
    def n_actions(self) -> int:
        """Elements of the group."""
        return len(self.table)

    @property
    def n_values(self) -> int:
        """Values that are acted on."""
        return len(self.table[0])

    @property
    def is_transitive(self) -> bool:
        """Whether every value can be reached from every other."""
        return len({row[0] for row in self.table}) == self.n_values

    @property
    def is_simply_transitive(self) -> bool:
        """Whether exactly one action leads from each value to each other.

        >>> action("C6").is_simply_transitive, action("S5").is_simply_transitive
        (True, False)
        """
        return self.is_transitive and self.n_actions == self.n_values

    @property
    def guess(self) -> float:
        """Accuracy of the best guess of g(y) from y alone: 1 / n_values if transitive.

        >>> action("S5").guess, action("generators:1.0.2").guess
        (0.2, 0.6666666666666666)
        """
        best = [
            max(Counter(column).values()) / self.n_actions
            for column in zip(*self.table, strict=True)
        ]
        return sum(best) / len(best)

    @property
    def distractor_rate(self) -> float:
        """Chance that a random action sends a random value where another one did.

        The mean over y of sum_j (share of actions with g(y) = j)^2: 1 / n_values for
        a transitive action, so 1/6 for C6 and 1/5 for S5.
        """
        chances = [
            sum((count / self.n_actions) ** 2 for count in Counter(column).values())
            for column in zip(*self.table, strict=True)
        ]
        return sum(chances) / len(chances)


@cache
def action(text: str) -> Action:
    """The action that a text describes; see the top of this file for the forms."""
    kind, separator, body = text.partition(":")
    if not separator:
        return Action(text, _named(text))
    if kind == "table":
        return Action(text, _checked(_rows(body, text), text))
    if kind == "generators":
        return Action(text, _generated(_rows(body, text), text))
    if kind == "file":
        raise BadInput(f"{text}: a file is read once, by `spelled`")
    raise unknown("group action", text, FORMS)


def spelled(text: str) -> str:
    """The text with a file's table written out, so that a stored run needs no file."""
    if not text.startswith("file:"):
        return text
    path = Path(text.removeprefix("file:"))
    if path.exists() and not (path.is_file() and path.stat().st_size <= LARGEST_FILE):
        raise BadInput(f"{text}: not a regular file of at most {LARGEST_FILE} bytes")
    try:
        rows = json.loads(path.read_text())
        lines = [".".join(str(int(image)) for image in row) for row in rows]
    except (OSError, ValueError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise BadInput(
            f"{text}: not a JSON list of rows of numbers: {reason}"
        ) from None
    return "table:" + "/".join(lines)


def _named(text: str) -> tuple[Permutation, ...]:
    parts = [_factor(part, text) for part in text.split("x")]
    table = parts[0]
    for part in parts[1:]:
        n_actions, n_values = len(table) * len(part), len(table[0]) * len(part[0])
        _require_size(n_actions, n_values, text)
        table = _direct_product(table, part)
    return table


def _factor(text: str, whole: str) -> tuple[Permutation, ...]:
    match = _NAME.fullmatch(text)
    if match is None:
        raise unknown("group action", whole, FORMS)
    family, n, regular = match[1], int(match[2]), bool(match[3])
    # Refused before a factorial list is built.
    many = factorial(min(n, 20))
    order = {"C": n, "D": 2 * n, "S": many, "A": max(many // 2, 1)}[family]
    _require_size(order, order if regular else n, whole)
    if family == "D" and n < 3:
        raise BadInput(f"group action '{whole}': D needs at least 3 points")
    table = _family(family, n)
    return _regular(table) if regular else table


def _family(family: str, n: int) -> tuple[Permutation, ...]:
    if family == "C":
        return tuple(tuple((g + y) % n for y in range(n)) for g in range(n))
    if family == "D":
        turns = [tuple((g + y) % n for y in range(n)) for g in range(n)]
        flips = [tuple((g - y) % n for y in range(n)) for g in range(n)]
        return (*turns, *flips)
    every = permutations(range(n))
    return tuple(p for p in every if family == "S" or _is_even(p))


def _is_even(permutation: Permutation) -> bool:
    n = len(permutation)
    inversions = sum(
        permutation[i] > permutation[j] for i in range(n) for j in range(i + 1, n)
    )
    return inversions % 2 == 0


def _regular(table: tuple[Permutation, ...]) -> tuple[Permutation, ...]:
    """The group acting on itself, g(h) = g after h."""
    index = {row: place for place, row in enumerate(table)}
    return tuple(tuple(index[_after(g, h)] for h in table) for g in table)


def _direct_product(
    first: tuple[Permutation, ...], second: tuple[Permutation, ...]
) -> tuple[Permutation, ...]:
    """(g, h)(y, z) = (g(y), h(z)), with the pair (y, z) numbered y * n_z + z."""
    n = len(second[0])
    return tuple(
        tuple(y * n + z for y in g for z in h) for g, h in product(first, second)
    )


def _after(g: Permutation, h: Permutation) -> Permutation:
    return tuple(g[image] for image in h)


def _generated(
    generators: tuple[Permutation, ...], text: str
) -> tuple[Permutation, ...]:
    found = {tuple(range(len(generators[0])))}
    new = set(found)
    while new:
        new = {_after(g, h) for g in generators for h in new} - found
        found |= new
        _require_size(len(found), len(generators[0]), text)
    return tuple(sorted(found))


def _checked(rows: tuple[Permutation, ...], text: str) -> tuple[Permutation, ...]:
    """The rows, if they are the permutations of a group action."""
    _require_size(len(rows), len(rows[0]), text)
    counts = Counter(rows)
    missing = next((p for p in _products(counts) if p not in counts), None)
    if missing is not None:
        raise BadInput(
            f"'{_short(text)}' is not a group action: two rows compose to"
            f" {'.'.join(map(str, missing))}, which is no row"
        )
    if len(set(counts.values())) > 1:
        raise BadInput(
            f"'{_short(text)}' is not a group action: some rows are repeated more"
            " often than others"
        )
    return rows


def _products(rows: Iterable[Permutation]) -> Iterable[Permutation]:
    """All compositions; a finite set of permutations closed under them is a group."""
    distinct = list(rows)
    return (_after(g, h) for g in distinct for h in distinct)


def _rows(body: str, text: str) -> tuple[Permutation, ...]:
    try:
        rows = tuple(
            tuple(int(image) for image in row.split(".")) for row in body.split("/")
        )
    except ValueError:
        raise BadInput(
            f"'{_short(text)}': write rows like 1.2.0/1.0.2, images of 0, 1, 2, .."
        ) from None
    points = list(range(len(rows[0])))
    bad = next((row for row in rows if sorted(row) != points), None)
    if bad is not None:
        raise BadInput(
            f"'{_short(text)}' is not a group action: row {'.'.join(map(str, bad))} is"
            f" no permutation of 0 to {len(points) - 1}"
        )
    return rows


def _require_size(n_actions: int, n_values: int, text: str) -> None:
    if n_actions * n_values > LARGEST:
        raise BadInput(
            f"group action '{_short(text)}' is too large: at most {LARGEST} pairs of an"
            " action and a value"
        )


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."

"""What the numbers of a configuration must be."""

from collections.abc import Sequence
from itertools import pairwise
from math import isfinite, log
from typing import Any

from trained.config import require


def sized(text: str) -> tuple[str, int]:
    """A task and its n, written `majority-4@512`.

    >>> sized("majority-4@512")
    ('majority-4', 512)
    """
    name, _, n = text.rpartition("@")
    require(bool(name) and n.isdigit() and int(n) >= 2, f"'{text}': write TASK@N")
    return name, int(n)


def nearest(sizes: Sequence[int], wanted: int) -> int:
    """The size nearest to the wanted one, by ratio.

    >>> nearest((16, 64, 1024), 200)
    64
    """
    return min(sizes, key=lambda n: abs(log(n / wanted)))


def rising(group: Any, *names: str, empty: bool = False) -> None:
    """Some tuples hold positive finite numbers that rise."""
    for name in names:
        given = getattr(group, name)
        require(empty or bool(given), f"{name} is empty")
        sound = all(isfinite(x) and x > 0 for x in given)
        require(sound, f"{name}={given}: must be positive and finite")
        ordered = all(a < b for a, b in pairwise(given))
        require(ordered, f"{name}={given}: must rise")


def ranges(group: Any, *names: str) -> None:
    """Some pairs are the ends of ranges of finite numbers, from 0 on."""
    for name in names:
        given = getattr(group, name)
        sound = len(given) == 2 and 0 <= given[0] < given[1] and isfinite(given[1])
        require(sound, f"{name}={given}: two rising numbers, from 0 on")


def positive(group: Any, *names: str) -> None:
    """Some numbers are positive and finite."""
    for name in names:
        number = getattr(group, name)
        sound = isfinite(number) and number > 0
        require(sound, f"{name}={number}: must be positive and finite")


def at_least_one(group: Any, *names: str) -> None:
    """Some counts, where they are given, are at least 1."""
    for name in names:
        count = getattr(group, name)
        require(count is None or count >= 1, f"{name}={count}: at least 1")

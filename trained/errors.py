"""What the command prints as one line: errors that a user can mend, or repeat."""

from collections.abc import Callable
from difflib import get_close_matches
from typing import TypeVar

Found = TypeVar("Found")

EASILY_READ = 12
"""Among so many choices the right one is found without a hint."""


class BadInput(ValueError):
    """A wrong name, value, size or file; the message is one line, with the remedy."""


class NothingChanged(BadInput):
    """An edit that left everything as it was: an ablation of nothing."""


def or_intact(edited: Callable[[], Found], intact: Callable[[], Found]) -> Found:
    """What an edit gives; the intact value where it finds nothing to change.

    No effect is what an edit shows of a model without the mechanism, rather than no
    value.
    """
    try:
        return edited()
    except NothingChanged:
        return intact()


class Incomplete(RuntimeError):
    """Part of some work failed on the way; the rest is stored, and repeating goes on.

    The message is one line that names what failed.
    """


class Lost(Incomplete):
    """The process or the machine that did the work is gone."""


class Busy(Incomplete):
    """Another process is at the same work."""


def unknown(what: str, given: object, valid: object) -> BadInput:
    """The error for a name that is not among the valid ones.

    Args:
        what: the kind of thing, as in "study" or "config key".
        given: the offending value.
        valid: an iterable of the valid ones, or a phrase that describes them.
    """
    hint = ""
    if isinstance(valid, str):
        choices = valid
    else:
        assert hasattr(valid, "__iter__")
        names = [str(item) for item in valid]
        choices = ", ".join(names)
        hint = _nearest(str(given), names) if len(names) > EASILY_READ else ""
    return BadInput(f"unknown {what} '{given}'{hint}; choose from: {choices}")


def _nearest(given: str, names: list[str]) -> str:
    """What may have been meant: a name that ends so, or one spelled alike."""
    ending = [name for name in names if name.endswith(f".{given}")]
    near = ending or get_close_matches(given, names, n=1)
    return f" (did you mean '{near[0]}'?)" if near else ""


def in_a_line(error: BaseException) -> str:
    """What an error says, on one line."""
    text = " ".join(str(error).split())
    if isinstance(error, BadInput | Incomplete | OSError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__

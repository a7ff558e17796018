"""How a prompt and what is written after it are cut, and which tokens are followed.

Free of torch, so that a bad request is refused at once.
"""

import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trained.errors import BadInput

SIGNALS = ("attention", "logit", "lens")
DEFAULT_SIGNALS = ("attention", "logit")

SENTENCES = r"\s*\n\s*|(?<=[.!?])(?<!^\d[.])\s+"
"""Line ends and sentence ends, but not behind the number of an item ("1. First")."""

Extents = dict[str, tuple[int, int]]
"""Role -> where it begins and ends, in characters."""


@dataclass(frozen=True)
class Outline:
    """What is told apart.

    Attributes:
        keys: phrases of the prompts, or roles of theirs, that are looked at, or names
            for some: `{"place": "the house"}`; None cuts the prompts as it does steps.
        targets: tokens that are followed beside those that are written.
        steps: a regular expression of what lies between two steps.
        roles: a regular expression whose named groups are the roles of a step, such as
            `(?P<clause>.*) is (?P<state>.*)`; "" for none.
    """

    keys: Mapping[str, str] | Sequence[str] | None = None
    targets: Sequence[str] = ()
    steps: str = SENTENCES
    roles: str = ""

    def __post_init__(self) -> None:
        for name in ("keys", "targets"):
            if isinstance(getattr(self, name), str):
                raise BadInput(f"{name} are several texts: give a list")
        if _compiled("steps", self.steps).search(""):
            raise BadInput(f"steps {self.steps!r} is found in nothing at all")
        if self.roles and not _compiled("roles", self.roles).groupindex:
            raise BadInput(f"roles {self.roles!r} has no groups such as (?P<state>...)")

    @property
    def phrases(self) -> Mapping[str, str]:
        """What is looked at in the prompts, by name."""
        keys = self.keys or ()
        return keys if isinstance(keys, Mapping) else {key: key for key in keys}

    def cuts(self, text: str) -> list[int]:
        r"""Where what lies between two steps ends, in characters.

        >>> Outline().cuts("\nOne. Two\nThree")
        [6, 10]
        """
        found = _compiled("steps", self.steps).finditer(text)
        return [cut.end() for cut in found if text[: cut.start()].strip()]

    def numbers(self, text: str, ends: Sequence[int]) -> list[int]:
        r"""The step of every token, counted from 0.

        A token belongs to the step that holds its last character, and what lies between
        two steps to the first of them. So it is known as soon as a token is written.

        >>> Outline().numbers("One. Two\nThree", [3, 4, 8, 9, 14])
        [0, 0, 1, 1, 2]

        Args:
            text: what was written.
            ends: where each token ends in it.
        """
        cuts = self.cuts(text)
        passed = [bisect_left(cuts, end) for end in ends]
        # A token may hold a whole step, or several cuts.
        known = {n: number for number, n in enumerate(dict.fromkeys(passed))}
        return [known[n] for n in passed]

    def extents(self, step: str) -> Extents:
        r"""Where the roles of a step are in its text; those that it lacks are left out.

        >>> Outline(roles=r"(?P<clause>.+) is (?P<state>\w+)").extents("b is red.")
        {'clause': (0, 1), 'state': (5, 8)}
        """
        found = _compiled("roles", self.roles).search(step) if self.roles else None
        if found is None:
            return {}
        spans = {name: found.span(name) for name in found.groupdict()}
        return {name: span for name, span in spans.items() if span[0] < span[1]}


def _compiled(name: str, pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern, re.MULTILINE)
    except re.error as error:
        raise BadInput(
            f"{name} {pattern!r} is no regular expression: {error}"
        ) from error

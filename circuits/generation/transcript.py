"""One prompt and what is written after it, cut into steps while it is written."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from .outline import Outline

Columns = tuple[int, ...]
Mark = tuple[str, Columns]
"""The name of a span, and columns that now belong to it."""

FIRST, REST = "first", "rest"
"""The first token, where idle attention rests; what of a prompt has no name."""


@dataclass(frozen=True)
class Step:
    """A step of what was written; tokens are counted from the first one written.

    Attributes:
        text: without what separates it from the next one.
        tokens: all of its tokens.
        roles: the tokens that hold a part of each of its roles.
    """

    text: str
    tokens: range
    roles: Mapping[str, Columns]


@dataclass
class Transcript:
    """What is written after one prompt.

    Attributes:
        tokenizer: gives the text.
        outline: how it is cut.
        start: the column of the first token that is written.
        tokens: those written so far.
        numbers: the step of each, from 0.
    """

    tokenizer: Any
    outline: Outline
    start: int
    tokens: list[int] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    _ends: list[int] = field(default_factory=list)
    _text: str = ""

    def add(self, token: int) -> Iterator[Mark]:
        """Write a token; which spans have now which new columns?

        The roles of a step are known when the next one begins.
        """
        self.tokens.append(token)
        self._text = self.tokenizer.decode(self.tokens, skip_special_tokens=True)
        self._ends.append(len(self._text))
        number = self.outline.numbers(self._text, self._ends)[-1]
        if self.numbers and number > self.numbers[-1]:
            for role, tokens in self.step(self.numbers[-1]).roles.items():
                columns = tuple(self.start + token for token in tokens)
                yield role_name(self.numbers[-1], role), columns
        self.numbers.append(number)
        yield step_name(number), (self.start + len(self.tokens) - 1,)

    def step(self, number: int) -> Step:
        """A step, as far as it is written."""
        first = self.numbers.index(number)
        tokens = range(first, first + self.numbers.count(number))
        begin = self._ends[first - 1] if first else 0
        ends = [self._ends[token] - begin for token in tokens]
        text = self._text[begin : begin + ends[-1]]
        holding = list(zip(tokens, [0, *ends[:-1]], ends, strict=True))
        roles = {
            role: tuple(token for token, a, b in holding if a < stop and b > start)
            for role, (start, stop) in self.outline.extents(text).items()
        }
        return Step(text.strip(), tokens, roles)

    @property
    def steps(self) -> tuple[Step, ...]:
        """All steps."""
        return tuple(self.step(number) for number in dict.fromkeys(self.numbers))


def step_name(number: int) -> str:
    """How the span of a step is called; people count from 1."""
    return f"step {number + 1}"


def role_name(number: int, role: str) -> str:
    """How a role of a step is called."""
    return f"{step_name(number)} {role}"


def prompt_marks(
    named: Mapping[str, Sequence[int]], columns: Sequence[int]
) -> Iterator[Mark]:
    """The spans of a prompt: its first token, what has a name, the rest.

    Every column is in one of them, and in several only if names overlap.

    Args:
        named: columns by name.
        columns: of the whole prompt.
    """
    taken = {column for several in named.values() for column in several}
    others = [column for column in columns if column not in taken]
    parts = {
        FIRST: [column for column in others if column == columns[0]],
        **named,
        REST: [column for column in others if column != columns[0]],
    }
    yield from ((name, tuple(several)) for name, several in parts.items() if several)


class Spans:
    """Which columns belong to which span, prompt by prompt; more may come.

    Attributes:
        table: True at the columns of a span.
        names: of the spans of each prompt, in the order of the table.
    """

    def __init__(self, n_prompts: int, n_columns: int, device: torch.device) -> None:
        size = (n_prompts, 1, n_columns)
        self.table = torch.zeros(size, dtype=torch.bool, device=device)
        self.names: list[list[str]] = [[] for _ in range(n_prompts)]

    def mark(self, prompt: int, mark: Mark) -> None:
        """Let columns belong to a span of a prompt."""
        name, columns = mark
        names = self.names[prompt]
        if name not in names:
            names.append(name)
        if len(names) > self.table.shape[1]:
            self.table = torch.cat([self.table, torch.zeros_like(self.table)], 1)
        self.table[prompt, names.index(name), list(columns)] = True

    def columns(self, prompt: int) -> dict[str, Columns]:
        """The columns of every span of a prompt."""
        return {
            name: tuple(self.table[prompt, place].nonzero()[:, 0].tolist())
            for place, name in enumerate(self.names[prompt])
        }

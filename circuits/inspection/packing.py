"""Items in batches of like length, with the columns of what is read off them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from circuits.models.language_model import LanguageModel, Side
from trained.task import Batch

from .encoding import Item, Tokens

Thing = TypeVar("Thing")


@dataclass(frozen=True)
class Read:
    """One token of an answer: read at a position, after what stands there.

    Attributes:
        answer: which of the accepted ones.
        token: which of its tokens.
        target: the token.
    """

    answer: int
    token: int
    target: int


@dataclass(frozen=True)
class Teaching:
    """A prompt, followed by all but the last token of an answer (teacher forcing).

    Attributes:
        item: the prompt.
        prefix: what follows it.
        reads: the tokens of answers that are read off it.
        main: whether the other signals are read off it as well: once for each prompt.
    """

    item: Item
    prefix: Tokens = ()
    reads: tuple[Read, ...] = ()
    main: bool = True

    @property
    def tokens(self) -> Tokens:
        """All that the model reads."""
        return self.item.tokens + self.prefix


def teachings(items: Sequence[Item], *, answers: bool) -> list[Teaching]:
    """What the model reads: one for every beginning that the answers of an item have.

    What begins another is read off that one.

    Args:
        items: the prompts.
        answers: whether answers are read at all.
    """
    found: list[Teaching] = []
    for item in items:
        reads: dict[Tokens, list[Read]] = {}
        for number, answer in enumerate(item.answers if answers else ()):
            own = [Read(number, place, token) for place, token in enumerate(answer)]
            reads.setdefault(answer[:-1], []).extend(own)
        for prefix in sorted(reads, key=len):
            longer = (p for p in reads if p != prefix and p[: len(prefix)] == prefix)
            for other in islice(longer, 1):
                reads[other] += reads.pop(prefix)
        several = list(reads.items()) or [((), [])]
        found += [
            Teaching(item, prefix, tuple(own), main=place == 0)
            for place, (prefix, own) in enumerate(several)
        ]
    return found


def packed(
    things: Sequence[Thing], length: Callable[[Thing], int], room: int
) -> Iterator[list[Thing]]:
    """Things in batches of like length: no batch has more tokens than there is room.

    >>> list(packed(["aaa", "b", "cc", "d"], len, 4))
    [['b', 'd'], ['cc'], ['aaa']]
    """
    waiting: list[Thing] = []
    for thing in sorted(things, key=length):
        if waiting and length(thing) * (len(waiting) + 1) > room:
            yield waiting
            waiting = []
        waiting.append(thing)
    if waiting:
        yield waiting


@dataclass(frozen=True, eq=False)
class Pack:
    """Token rows of several lengths as one batch.

    Attributes:
        batch: without targets and roles.
        starts: the column of every row's first token.
    """

    batch: Batch
    starts: Int[Tensor, " batch"]

    def columns(self, positions: Sequence[Sequence[int]]) -> Int[Tensor, "batch place"]:
        """The columns of positions, row by row; shorter rows repeat their last."""
        longest = max(map(len, positions))
        rows = [[*row, *[row[-1]] * (longest - len(row))] for row in positions]
        found = torch.tensor(rows, dtype=torch.long, device=self.starts.device)
        return found.reshape(len(rows), longest) + self.starts[:, None]

    def sets(
        self, positions: Sequence[Sequence[Sequence[int]]]
    ) -> Bool[Tensor, "batch set key"]:
        """True at the columns of sets of positions, row by row; sets may be empty."""
        n_rows, length = self.batch.tokens.shape
        found = torch.zeros(n_rows, len(positions[0]), length, dtype=torch.bool)
        starts = self.starts.tolist()
        for row, own in enumerate(positions):
            for number, places in enumerate(own):
                found[row, number, [starts[row] + place for place in places]] = True
        return found.to(self.starts.device)


def pack(model: LanguageModel, rows: Sequence[Tokens], *, side: Side = "left") -> Pack:
    """Rows of tokens as one batch, padded on a side."""
    length = max(map(len, rows))
    tokens = torch.full((len(rows), length), model.tokenizer.pad_token_id or 0)
    mask = torch.zeros_like(tokens, dtype=torch.bool)
    starts = [length - len(row) if side == "left" else 0 for row in rows]
    for place, (row, start) in enumerate(zip(rows, starts, strict=True)):
        tokens[place, start : start + len(row)] = torch.tensor(row)
        mask[place, start : start + len(row)] = True
    batch = Batch(tokens, torch.full((len(rows),), -1), mask).to(model.device)
    return Pack(batch, torch.tensor(starts, device=model.device))

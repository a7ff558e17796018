"""Programs whose names and values are any symbols, as prompts.

Worked example: names (fox, arm), values (tin, oak), the first one printed, give
`fox="tin";arm="oak";print(fox)` and, after a marker such as a new line, the answer tin.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal

import torch
from jaxtyping import Int
from torch import Tensor

from circuits.models.language_model import LanguageModel
from circuits.models.prompts import Piece, opening, spanned
from trained.errors import BadInput
from trained.task import Batch

Form = Literal["values", "signs", "repeated"]
"""`x="u";y="v";print(x)` (Figure 2), `x=1;y=-1;print(x)` (Figure 1), or the assignments
twice and a third time up to the value: `x="u";y="v";x="u";y="v";x="`."""

MARKERS: dict[Form, tuple[str, ...]] = {
    "values": ("\n", "\n# Output:\n", ' # prints "'),
    "signs": ("\n", "\n# Output:\n"),
}
"""What may stand between a program and its output; repetitions need nothing."""
SIGNS = ("1", "-")
"""What the outputs 1 and -1 begin with."""


@dataclass(frozen=True)
class Words:
    """Symbols to write programs with, each one token of the vocabulary."""

    frequent: tuple[str, ...]
    rare: tuple[str, ...]


@dataclass(frozen=True)
class Program:
    """Two assignments and a print.

    Attributes:
        names: the two names that are assigned.
        values: what is assigned to them.
        printed: which of the names is printed.
        stranger: a name that is printed in its place and was never assigned; or none.
    """

    names: tuple[str, str]
    values: tuple[str, str]
    printed: int
    stranger: str = ""

    @property
    def right(self) -> str:
        """The value that is printed."""
        return self.values[self.printed]

    @property
    def wrong(self) -> str:
        """The other value."""
        return self.values[1 - self.printed]


@dataclass(frozen=True)
class Chosen:
    """What was settled on programs that are not judged."""

    words: Words
    markers: dict[Form, str]
    head: tuple[int, int]


@dataclass(frozen=True)
class Drawn:
    """The programs of one seed."""

    frequent: list[Program]
    rare: list[Program]
    strangers: list[Program]
    """The frequent ones, printing a name that was never assigned."""
    rare_strangers: list[Program]

    @property
    def all(self) -> list[Program]:
        """Programs of both kinds, frequent words first."""
        return [*self.frequent, *self.rare]


def words_of(model: LanguageModel, n_words: int) -> Words:
    """The most frequent and the rarest plain words of a model's vocabulary.

    Vocabularies are ordered by how early a token was merged, which is about how
    frequent it is.
    """
    vocabulary: dict[str, int] = model.tokenizer.get_vocab()
    plain = [w for w in vocabulary if w.isascii() and w.isalpha() and w.islower()]
    ordered = sorted((w for w in plain if 3 <= len(w) <= 9), key=vocabulary.__getitem__)

    def stays(word: str) -> bool:
        """Whether it is one token in a program."""
        pieces = model.tokenizer.encode(f'="{word}";', add_special_tokens=False)
        return vocabulary[word] in pieces

    frequent = tuple(islice(filter(stays, ordered), n_words))
    rare = tuple(islice(filter(stays, ordered[::-1]), n_words))
    if len(set(frequent) | set(rare)) < 2 * n_words:
        raise BadInput(f"the vocabulary of {model.name} has too few plain words")
    return Words(frequent, rare)


def programs(
    words: Sequence[str], n_draws: int, source: random.Random
) -> list[Program]:
    """Random programs, each twice: printing its first name and its second."""
    several = []
    for _ in range(n_draws):
        x, y, u, v = source.sample(list(words), 4)
        several += [Program((x, y), (u, v), printed) for printed in range(2)]
    return several


def with_strangers(
    several: Sequence[Program], words: Sequence[str], source: random.Random
) -> list[Program]:
    """The same programs, printing a name that was never assigned."""
    return [
        replace(
            program,
            stranger=source.choice(
                [w for w in words if w not in (*program.names, *program.values)]
            ),
        )
        for program in several
    ]


def written(
    model: LanguageModel, several: Sequence[Program], form: Form, marker: str
) -> Batch:
    """Programs as prompts; the targets are the printed values.

    Roles: own (the printed name where it is assigned), other (the other name there)
    and printed.
    """
    texts = [[opening(model), *_pieces(p, form), Piece(marker)] for p in several]
    return replace(
        spanned(model, texts), targets=answer_tokens(model, several, form)[0]
    )


def _pieces(program: Program, form: Form) -> list[Piece]:
    given = ["1", "-1"] if form == "signs" else [f'"{v}"' for v in program.values]
    roles = ["other", "other"]
    roles[program.printed] = "own"
    pieces = []
    for name, value, role in zip(program.names, given, roles, strict=True):
        pieces += [Piece(name, role), Piece(f"={value};")]
    printed = Piece(program.stranger or program.names[program.printed], "printed")
    if form == "repeated":
        again = Piece("".join(piece.text for piece in pieces))
        before = pieces[: 2 * program.printed]
        start = Piece("".join(piece.text for piece in before))
        return [*pieces, again, start, printed, Piece('="')]
    return [*pieces, Piece("print("), printed, Piece(")")]


def answer_tokens(
    model: LanguageModel, several: Sequence[Program], form: Form
) -> tuple[Int[Tensor, " batch"], Int[Tensor, " batch"]]:
    """The tokens of the right and of the wrong value."""
    vocabulary = model.tokenizer.get_vocab()
    if form == "signs":
        right = [SIGNS[program.printed] for program in several]
        wrong = [SIGNS[1 - program.printed] for program in several]
    else:
        right = [program.right for program in several]
        wrong = [program.wrong for program in several]
    tokens = [[vocabulary[word] for word in side] for side in (right, wrong)]
    first, second = torch.tensor(tokens, device=model.device)
    return first, second

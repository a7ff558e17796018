"""A text that every machine has: the sources of Python's standard library, as words.

The text is read where it is installed and never stored; `Corpus.digest` identifies it,
because it differs between Python versions. Whole files are held out. Worked example:
`return x[1]` and a line end are the words `return`, `x`, `[`, `1`, `]` and a newline.
"""

import hashlib
import re
import sys
import sysconfig
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path

import torch
from jaxtyping import Int, UInt8
from torch import Tensor

from trained.config import require

_WORD = re.compile(r"[^\W\d]\w*|\d+|\n|[^\w\s]")
_SKIPPED = {"test", "tests", "idlelib", "lib2to3", "pydoc_data", "encodings"}
"""Tests, generated tables and what is not part of every installation."""
UNKNOWN = 0
"""The token of every word outside the vocabulary."""


@dataclass(frozen=True)
class Corpus:
    """Token ids of two disjoint sets of files."""

    train: Int[Tensor, " word"]
    held_out: Int[Tensor, " held_out_word"]
    vocabulary: tuple[str, ...]
    """The word of every token from 1 on."""
    digest: UInt8[Tensor, "32"]
    """SHA-256 of all words that were read."""


def words(text: str) -> list[str]:
    """Identifiers, numbers, line ends and single signs, in order.

    >>> words("return x1[20]")
    ['return', 'x1', '[', '20', ']']
    """
    return _WORD.findall(text)


@cache
def standard_library(*, train_words: int, held_out_words: int, d_vocab: int) -> Corpus:
    """The standard library's first words in a fixed random order of its files.

    Raises:
        BadInput: The sources are not installed, or hold too few words.
    """
    files = iter(_shuffled(_sources()))
    held_out = list(islice(_words_of(files), held_out_words))
    # A file that was cut is used up: what follows comes from other files.
    train = list(islice(_words_of(files), train_words))
    require(
        len(train) == train_words,
        f"the standard library has {len(train)} words left to train on, not"
        f" {train_words}; set language=none",
    )
    return encode(train, held_out, d_vocab)


def encode(train: Sequence[str], held_out: Sequence[str], d_vocab: int) -> Corpus:
    """Words as tokens; the vocabulary is that of the training words alone."""
    counts = Counter(train)
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    vocabulary = tuple(ranked[: d_vocab - 1])
    numbers = {word: number for number, word in enumerate(vocabulary, start=1)}

    def tokens(text: Iterable[str]) -> Tensor:
        return torch.tensor([numbers.get(word, UNKNOWN) for word in text])

    text = "\x00".join([*train, "\x01", *held_out])
    digest = torch.frombuffer(
        bytearray(hashlib.sha256(text.encode()).digest()), dtype=torch.uint8
    )
    return Corpus(tokens(train), tokens(held_out), vocabulary, digest)


def _sources() -> list[tuple[str, Path]]:
    """Modules of the standard library without its tests: name and file."""
    root = Path(sysconfig.get_paths()["stdlib"])
    found = []
    for name in sorted(sys.stdlib_module_names):
        inside = sorted((root / name).rglob("*.py"))
        for file in [root / f"{name}.py", *inside]:
            relative = file.relative_to(root)
            if file.is_file() and not _SKIPPED & set(relative.parts):
                found.append((relative.as_posix(), file))
    return found


def _shuffled(sources: list[tuple[str, Path]]) -> list[Path]:
    """The files in an order that depends on their names only."""

    def place(source: tuple[str, Path]) -> str:
        return hashlib.blake2b(source[0].encode()).hexdigest()

    return [file for _, file in sorted(sources, key=place)]


def _words_of(files: Iterator[Path]) -> Iterator[str]:
    for file in files:
        yield from words(file.read_text(encoding="utf-8", errors="replace"))

"""Strings of a template task: the study's data, drawn from a model's own words.

A row is {"text" or "tokens", "label", "template", "split"}; symbols are single tokens,
and no two splits share one. There is no file that fits every vocabulary, so none comes
with the study: `drawn` writes one for a model.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from circuits.datasets.schema import Schema
from trained.config import require
from trained.errors import BadInput
from trained.symbols.tasks import task

from .settings import FineTune

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")


@dataclass(frozen=True)
class String:
    """One string with its label."""

    label: float
    split: Split
    template: str = ""
    text: str | None = None
    tokens: tuple[int, ...] | None = None
    """What is read where both are given: as text, a word may be another token."""

    def __post_init__(self) -> None:
        given = self.text is not None or self.tokens
        require(bool(given), "fields 'text' and 'tokens' are missing; give one of them")


def drawn(
    tokenizer: Any, words: Sequence[str], settings: FineTune, n: int, seed: int
) -> tuple[String, ...]:
    """Draw strings of the settings' task from words, a third of them for each split.

    Args:
        tokenizer: of the model whose words they are.
        words: each one token.
        settings: the task, and how many strings are held out.
        n: training strings.
        seed: of the draw.
    """
    source, chosen = random.Random(seed), task(settings.task, seed)
    vocabulary: dict[str, int] = tokenizer.get_vocab()
    regular = {
        symbol: tokenizer.encode(symbol, add_special_tokens=False)
        for symbol in chosen.regular
    }
    shuffled = source.sample(list(words), len(words))
    third = len(shuffled) // 3
    if third < chosen.n_wildcards:
        raise BadInput(f"{len(words)} words: too few for task {chosen.name}")
    rows = []
    for index, split in enumerate(SPLITS):
        own = shuffled[index * third : (index + 1) * third]
        for _ in range(n if split == "train" else settings.n_held_out):
            place = source.randrange(len(chosen.templates))
            template = chosen.templates[place]
            symbols = source.sample(own, len(template.wildcards))
            pairs = dict(zip(template.wildcards, symbols, strict=True))
            named = regular | {name: [vocabulary[w]] for name, w in pairs.items()}
            tokens = tuple(t for symbol in template.symbols for t in named[symbol])
            text = " ".join(pairs.get(symbol, symbol) for symbol in template.symbols)
            label = float(chosen.values[place])
            rows.append(String(label, split, str(template), text, tokens))
    return tuple(rows)


def as_prompts(rows: Sequence[String]) -> Iterator[dict[str, Any]]:
    """The strings as rows for `reasonscope scan`; a label is no text to answer with."""
    for row in rows:
        if row.text is None:
            raise BadInput("a string without 'text' cannot be scanned")
        yield {"prompt": row.text, "group": row.template or f"label {row.label:g}"}


SCHEMA = Schema(String, None, as_prompts)

"""Rows as the model sees them: tokens, and the tokens that play a role."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from circuits.datasets.row import Row
from circuits.models.language_model import LanguageModel
from trained.errors import BadInput

Tokens = tuple[int, ...]


@dataclass(frozen=True)
class Item:
    """A prompt in tokens; positions are counted from its first token.

    Attributes:
        index: of its row in the dataset.
        group: of its row.
        tokens: of the prompt.
        roles: the tokens that hold a part of each role.
        answers: the tokens of every accepted answer.
        corrupt: the tokens of the corrupt prompt.
        wrong: the first token of the corrupt answer.
    """

    index: int
    group: str | None
    tokens: Tokens
    roles: Mapping[str, Tokens]
    answers: tuple[Tokens, ...] = ()
    corrupt: Tokens | None = None
    wrong: int | None = None

    @property
    def last(self) -> int:
        """The position of the last token."""
        return len(self.tokens) - 1

    @property
    def changed(self) -> Tokens:
        """The positions at which the corrupt prompt has other tokens."""
        pairs = zip(self.tokens, self.corrupt or (), strict=True)
        return tuple(place for place, (own, other) in enumerate(pairs) if own != other)

    @property
    def compared(self) -> bool:
        """Whether there are two answers whose logits can be compared."""
        return bool(self.answers) and self.wrong is not None

    @property
    def paired(self) -> bool:
        """Whether it can be patched into its corrupt twin."""
        return self.compared and self.corrupt is not None


def encode(
    model: LanguageModel, rows: Sequence[Row], first: int, signals: Collection[str]
) -> list[Item]:
    """The items of some rows; `BadInput` names the row that does not fit the model.

    Args:
        model: whose tokenizer is used; a prompt and its answer are tokenised apart.
        rows: the rows.
        first: the index of the first of them in the dataset.
        signals: what will be measured: each asks for more of a row.
    """
    offsets = _tokenised(model, rows)
    return [
        _item(model, row, first + place, _Found(*found), signals)
        for place, (row, found) in enumerate(zip(rows, offsets, strict=True))
    ]


@dataclass(frozen=True)
class _Found:
    """What the tokenizer made of a prompt."""

    tokens: Tokens
    spans: Sequence[tuple[int, int]]


def _tokenised(
    model: LanguageModel, rows: Sequence[Row]
) -> list[tuple[Tokens, Sequence[tuple[int, int]]]]:
    texts, roles = [row.prompt for row in rows], any(row.roles for row in rows)
    try:
        found = model.tokenizer(texts, return_offsets_mapping=roles)
    except NotImplementedError:
        raise BadInput(
            f"the tokenizer of {model.name} does not say which characters a token "
            "holds: leave out roles"
        ) from None
    spans = found["offset_mapping"] if roles else [()] * len(rows)
    return [(tuple(r), s) for r, s in zip(found["input_ids"], spans, strict=True)]


def _item(
    model: LanguageModel, row: Row, index: int, found: _Found, signals: Collection[str]
) -> Item:
    answers = tuple(_answer(model, row, text, "answer") for text in row.answers)
    corrupt = None if row.corrupt is None else _tokens(model, row.corrupt)
    wrong = row.corrupt_answer
    item = Item(
        index=index,
        group=row.group,
        tokens=found.tokens,
        roles={name: _inside(row, name, found) for name in row.roles},
        answers=answers,
        corrupt=corrupt,
        wrong=None
        if wrong is None
        else _answer(model, row, wrong, "corrupt_answer")[0],
    )
    _require_room(model, row, item)
    if "patching" in signals and item.corrupt is not None:
        _require_twin(row, item)
    if {"patching", "attribution"} & {*signals} and item.wrong is not None:
        _require_two_answers(row, item)
    return item


def _tokens(model: LanguageModel, text: str) -> Tokens:
    return tuple(model.tokenizer(text)["input_ids"])


def _answer(model: LanguageModel, row: Row, text: str, field: str) -> Tokens:
    found: Any = model.tokenizer.encode(text, add_special_tokens=False)
    if not found:
        raise BadInput(f"{row.where}: field '{field}' has no token of {model.name}")
    return tuple(found)


def _inside(row: Row, name: str, found: _Found) -> Tokens:
    start, end = row.roles[name]
    places = [i for i, (a, b) in enumerate(found.spans) if a < end and b > start]
    if not places:
        raise BadInput(f"{row.where}: field 'roles': no token holds {json.dumps(name)}")
    return tuple(places)


def _require_room(model: LanguageModel, row: Row, item: Item) -> None:
    if not item.tokens:
        raise BadInput(f"{row.where}: field 'prompt' has no token of {model.name}")
    longest = len(item.tokens) + max((len(a) - 1 for a in item.answers), default=0)
    if longest > model.n_ctx:
        raise BadInput(
            f"{row.where}: field 'prompt' has {longest} tokens with its answer; "
            f"{model.name} reads at most {model.n_ctx}"
        )


def _require_twin(row: Row, item: Item) -> None:
    assert item.corrupt is not None
    if len(item.corrupt) != len(item.tokens):
        raise BadInput(
            f"{row.where}: field 'corrupt' has {len(item.corrupt)} tokens, the prompt "
            f"{len(item.tokens)}: patching needs as many"
        )
    if not item.changed:
        raise BadInput(f"{row.where}: field 'corrupt' is the same as the prompt")
    if not item.compared:
        raise BadInput(
            f"{row.where}: fields 'answer' and 'corrupt_answer' are needed beside "
            "'corrupt' for patching"
        )


def _require_two_answers(row: Row, item: Item) -> None:
    if not item.answers:
        raise BadInput(f"{row.where}: field 'answer' is needed beside 'corrupt_answer'")
    if item.answers[0][0] == item.wrong:
        raise BadInput(
            f"{row.where}: field 'corrupt_answer' begins with the same token as the "
            "answer: there is nothing to compare"
        )

"""Prompts in named pieces: which tokens are the first subject, the third clause?

A name may be several tokens long and the same word may occur twice, so positions are
kept from where a piece was written. Only for a quick look (`named`) is a phrase
searched for afterwards.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from trained.errors import BadInput, unknown
from trained.task import Batch

from .language_model import LanguageModel


@dataclass(frozen=True)
class Piece:
    """A part of a prompt; its tokens become the positions of the role, if it has one.

    Pieces with one role count as one span.
    """

    text: str
    role: str = ""


Pieces = Sequence[Piece]
"""A prompt, from its beginning to its end."""


def opening(model: LanguageModel) -> Piece:
    """What a prompt should begin with: a token that may soak up idle attention.

    The tokenizer's own first token where it has one and does not add it by itself, else
    nothing. Without it the prompt's first word would soak up that attention.
    """
    tokenizer = model.tokenizer
    first = tokenizer("a")["input_ids"][0]
    if tokenizer.bos_token is None or first == tokenizer.bos_token_id:
        return Piece("")
    return Piece(tokenizer.bos_token)


def spanned(
    model: LanguageModel,
    texts: Sequence[Pieces],
    answers: Sequence[str] | None = None,
) -> Batch:
    """Tokenise prompts given in pieces; every role's positions are all its tokens.

    A token belongs to the piece that holds its last character. A role that is shorter
    in one prompt than in another repeats a position there. All prompts must have the
    same roles.
    """
    prompts = model.prompts(
        ["".join(p.text for p in pieces) for pieces in texts], answers
    )
    rows = [_spans(model, pieces) for pieces in texts]
    starts = prompts.real.int().argmax(1)
    roles = {}
    for role in rows[0]:
        spans = [row.get(role, []) for row in rows]
        if not all(spans):
            raise BadInput(f"the prompts do not all have tokens of role '{role}'")
        roles[role] = _rectangle(spans).to(starts.device) + starts[:, None]
    return replace(prompts, roles=roles)


def named(model: Any, prompts: Batch, *places: object) -> Batch:
    """Prompts in which every place that is a text has a role of that name.

    A text that names no role is a phrase of the prompts: its role is all tokens that
    hold a part of its last occurrence in each. Places that are no texts are left alone.
    """
    known = {"last", *prompts.roles}
    phrases = [
        p for p in dict.fromkeys(places) if isinstance(p, str) and p not in known
    ]
    if phrases and not isinstance(model, LanguageModel):
        raise unknown("role", phrases[0], sorted(known))
    found = {phrase: _phrase_places(model, prompts, phrase) for phrase in phrases}
    return replace(prompts, roles={**prompts.roles, **found})


def _phrase_places(
    model: LanguageModel, prompts: Batch, phrase: str
) -> Int[Tensor, "batch role_pos"]:
    spans = []
    for tokens, real in zip(prompts.tokens, prompts.real, strict=True):
        columns = real.nonzero()[:, 0].tolist()
        inside = _tokens_of(model.tokenizer, tokens[real].tolist(), phrase)
        if not inside:
            roles = ", ".join(["last", *sorted(prompts.roles)])
            text = model.tokenizer.decode(tokens[real])
            raise BadInput(f"'{phrase}' is not in '{text}' and no role ({roles})")
        spans.append([columns[place] for place in inside])
    return _rectangle(spans).to(prompts.tokens.device)


def _tokens_of(tokenizer: Any, tokens: list[int], phrase: str) -> list[int]:
    """The tokens that hold a part of a phrase's last occurrence; none if it is absent.

    Tokens are decoded together, since what one of them means may depend on those
    before, and without white space, which tokenizers do not agree on.
    """
    parts = [tokenizer.decode(tokens[:n]) for n in range(len(tokens) + 1)]
    *texts, sought = ("".join(text.split()) for text in (*parts, phrase))
    begin = texts[-1].rfind(sought)
    if begin < 0 or not sought:
        return []
    end = begin + len(sought)
    # A character that is not complete yet shows as a replacement character.
    starts = [len(text.rstrip("\ufffd")) for text in texts[:-1]]
    stops = [len(text) for text in texts[1:]]
    spans = enumerate(zip(starts, stops, strict=True))
    return [place for place, (a, b) in spans if a < end and b > begin]


def _spans(model: LanguageModel, pieces: Pieces) -> dict[str, list[int]]:
    """Role -> its tokens, counted from the prompt's first one."""
    ends, at = [], 0
    for piece in pieces:
        at += len(piece.text)
        ends.append(at)
    text = "".join(piece.text for piece in pieces)
    offsets = model.tokenizer(text, return_offsets_mapping=True)["offset_mapping"]
    spans: dict[str, list[int]] = {}
    for place, (start, end) in enumerate(offsets):
        if end <= start:
            continue
        role = next(p.role for p, stop in zip(pieces, ends, strict=True) if end <= stop)
        if role:
            spans.setdefault(role, []).append(place)
    return spans


def _rectangle(spans: Sequence[Sequence[int]]) -> Int[Tensor, "batch role_pos"]:
    longest = max(len(span) for span in spans)
    rows = [[*span, *[span[-1]] * (longest - len(span))] for span in spans]
    return torch.tensor(rows)

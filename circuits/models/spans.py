"""Prompts in named pieces: which tokens are the first subject, the third clause?

A name may be several tokens long and the same word may occur twice, so positions are
kept from where a piece was written, not searched for afterwards.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Int
from torch import Tensor

from trained.errors import BadInput

from .language_model import LanguageModel
from .prompts import Prompts


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
) -> Prompts:
    """Tokenise prompts given in pieces; every role's positions are all its tokens.

    A token belongs to the piece that holds its last character. A role that is shorter
    in one prompt than in another repeats a position there. All prompts must have the
    same roles.
    """
    prompts = model.prompts(
        ["".join(p.text for p in pieces) for pieces in texts], answers
    )
    rows = [_spans(model, pieces) for pieces in texts]
    starts = prompts.mask.int().argmax(1)
    roles = {}
    for role in rows[0]:
        spans = [row.get(role, []) for row in rows]
        if not all(spans):
            raise BadInput(f"the prompts do not all have tokens of role '{role}'")
        roles[role] = _rectangle(spans).to(starts.device) + starts[:, None]
    return replace(prompts, roles=roles)


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

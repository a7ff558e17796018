"""Edits of attention patterns: what was attended to is decided by hand.

Every edit keeps rows that sum to one over the clauses a query can see, except where its
name says that a part is dropped.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from trained.lego.sentences import Sentences

from .reading import PatternEdit

Pattern = Float[Tensor, "batch head query key"]
Mask = Bool[Tensor, "batch query key"]


def visible(sentences: Sentences) -> Mask:
    """Which keys each query can see: all predicates, answers up to itself."""
    length = sentences.length
    step = torch.arange(length, device=sentences.places.device)
    answers = step <= step[:, None]
    mask = torch.cat([torch.ones_like(answers), answers], 1)
    return mask.expand(len(sentences.actions), *mask.shape)


def at_keys(sentences: Sentences, keys: Int[Tensor, "batch query key_set"]) -> Mask:
    """A mask of some keys of every query."""
    empty = torch.zeros_like(visible(sentences))
    return empty.scatter(-1, keys, True)


def without(pattern: Pattern, dropped: Mask) -> Pattern:
    """No attention on some keys; the rest scaled up to one."""
    kept = pattern.masked_fill(dropped[:, None], 0)
    return kept / kept.sum(-1, keepdim=True).clamp_min(1e-30)


def knocked_out(target: int) -> PatternEdit:
    """No attention on the target predicate (0) or the target answer (1)."""

    def edit(pattern: Tensor, sentences: Sentences) -> Tensor:
        keys = sentences.targets()[..., target, None]
        return without(pattern, at_keys(sentences, keys))

    return edit


def other_knocked_out(pattern: Tensor, sentences: Sentences) -> Tensor:
    """No attention on the predicate of the next step: as near, but irrelevant."""
    keys = sentences.places.roll(-1, -1)[..., None]
    return without(pattern, at_keys(sentences, keys))


def oracle(pattern: Tensor, sentences: Sentences) -> Tensor:
    """Half on each target, in every head."""
    both = at_keys(sentences, sentences.targets())
    return (both[:, None] / 2).to(pattern.dtype).expand_as(pattern)


def misled(pattern: Tensor, sentences: Sentences) -> Tensor:
    """As sharp as the oracle, but on the next step's predicate and the first answer."""
    keys = torch.stack(
        [
            sentences.places.roll(-1, -1),
            torch.full_like(sentences.places, sentences.length),
        ],
        dim=-1,
    )
    return (at_keys(sentences, keys)[:, None] / 2).to(pattern.dtype).expand_as(pattern)


def sharpened(factor: float) -> PatternEdit:
    """Scores multiplied by a factor: A^factor, normalised."""

    def edit(pattern: Tensor, sentences: Sentences) -> Tensor:
        del sentences
        odds = (pattern / pattern.amax(-1, keepdim=True)) ** factor
        return odds / odds.sum(-1, keepdim=True)

    return edit


def dosed(error: float, onto: str = "all") -> PatternEdit:
    """A concentration error that is set by hand.

    (1 - eps) / 2 on each target, eps spread evenly elsewhere.

    Args:
        error: the attention that misses the targets.
        onto: where it goes: "predicates", "answers" or "all" other visible clauses.
            A query that sees no such clause keeps eps = 0.
    """

    def edit(pattern: Tensor, sentences: Sentences) -> Tensor:
        targets = at_keys(sentences, sentences.targets())
        leak = visible(sentences) & ~targets
        is_answer = torch.arange(leak.shape[-1], device=leak.device) >= sentences.length
        if onto != "all":
            leak = leak & (is_answer if onto == "answers" else ~is_answer)
        count = leak.sum(-1, keepdim=True)
        eps = torch.where(count > 0, error, 0.0)
        rows = targets * (1 - eps) / 2 + leak * eps / count.clamp_min(1)
        return rows[:, None].to(pattern.dtype).expand_as(pattern)

    return edit


def only(part: str) -> PatternEdit:
    """Attention to "predicates" or "answers" as it is, to the others dropped."""

    def edit(pattern: Tensor, sentences: Sentences) -> Tensor:
        is_answer = torch.arange(pattern.shape[-1], device=pattern.device)
        is_answer = is_answer >= sentences.length
        kept = is_answer if part == "answers" else ~is_answer
        return pattern * kept

    return edit


def in_head(head: int, inner: PatternEdit) -> PatternEdit:
    """An edit of one head only."""

    def edit(pattern: Tensor, sentences: Sentences) -> Tensor:
        edited = pattern.clone()
        edited[:, head] = inner(pattern, sentences)[:, head]
        return edited

    return edit


def head_silenced(head: int) -> PatternEdit:
    """One head brings nothing."""

    def edit(pattern: Tensor, sentences: Sentences) -> Tensor:
        del sentences
        edited = pattern.clone()
        edited[:, head] = 0
        return edited

    return edit

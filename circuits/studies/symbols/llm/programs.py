"""What a language model prints for a program, and which heads match its names."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from circuits.hooks import record
from circuits.interventions.head_matrices import Circuit
from circuits.interventions.identity_surgery import Surgery, operate
from circuits.models.language_model import LanguageModel
from circuits.models.prompts import Prompts
from circuits.sites import Site

from .data import MARKERS, Form, Program, answer_tokens, written

AT_ONCE = 16
"""Programs in one pass."""

Heads = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Printed:
    """What follows some programs.

    Attributes:
        difference: logit of the right value minus that of the other one.
        best: the likeliest token of the whole vocabulary.
        matching: attention of the printed name to where it is assigned, minus that to
            the other name.
    """

    difference: Float[Tensor, " example"]
    best: Int[Tensor, " example"]
    matching: Float[Tensor, "layer example head"]

    @property
    def accuracy(self) -> float:
        """Share of programs whose right value is preferred to the other one."""
        return float((self.difference > 0).double().mean())


@dataclass(frozen=True)
class Cut:
    """The identity parts that are taken off some heads, or rotations in their place."""

    heads: Heads
    circuit: Circuit
    rotation: int | None = None


@torch.no_grad()
def run(
    model: LanguageModel,
    several: Sequence[Program],
    *,
    form: Form,
    marker: str,
    cut: Cut | None = None,
) -> Printed:
    """What a model makes of programs, as it is or with identity parts taken off."""
    parts = [
        _run(model, several[start : start + AT_ONCE], form, marker, cut)
        for start in range(0, len(several), AT_ONCE)
    ]
    difference, best, matching = zip(*parts, strict=True)
    return Printed(torch.cat(difference), torch.cat(best), torch.cat(matching, 1))


def _run(
    model: LanguageModel,
    several: Sequence[Program],
    form: Form,
    marker: str,
    cut: Cut | None,
) -> tuple[Tensor, Tensor, Tensor]:
    prompts = written(model, several, form, marker)
    sites = [Site("pattern", layer) for layer in range(model.n_layers)]
    with _operated(model, prompts, cut), record(model, sites) as seen:
        logits = model(prompts.tokens, prompts.mask)
    rows = torch.arange(len(several), device=logits.device)
    last = logits[rows, prompts.last]
    answers = torch.stack(answer_tokens(model, several, form), -1)
    right, wrong = last.gather(1, answers).unbind(-1)
    matching = torch.stack([name_matching(seen[site], prompts) for site in sites])
    return (right - wrong).cpu(), last.argmax(-1).cpu(), matching.cpu()


def _operated(
    model: LanguageModel, prompts: Prompts, cut: Cut | None
) -> AbstractContextManager[None]:
    if cut is None:
        return nullcontext()
    surgeries = [
        Surgery(layer, head, cut.circuit, cut.rotation) for layer, head in cut.heads
    ]
    return operate(model, prompts, surgeries)


def name_matching(
    pattern: Float[Tensor, "batch head query key"], prompts: Prompts
) -> Float[Tensor, "batch head"]:
    """Attention of the printed name to its assignment beyond the other's, in [-1, 1].

    A[printed, own] - A[printed, other]. Over programs that print either name, a liking
    for the first or for the nearer assignment cancels out.
    """
    rows = torch.arange(len(pattern), device=pattern.device)
    looks = pattern[rows, :, prompts.role("printed")[:, -1]]
    own, other = (
        looks[rows, :, prompts.role(name)[:, -1]] for name in ("own", "other")
    )
    return own - other


def best_marker(
    model: LanguageModel, several: Sequence[Program], form: Form
) -> tuple[str, Printed]:
    """The marker after which most programs come out right, and what they print."""
    runs = {m: run(model, several, form=form, marker=m) for m in MARKERS[form]}
    return max(runs.items(), key=lambda item: item[1].accuracy)


def emitted(
    model: LanguageModel, printed: Printed, several: Sequence[Program]
) -> Bool[Tensor, " example"]:
    """Whether the likeliest token is one of two values, those of the given programs."""
    right, wrong = (side.cpu() for side in answer_tokens(model, several, "values"))
    return (printed.best == right) | (printed.best == wrong)

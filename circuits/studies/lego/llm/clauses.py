"""What a language model says at each step of a chain, and which clauses it looks at."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from circuits.hooks import Signal, measure
from circuits.models.language_model import LanguageModel
from circuits.models.prompts import Prompts
from probes.attention import attention_mass

from .data import Exercise, n_steps, value_tokens, written

AT_ONCE = 4
"""Prompts in one pass; they are long."""
N_BEST = 3
"""Heads that are chosen on some chains and judged on others."""

Change = Callable[[LanguageModel, Prompts], AbstractContextManager[None]]
"""Changes the model for the passes over some prompts."""

Heads = list[tuple[int, int]]
"""(layer, head)"""

Shares = Float[Tensor, "layer head step"]


@dataclass(frozen=True)
class Steps:
    """What is said at the "=" of each step, mean over all steps.

    Attributes:
        accuracy: share of steps whose right value beats the other two.
        log_prob: log-probability of the right value among the whole vocabulary.
    """

    accuracy: float
    log_prob: float


@dataclass(frozen=True)
class Looks:
    """Attention at the "=" of each step, as shares of that to all clauses before it.

    Attributes:
        predicate: on the predicate that is due.
        other_predicate: on another one, mean.
        answer: on the last answer line.
        other_answer: on an earlier one, mean; 0 at the first step, which has none.
    """

    predicate: Shares
    other_predicate: Shares
    answer: Shares
    other_answer: Shares


def unchanged(_model: LanguageModel, _prompts: Prompts) -> AbstractContextManager[None]:
    """The model as it is."""
    return nullcontext()


@torch.no_grad()
def say(
    model: LanguageModel, several: Sequence[Exercise], change: Change = unchanged
) -> Steps:
    """What the model says, as it is or changed."""
    tokens = value_tokens(model)
    said = []
    for prompts in batches(model, several):
        with change(model, prompts):
            logits = model(prompts.tokens, prompts.mask)
        said.append(step_scores(logits, prompts, tokens))
    accuracy, log_prob = torch.cat(said).mean((0, 1)).tolist()
    return Steps(accuracy, log_prob)


def look(model: LanguageModel, several: Sequence[Exercise]) -> tuple[Steps, Looks]:
    """What the model says and where it looks, in one pass."""
    tokens = value_tokens(model)

    def scores(logits: Tensor, prompts: Prompts) -> Tensor:
        return step_scores(logits, prompts, tokens)

    measured = measure(
        model,
        batches(model, several),
        {
            "said": Signal("logits", scores, ("step", "score")),
            "looks": Signal("pattern", clause_shares, ("head", "step", "clause")),
        },
    )
    said = measured["said"].values[0, 0].mean(0).tolist()
    shares = measured["looks"].values[0].unbind(-1)
    return Steps(*said), Looks(*shares)


def batches(model: LanguageModel, several: Sequence[Exercise]) -> list[Prompts]:
    """The exercises as prompts, a few in each batch."""
    return [
        written(model, several[start : start + AT_ONCE])
        for start in range(0, len(several), AT_ONCE)
    ]


def step_scores(
    logits: Float[Tensor, "batch pos d_vocab"],
    prompts: Prompts,
    values: Int[Tensor, " value"],
) -> Float[Tensor, "batch step 2"]:
    """Whether the right value beats the others at a step, and its log-probability."""
    rows = torch.arange(len(logits), device=logits.device)
    scores = []
    for step in range(1, n_steps(prompts) + 1):
        said = logits[rows, prompts.role(f"equals{step}")[:, -1]]
        right = prompts.tokens[rows, prompts.role(f"value{step}")[:, 0]]
        hit = values[said[:, values].argmax(-1)] == right
        scores.append(torch.stack([hit.float(), said.log_softmax(-1)[rows, right]], -1))
    return torch.stack(scores, 1)


def clause_shares(
    pattern: Float[Tensor, "batch head query key"], prompts: Prompts
) -> Float[Tensor, "batch head step 4"]:
    """Shares of the attention to clauses at each step, as the fields of `Looks`."""
    rows = torch.arange(len(pattern), device=pattern.device)
    length = n_steps(prompts)
    shares = []
    for step in range(1, length + 1):
        looks = pattern[rows, :, prompts.role(f"equals{step}")[:, -1]]
        on = {
            role: attention_mass(looks, prompts.role(role)[:, None])
            for role in (
                *(f"predicate{i}" for i in range(1, length + 1)),
                *(f"answer{i}" for i in range(step)),
            )
        }
        due, last = on.pop(f"predicate{step}"), on.pop(f"answer{step - 1}")
        predicates = _mean([m for role, m in on.items() if role[0] == "p"], like=due)
        answers = _mean([m for role, m in on.items() if role[0] == "a"], like=due)
        total = due + last + sum(on.values())
        four = torch.stack([due, predicates, last, answers], -1)
        shares.append(four / total.clamp(min=1e-12)[..., None])
    return torch.stack(shares, 2)


def best_heads(shares: Shares) -> Heads:
    """The heads with the largest shares, mean over steps."""
    ranked = shares.mean(-1).flatten().argsort(descending=True)[:N_BEST]
    return [divmod(int(place), shares.shape[1]) for place in ranked]


def mean_over(shares: Shares, heads: Heads, *, first: int = 1) -> float:
    """Mean share of some heads over the steps from `first` on."""
    return float(torch.stack([shares[place][first - 1 :] for place in heads]).mean())


def _mean(masses: Sequence[Tensor], *, like: Tensor) -> Tensor:
    return torch.stack(list(masses)).mean(0) if masses else torch.zeros_like(like)

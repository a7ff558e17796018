"""What a model answers: losses, teacher-forced answers and the greedy rollout."""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from .folded import Prediction
from .sentences import Sentences, Vocabulary

Reader = Callable[..., Prediction]
"""(tokens, n_predicates=, queries=) -> the prediction after every query."""

ValuesOf = Callable[[Tensor, int], Tensor]
"""(tokens, how many of the clauses are predicates) -> values of the clauses."""


def clause_losses(
    prediction: Prediction, sentences: Sentences
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Cross-entropies of the next variable and the next value, means over steps."""
    return (
        _cross_entropy(prediction.variable, sentences.variables[..., 1:]),
        _cross_entropy(prediction.value, sentences.values[..., 1:]),
    )


def right_steps(
    prediction: Prediction, sentences: Sentences
) -> tuple[Bool[Tensor, "batch step"], Bool[Tensor, "batch step"]]:
    """Which steps' variables and values are right when the true past is given."""
    variable = prediction.variable.argmax(-1) == sentences.variables[..., 1:]
    return variable, prediction.value.argmax(-1) == sentences.values[..., 1:]


def rollout(
    model: Reader,
    sentences: Sentences,
    vocabulary: Vocabulary,
    *,
    steps: int | None = None,
    values: ValuesOf | None = None,
) -> Sentences:
    """The sentences with answers 1..L, or the first few, now the model's own, greedily.

    Every answer, variable and value, is fed back: nothing of the true chain is seen
    but its predicates and answer 0. All answers are right if and only if all steps are
    right when the true past is given, so only what follows an error needs this loop.

    Args:
        model: what reads and predicts.
        sentences: the predicates and answer 0 are taken from here.
        vocabulary: the tokens.
        steps: how many answers; None: all.
        values: for a folded model, what gives the values of clauses; each is then
            computed once and not in every step.
    """
    predicates = sentences.predicates(vocabulary)
    x, y = sentences.variables[..., :1], sentences.values[..., :1]
    known = {"values": values(predicates, sentences.length)} if values else {}
    for _ in range(steps or sentences.length):
        so_far = sentences._replace(variables=x, values=y).answers(vocabulary)
        if values:
            new = values(so_far[..., -1:, :], 0)
            known["values"] = torch.cat([known["values"], new], dim=1)
        prediction = model(
            torch.cat([predicates, so_far], dim=-2),
            n_predicates=sentences.length,
            queries=slice(-1, None),
            **known,
        )
        x = torch.cat([x, prediction.variable.argmax(-1)], dim=-1)
        y = torch.cat([y, prediction.value.argmax(-1)], dim=-1)
    return sentences._replace(variables=x, values=y)


def _cross_entropy(
    logits: Float[Tensor, "batch step n"], target: Tensor
) -> Float[Tensor, ""]:
    logs = logits.log_softmax(-1)
    return -logs.gather(-1, target[..., None]).mean()

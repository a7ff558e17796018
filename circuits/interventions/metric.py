"""What is read off a pass: a number for each example, from the logits at its answer."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from circuits.backends.anatomy import Readout
from trained.errors import BadInput
from trained.task import Batch

from .part import Places

Metric = Callable[[Tensor, Any], Tensor]
"""(logits at the answer [batch d_vocab], the examples) -> a number per example."""


TOKENS_AT_ONCE = 1024
"""Of a pass of a sweep, where nobody says otherwise."""


@runtime_checkable
class TokenMetric(Protocol):
    """A metric that needs the logits of some tokens alone, so only these are made."""

    def tokens(self, examples: Batch) -> Int[Tensor, "batch token"]:
        """The tokens, example by example."""

    def of_tokens(
        self, logits: Float[Tensor, "batch token"], examples: Batch
    ) -> Float[Tensor, " batch"]:
        """The number, from their logits."""

    def rows(self, rows: slice) -> "TokenMetric":
        """The metric of some of the examples."""

    def __call__(
        self, logits: Float[Tensor, "batch d_vocab"], examples: Batch
    ) -> Float[Tensor, " batch"]:
        """The number, from the logits of the vocabulary."""


@dataclass(frozen=True)
class Reading:
    """What is read off a pass, and how much of it is done at once.

    Attributes:
        metric: the number per example.
        at: the position whose logits it sees.
        tokens_at_once: no pass holds more tokens, unless a single prompt has more: a
            cap on the memory of a sweep, beside the one stored run. Prompts are swept
            so many at a time if the metric is a `TokenMetric`.
    """

    metric: Metric
    at: Places = "last"
    tokens_at_once: int = TOKENS_AT_ONCE

    def __post_init__(self) -> None:
        if self.tokens_at_once < 1:
            raise BadInput(f"tokens_at_once={self.tokens_at_once}: give at least 1")

    def of(
        self, logits: Float[Tensor, "batch d_vocab"], examples: Batch
    ) -> Float[Tensor, " batch"]:
        """The metric; `BadInput` if it is not one number per example."""
        return self._checked(self.metric(logits, examples), examples)

    def of_residual(
        self, residual: Float[Tensor, "batch d"], examples: Batch, readout: Readout
    ) -> Float[Tensor, " batch"]:
        """The metric from the last residual at the answer."""
        metric = self.metric
        if not isinstance(metric, TokenMetric):
            return self.of(readout.logits(residual), examples)
        logits = readout.target_logits(residual, metric.tokens(examples))
        return self._checked(metric.of_tokens(logits, examples), examples)

    def chunks(self, examples: Batch) -> "Iterator[tuple[slice, Reading]]":
        """Rows of the examples that are swept at a time, and what is read off them.

        All at once unless the metric can tell what it has to know of some of them.
        """
        metric, n_examples = self.metric, len(examples)
        size = max(1, self.tokens_at_once // examples.tokens.shape[1])
        if n_examples <= size or not isinstance(metric, TokenMetric):
            yield slice(0, n_examples), self
            return
        # Refuses what does not fit the examples, before they are parted.
        metric.tokens(examples)
        for start in range(0, n_examples, size):
            rows = slice(start, start + size)
            yield rows, replace(self, metric=metric.rows(rows))

    @staticmethod
    def _checked(values: Tensor, examples: Batch) -> Float[Tensor, " batch"]:
        if values.shape != examples.targets.shape:
            raise BadInput(
                f"the metric has shape {tuple(values.shape)} for {len(examples)} "
                "examples: it must be one number for each"
            )
        return values


@dataclass(frozen=True, eq=False)
class LogitDifference:
    """The logit of each example's target minus that of its wrong answer; a metric."""

    wrong: Int[Tensor, "..."]

    def __call__(
        self, logits: Float[Tensor, "batch d_vocab"], examples: Batch
    ) -> Float[Tensor, " batch"]:
        """From the logits of the vocabulary."""
        return self.of_tokens(logits.gather(-1, self.tokens(examples)), examples)

    def tokens(self, examples: Batch) -> Int[Tensor, "batch 2"]:
        """The target and the wrong answer."""
        require_answers(self.wrong, examples)
        targets = examples.targets
        return torch.stack([targets, self.wrong.to(targets)], dim=-1)

    def of_tokens(
        self, logits: Float[Tensor, "batch 2"], examples: Batch
    ) -> Float[Tensor, " batch"]:
        """From the two logits."""
        del examples
        right, other = logits.unbind(-1)
        return right - other

    def rows(self, rows: slice) -> "LogitDifference":
        """The wrong answers of some of the examples."""
        return LogitDifference(self.wrong[rows])


def logit_difference(wrong: Int[Tensor, "..."]) -> Metric:
    """The logit of each example's target minus that of its wrong answer, [batch]."""
    return LogitDifference(wrong)


def require_answers(wrong: Tensor, examples: Batch) -> None:
    """`BadInput` unless there is one wrong answer for each example."""
    if wrong.shape != examples.targets.shape:
        raise BadInput(
            f"wrong answers of shape {tuple(wrong.shape)} for targets of shape "
            f"{tuple(examples.targets.shape)}: one for each example"
        )


def target_log_prob(
    logits: Float[Tensor, "batch d_vocab"], examples: Batch
) -> Float[Tensor, " batch"]:
    """The log-probability of each example's target; a metric."""
    return logits.log_softmax(-1).gather(-1, examples.targets[:, None])[:, 0]

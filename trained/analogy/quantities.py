"""Losses and metrics of the study: fit, transfer, retention, alignment.

Success alone cannot tell missing alignment from forgetting and from output drift, so
it never stands alone: `c_only` restricts the answer to the further properties,
`known` asks whether the source's own attribution survived, `shared_answer` whether
the target answers with the shared property.
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cosine_similarity, cross_entropy

from trained.arm import Quantity

from .data import Conclusions, Premises

Features = Callable[[Any, Int[Tensor, "pair pos"]], Float[Tensor, "pair d_model"]]
"""(model, prompts) -> the representation that the study compares."""


def answer_logits(
    model: Any, tokens: Int[Tensor, "fact pos"]
) -> Float[Tensor, "fact d_vocab"]:
    """Logits after the last token."""
    return model(tokens)[:, -1]


def premise_loss(model: Any, data: Premises) -> Float[Tensor, ""]:
    """Cross-entropy over the multiset of premises."""
    logits = answer_logits(model, data.tokens)
    losses = cross_entropy(logits, data.targets, reduction="none")
    return (data.weights * losses).sum()


def hits(
    model: Any, tokens: Int[Tensor, "fact pos"], targets: Int[Tensor, " fact"]
) -> Float[Tensor, ""]:
    """Share of prompts whose argmax over the whole vocabulary is the target."""
    return (answer_logits(model, tokens).argmax(-1) == targets).float().mean()


def success(model: Any, data: Conclusions) -> Float[Tensor, ""]:
    """Share of targets that get their source's further property."""
    return hits(model, data.test, data.answer)


def c_only(model: Any, data: Conclusions) -> Float[Tensor, ""]:
    """The same with the argmax taken among the further properties only."""
    logits = answer_logits(model, data.test)[:, data.answer]
    own = torch.arange(len(data.answer), device=logits.device)
    return (logits.argmax(-1) == own).float().mean()


def shared_answer(model: Any, data: Conclusions) -> Float[Tensor, ""]:
    """Share of test prompts answered with the shared property instead."""
    return hits(model, data.test, data.shared)


def known(model: Any, data: Conclusions) -> Float[Tensor, ""]:
    """Share of sources whose own attribution is (still) answered."""
    return hits(model, data.known, data.answer)


def similarity(features: Features) -> Quantity:
    """Mean cosine of the source's and the target's features in r2 prompts."""

    def quantity(model: Any, data: Conclusions) -> Float[Tensor, ""]:
        source, target = features(model, data.known), features(model, data.test)
        return cosine_similarity(source, target, dim=-1).mean()

    return quantity


def metrics(features: Features) -> dict[str, Quantity]:
    """What every arm records over training."""
    return {
        "success": success,
        "c_only": c_only,
        "known": known,
        "similarity": similarity(features),
    }


def value_features(
    model: Any, prompts: Int[Tensor, "pair pos"]
) -> Float[Tensor, "pair d_model"]:
    """V z of a prompt's entity: the one-layer block's feature."""
    return model.value_vectors(prompts[:, 0])

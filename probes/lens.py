"""From which layer on can an answer be read off the residual stream?

The logit lens sends each layer's residual through the final norm and the unembedding.
Falsified by: a target no more likely, and no better ranked, than under another prompt
or at random. The last layer's lens must equal the model's own output.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

ToLogits = Callable[[Tensor], Tensor]
"""The model's last steps (final norm, unembedding, bias, soft cap), as a function of
residuals `*batch d_model` that gives logits `*batch d_vocab`."""


def lens_log_probs(
    residual: Float[Tensor, "*batch d_model"], to_logits: ToLogits
) -> Float[Tensor, "*batch d_vocab"]:
    """Log-probabilities of the whole vocabulary, in (-inf, 0].

    log softmax(norm(h) W_U + b); nostalgebraist 2020, "interpreting GPT: the logit
    lens". Computed in float32 or better.
    """
    logits = to_logits(residual)
    return logits.log_softmax(-1, dtype=_at_least_single(logits))


def logit_lens(
    residuals: Float[Tensor, "layer *batch d_model"],
    to_logits: ToLogits,
    tokens: Int[Tensor, "*#batch target"],
) -> Float[Tensor, "layer *batch target"]:
    """Log-probabilities of some tokens by layer, in (-inf, 0].

    As `lens_log_probs`; no more than one layer's logits over the vocabulary are held at
    a time.

    Args:
        residuals: Residual stream by layer.
        to_logits: From the last residual to logits.
        tokens: The tokens asked for, shared or one set per batch place.
    """
    layers = []
    for residual in residuals:
        log_probs = lens_log_probs(residual, to_logits)
        layers.append(log_probs.gather(-1, _index(tokens, log_probs)))
    return torch.stack(layers)


def target_rank(
    residuals: Float[Tensor, "layer *batch d_model"],
    to_logits: ToLogits,
    tokens: Int[Tensor, "*#batch target"],
) -> Float[Tensor, "layer *batch target"]:
    """Rank of each token among the vocabulary by layer, in [1, d_vocab]; 1 is the top.

    As `middle_rank`, layer by layer.

    Args:
        residuals: Residual stream by layer.
        to_logits: From the last residual to logits.
        tokens: The tokens asked for, shared or one set per batch place.
    """
    layers = []
    for residual in residuals:
        logits = to_logits(residual)
        own = logits.gather(-1, _index(tokens, logits))
        ranks = [middle_rank(logits, target) for target in own.unbind(-1)]
        layers.append(torch.stack(ranks, -1))
    return torch.stack(layers)


def middle_rank(
    logits: Float[Tensor, "*batch d_vocab"], own: Float[Tensor, "*batch"]
) -> Float[Tensor, "*batch"]:
    """Rank of a logit among the vocabulary's; 1 is the top, ties take the middle.

    1 + #{larger logits} + #{equal logits of other tokens} / 2, in [1, d_vocab]: a lens
    that knows nothing gives (d_vocab + 1) / 2. NaN has no rank.

    Args:
        logits: Logits of the vocabulary.
        own: One of them for every batch place.
    """
    larger = (logits > own[..., None]).sum(-1)
    equal = (logits == own[..., None]).sum(-1)
    rank = (larger + (equal + 1) / 2).to(_at_least_single(logits))
    return torch.where(own.isnan(), torch.nan, rank)


def _at_least_single(logits: Float[Tensor, "*shape"]) -> torch.dtype:
    return torch.promote_types(logits.dtype, torch.float32)


def _index(
    tokens: Int[Tensor, "*#batch target"], logits: Float[Tensor, "*batch d_vocab"]
) -> Int[Tensor, "*batch target"]:
    d_vocab = logits.shape[-1]
    if tokens.numel() and (int(tokens.min()) < 0 or int(tokens.max()) >= d_vocab):
        raise ValueError(
            f"tokens from {int(tokens.min())} to {int(tokens.max())}; "
            f"valid: 0 to {d_vocab - 1}"
        )
    return tokens.long().expand(*logits.shape[:-1], tokens.shape[-1])

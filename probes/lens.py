"""From which layer on can an answer be read off the residual stream?

The logit lens sends each layer's residual through the final norm and the unembedding.
Falsified by: a target no more likely, and no better ranked, than under another prompt
or at random. The last layer's lens must equal the model's own output.
"""

from collections.abc import Callable

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor

FinalNorm = Callable[[Tensor], Tensor]
"""The model's last normalisation, as a function of residuals `*batch d_model`."""


def logit_lens(
    residuals: Float[Tensor, "layer *batch d_model"],
    unembedding: Float[Tensor, "d_model d_vocab"],
    *,
    tokens: Int[Tensor, "*#batch target"] | None = None,
    final_norm: FinalNorm | None = None,
    bias: Float[Tensor, " d_vocab"] | None = None,
) -> Float[Tensor, "layer *batch target"]:
    """Log-probabilities of tokens by layer, in (-inf, 0].

    log softmax(norm(h_l) W_U + b)[token]; nostalgebraist 2020, "interpreting GPT: the
    logit lens". Works layer by layer: with `tokens`, no more than one layer's logits
    over the vocabulary are held at a time.

    Args:
        residuals: Residual stream by layer.
        unembedding: W_U; its bias, if any, goes to `bias`.
        tokens: The tokens asked for, shared or one set per batch place; all if None.
        final_norm: The norm before the unembedding; None for a model without.
        bias: The unembedding's bias.
    """
    if tokens is None:
        return lens_log_probs(residuals, unembedding, final_norm=final_norm, bias=bias)
    layers = []
    for residual in residuals:
        log_probs = _logits(residual, unembedding, final_norm, bias).log_softmax(-1)
        layers.append(log_probs.gather(-1, _index(tokens, log_probs)))
    return torch.stack(layers)


def lens_log_probs(
    residuals: Float[Tensor, "layer *batch d_model"],
    unembedding: Float[Tensor, "d_model d_vocab"],
    *,
    final_norm: FinalNorm | None = None,
    bias: Float[Tensor, " d_vocab"] | None = None,
) -> Float[Tensor, "layer *batch d_vocab"]:
    """Log-probabilities of the whole vocabulary by layer, in (-inf, 0].

    log softmax(norm(h_l) W_U + b), as `logit_lens`.
    """
    return _logits(residuals, unembedding, final_norm, bias).log_softmax(-1)


def target_logits(
    residuals: Float[Tensor, "layer *batch d_model"],
    unembedding: Float[Tensor, "d_model d_vocab"],
    tokens: Int[Tensor, "*#batch target"],
    *,
    final_norm: FinalNorm | None = None,
    bias: Float[Tensor, " d_vocab"] | None = None,
) -> Float[Tensor, "layer *batch target"]:
    """Logits of the asked-for tokens by layer, from their columns of W_U alone.

    norm(h_l) W_U[:, token] + b[token]. Unnormalised: compare tokens with each other (a
    logit difference), not layers. The cost does not depend on the vocabulary.

    Args:
        residuals: Residual stream by layer.
        unembedding: W_U.
        tokens: The tokens asked for, shared or one set per batch place.
        final_norm: The norm before the unembedding; None for a model without.
        bias: The unembedding's bias.
    """
    _check_tokens(tokens, unembedding.shape[-1])
    states = residuals if final_norm is None else final_norm(residuals)
    logits = einsum(
        states,
        unembedding.mT[tokens],
        "... d_model, ... target d_model -> ... target",
    )
    return logits if bias is None else logits + bias[tokens]


def target_rank(
    residuals: Float[Tensor, "layer *batch d_model"],
    unembedding: Float[Tensor, "d_model d_vocab"],
    tokens: Int[Tensor, "*#batch target"],
    *,
    final_norm: FinalNorm | None = None,
    bias: Float[Tensor, " d_vocab"] | None = None,
) -> Float[Tensor, "layer *batch target"]:
    """Rank of each token among the vocabulary by layer, in [1, d_vocab]; 1 is the top.

    1 + #{larger logits} + #{equal logits of other tokens} / 2: ties take their middle
    rank, so a lens that knows nothing gives (d_vocab + 1) / 2.
    """
    layers = []
    for residual in residuals:
        logits = _logits(residual, unembedding, final_norm, bias)
        own = logits.gather(-1, _index(tokens, logits))
        ranks = [middle_rank(logits, target) for target in own.unbind(-1)]
        layers.append(torch.stack(ranks, -1))
    return torch.stack(layers)


def _logits(
    residuals: Float[Tensor, "*batch d_model"],
    unembedding: Float[Tensor, "d_model d_vocab"],
    final_norm: FinalNorm | None,
    bias: Float[Tensor, " d_vocab"] | None,
) -> Float[Tensor, "*batch d_vocab"]:
    states = residuals if final_norm is None else final_norm(residuals)
    logits = states @ unembedding
    return logits if bias is None else logits + bias


def middle_rank(
    logits: Float[Tensor, "*batch d_vocab"], own: Float[Tensor, "*batch"]
) -> Float[Tensor, "*batch"]:
    """Rank of a logit among the vocabulary's; 1 is the top, ties take the middle.

    1 + #{larger logits} + #{equal logits of other tokens} / 2, in [1, d_vocab].

    Args:
        logits: Logits of the vocabulary.
        own: One of them for every batch place.
    """
    larger = (logits > own[..., None]).sum(-1)
    equal = (logits == own[..., None]).sum(-1)
    return (larger + (equal + 1) / 2).to(logits.dtype)


def _index(
    tokens: Int[Tensor, "*#batch target"], logits: Float[Tensor, "*batch d_vocab"]
) -> Int[Tensor, "*batch target"]:
    _check_tokens(tokens, logits.shape[-1])
    return tokens.long().expand(*logits.shape[:-1], tokens.shape[-1])


def _check_tokens(tokens: Int[Tensor, "*batch target"], d_vocab: int) -> None:
    if tokens.numel() and (int(tokens.min()) < 0 or int(tokens.max()) >= d_vocab):
        raise ValueError(
            f"tokens from {int(tokens.min())} to {int(tokens.max())}; "
            f"valid: 0 to {d_vocab - 1}"
        )

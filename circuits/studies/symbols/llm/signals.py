"""Signals of heads and programs that the language lab reads off."""

from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.interventions.head_matrices import head_matrices
from circuits.models.language_model import LanguageModel
from circuits.models.norms import norm_parts
from probes.attention import attention_mass
from trained.task import Batch

Heads = Float[Tensor, "layer head"]
"""A score of every head."""


def name_matching(
    pattern: Float[Tensor, "batch head query key"], prompts: Batch
) -> Float[Tensor, "batch head"]:
    """Attention of the printed name to its assignment beyond the other's, in [-1, 1].

    A[printed, own] - A[printed, other]. Over programs that print either name, a liking
    for the first or for the nearer assignment cancels out.
    """
    rows = torch.arange(len(pattern), device=pattern.device)
    looks = pattern[rows, :, prompts.role("printed")[:, -1]]
    on = partial(attention_mass, looks)
    own, other = (prompts.role(name)[:, None, -1:] for name in ("own", "other"))
    return on(own) - on(other)


def share_above(scores: Heads, least: float) -> float:
    """Share of heads with a larger score."""
    return float((scores > least).double().mean())


@torch.no_grad()
def copying_scores(model: LanguageModel) -> Heads:
    """Whether a head raises the logits of what it attends to, in [-1, 1].

    sum of the eigenvalues of W_E W_V W_O W_U over the sum of their sizes (Elhage et
    al. 2021, "A Mathematical Framework for Transformer Circuits"), with the norms'
    gains folded in. The eigenvalues are those of the small W_O W_U W_E W_V.
    """
    # What nnsight wraps is a transformers model.
    hf: Any = getattr(model.module, "transformers_model", model.module)
    embedding = hf.get_input_embeddings().weight.detach()
    gain = norm_parts(model.readout.final_norm, embedding[:1]).gain
    both = (gain[:, None] * model.readout.unembedding) @ embedding
    scores = []
    for layer in range(model.n_layers):
        matrices = head_matrices(model, layer)
        small = matrices.W_O @ both @ matrices.W_V
        values = torch.linalg.eigvals(small.double())
        scores.append((values.real.sum(-1) / values.abs().sum(-1)).cpu())
    return torch.stack(scores)


def strongest(scores: Heads, share: float) -> list[tuple[int, int]]:
    """The heads (layer, head) with the largest scores, a share of all."""
    n_chosen = max(1, round(share * scores.numel()))
    ranked = scores.flatten().argsort(descending=True)[:n_chosen]
    return [divmod(int(place), scores.shape[1]) for place in ranked]


def correlation(first: Heads, second: Heads) -> float:
    """Pearson correlation over heads, in [-1, 1]."""
    both = torch.stack([first.flatten().double(), second.flatten().double()])
    return float(torch.corrcoef(both)[0, 1])


def lost_share(
    whole: Float[Tensor, " example"], without: Float[Tensor, " example"]
) -> float:
    """The share of the mean logit difference that is lost; nan if there is none.

    1 - mean(without) / mean(whole).

    >>> lost_share(torch.tensor([4.0, 2.0]), torch.tensor([1.0, 2.0]))
    0.5
    """
    before = float(whole.mean())
    return 1 - float(without.mean()) / before if before > 0 else float("nan")

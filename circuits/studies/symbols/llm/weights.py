"""How near to a multiple of the identity are the maps of a language model's heads?"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.interventions.head_matrices import Circuit, head_matrices
from circuits.models.language_model import LanguageModel
from circuits.models.norms import norm_parts

STRONG = 5.0
"""A diagonal score this large is a strong diagonal; 1 in 3 million random heads."""
COPIES = 0.5
"""A copying score above this makes a copying head."""


def diagonal_scores(
    model: LanguageModel, circuit: Circuit
) -> Float[Tensor, "layer head"]:
    """sqrt(d) tr(M) / |M|_F of every head; nan where scores are no bilinear map."""
    scores = []
    for layer in range(model.n_layers):
        matrices = head_matrices(model, layer)
        if circuit == "qk" and not matrices.bilinear:
            scores.append(torch.full((model.n_heads,), torch.nan))
        else:
            scores.append(matrices.identity_score(circuit).cpu())
    return torch.stack(scores)


def share_above(scores: Float[Tensor, "layer head"], least: float) -> float:
    """Share of heads with a larger score; nan if scores are undefined."""
    if bool(scores.isnan().any()):
        return float("nan")
    return float((scores > least).double().mean())


@torch.no_grad()
def copying_scores(model: LanguageModel) -> Float[Tensor, "layer head"]:
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


def strongest(
    scores: Float[Tensor, "layer head"], share: float
) -> Sequence[tuple[int, int]]:
    """The heads (layer, head) with the largest scores, a share of all."""
    n_chosen = max(1, round(share * scores.numel()))
    ranked = scores.flatten().argsort(descending=True)[:n_chosen]
    return [divmod(int(place), scores.shape[1]) for place in ranked]


def correlation(
    first: Float[Tensor, "layer head"], second: Float[Tensor, "layer head"]
) -> float:
    """Pearson correlation over heads, in [-1, 1]."""
    both = torch.stack([first.flatten().double(), second.flatten().double()])
    return float(torch.corrcoef(both)[0, 1])

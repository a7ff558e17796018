"""Do the representations at two places point the same way, layer by layer?"""

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.hooks import Model
from circuits.interventions.part import column, columns
from circuits.models.prompts import named
from probes.alignment import (
    Score,
    centred,
    compressed,
    debiased_linear_cka,
    linear_cka,
    nearest_match_accuracy,
    paired_cosine,
    procrustes_distance,
    shuffled_pair_null,
)
from probes.measurement import Measurement
from trained.errors import BadInput, unknown
from trained.task import Batch

from .subject import layer_labels, places, residuals

FEWEST_PROMPTS = 4
"""Two centred states are opposite whatever they are; debiased CKA needs four."""

SHUFFLES = 100

States = Float[Tensor, "layer example width"]

SCORES: Mapping[str, Score] = {
    "cosine": paired_cosine,
    "nearest match": nearest_match_accuracy,
    "cka": linear_cka,
    "debiased cka": debiased_linear_cka,
    "procrustes": procrustes_distance,
}
"""How two sets of states are compared; of the last, 0 is the most alike."""


def alignment(
    model: Model,
    prompts: Batch,
    source: str,
    target: str,
    by: str = "cosine",
    *,
    seed: int = 0,
) -> Measurement:
    """How alike the residuals at two roles of the same prompt are, layer by layer.

    Residual streams share a large common direction, so each role is centred on its mean
    over prompts. Beside the matching pairs stands their null, the mean of the score
    over 100 shuffles in which no source keeps its own target: CKA and Procrustes are
    far from 0 and 2 by themselves where prompts are few.

    Args:
        model: the model.
        prompts: at least four.
        source: a role, or a phrase, of one token.
        target: another one.
        by: "cosine", of each pair; "nearest match", the share of sources whose nearest
            target is their own; "cka", "debiased cka" or "procrustes", of the sets.
        seed: of the shuffles.

    Returns:
        A Measurement with axes ("pairs", "layer"), where pairs are "matching" and
        "shuffled", and "example" for cosines. Its provenance has, by layer, what 95 %
        of the shuffles lie between (of cosines, their mean over prompts).
    """
    if by not in SCORES:
        raise unknown("score", by, SCORES)
    if len(prompts) < FEWEST_PROMPTS:
        raise BadInput(
            f"{len(prompts)} prompts: alignment compares what tells prompts apart and "
            f"needs {FEWEST_PROMPTS}"
        )
    own, other = _states(model, prompts, source, target)
    score, drawn = SCORES[by], torch.Generator().manual_seed(seed)
    null = shuffled_pair_null(own, other, score, generator=drawn, n_shuffles=SHUFFLES)
    values = torch.stack([score(own, other), null.mean(-1)])
    return Measurement(
        values,
        ("pairs", "layer", "example")[: values.ndim],
        {"pairs": ("matching", "shuffled"), "layer": layer_labels(model)},
        name=f"alignment of {source} and {target}",
        unit=f"centred {by}",
        provenance={"shuffles": SHUFFLES, "seed": seed, "shuffled_95": _range(null)},
    )


def _states(
    model: Model, prompts: Batch, source: str, target: str
) -> tuple[States, States]:
    """The centred residuals at two one-token roles, in the same coordinates."""
    prompts = named(model, prompts, source, target)
    both = torch.stack([column(prompts, role) for role in (source, target)], dim=1)
    stream = residuals(model, prompts, both).transpose(1, 2)
    # Every score is blind to a rotation of both roles together.
    sources, targets = compressed(stream.flatten(1, 2)).chunk(2, 1)
    return centred(sources), centred(targets)


def _range(null: Tensor) -> list[list[float]]:
    """What 95 % of the shuffles lie between, by layer."""
    by_layer = null.mean(1) if null.ndim == 3 else null
    ends = torch.tensor([0.025, 0.975], dtype=null.dtype, device=null.device)
    found: list[list[float]] = torch.quantile(by_layer, ends, -1).mT.tolist()
    return found


def alignment_with_last(model: Model, prompt: Batch) -> Measurement:
    """Cosine of the other positions' residuals with the last one's, in one prompt.

    cos(h_i - m, h_last - m), m the mean over positions. The first position is left out:
    it is the attention sink and many times longer than the rest. Axes ("layer",
    "position").
    """
    stream = residuals(model, prompt, columns(prompt, None))[:, 0]
    states = centred(stream[:, 1:])
    others = states[:, :-1]
    return Measurement(
        paired_cosine(others, states[:, -1:].expand_as(others)),
        ("layer", "position"),
        {"layer": layer_labels(model), "position": places(model, prompt)[1:-1]},
        name="alignment with the last token",
        unit="centred cosine",
    )

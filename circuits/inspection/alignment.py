"""Do the representations at two places point the same way, layer by layer?"""

from collections.abc import Mapping, Sequence
from itertools import combinations

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.hooks import Model
from circuits.interventions.part import column
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

from .one_pass import Pass, queries_of
from .subject import layer_labels, residuals

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


@torch.no_grad()
def alignment_in(passed: Pass) -> Measurement:
    """How alike the residuals at the roles of one prompt are, beside its other tokens.

    cos(h_s - m, h_t - m) at the last tokens of two roles ("last" is one), m the mean
    over the positions behind the first, which is the attention sink and many times
    longer than the rest. Beside it the same with every token that plays no role in
    place of t: their mean, the share of them that are as near as t, and what 95 % of
    them lie between. Two roles say something where few others are as near.

    Returns:
        A Measurement with axes ("of", "pair", "layer"), where `of` is "roles",
        "other tokens", "low", "high" and "as near".
    """
    item = passed.item
    own = {name: place for name, place in queries_of(item).items() if place > 0}
    taken = {place for role in item.roles.values() for place in role} | {item.last}
    others = [place for place in range(1, len(item.tokens)) if place not in taken]
    pairs = [p for p in combinations([*item.roles, "last"], 2) if _two_places(own, p)]
    if not pairs or len(others) < FEWEST_PROMPTS:
        raise BadInput(
            "alignment compares roles of the prompt with each other: name at least one "
            f"beside the last token by --role, and leave {FEWEST_PROMPTS} others"
        )
    layers = [_compared(states[1:], own, others, pairs) for states in passed.stream]
    return Measurement(
        torch.stack(layers, -1),
        ("of", "pair", "layer"),
        {
            "of": ("roles", "other tokens", "low", "high", "as near"),
            "pair": tuple(f"{source} and {target}" for source, target in pairs),
            "layer": layer_labels(passed.model),
        },
        name="alignment of roles",
        unit="centred cosine",
    )


def _two_places(own: Mapping[str, int], pair: tuple[str, str]) -> bool:
    """Whether both are behind the first token, and not the same."""
    one, two = (own.get(name) for name in pair)
    return one is not None and two is not None and one != two


def _compared(
    states: Float[Tensor, "pos d_model"],
    own: Mapping[str, int],
    others: Sequence[int],
    pairs: Sequence[tuple[str, str]],
) -> Float[Tensor, "of pair"]:
    """The quantities of every pair in one layer; the first position is cut off."""
    moved = centred(states)
    rest = moved[torch.tensor(others, device=moved.device) - 1]
    found = []
    for source, target in pairs:
        one, two = moved[own[source] - 1], moved[own[target] - 1]
        cosine = paired_cosine(one[None], two[None])[0]
        null = paired_cosine(one.expand_as(rest), rest)
        ends = torch.quantile(null, null.new_tensor([0.025, 0.975]))
        near = torch.where(cosine.isnan(), torch.nan, (null >= cosine).to(null).mean())
        found.append(torch.stack([cosine, null.mean(), *ends, near]))
    return torch.stack(found, -1)

"""Do two sets of representations point the same way, pair by pair?

`source[i]` and `target[i]` are the states that a mechanism claims to align (a subject's
first-hop output and its bridge, two entities with one label). Falsified by: cosines of
matching pairs no larger than those of mismatched ones. NaN stays NaN, and half
precision is computed in float32.
"""

from collections.abc import Callable

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import normalize

Score = Callable[[Tensor, Tensor], Tensor]
"""A function of sources and targets, both `*batch pair d_model`."""


def paired_cosine(
    source: Float[Tensor, "*batch pair d_model"],
    target: Float[Tensor, "*batch pair d_model"],
) -> Float[Tensor, "*batch pair"]:
    """Cosine of each source state with its own target state, in [-1, 1].

    cos_i = <s_i, t_i> / (|s_i| |t_i|); a zero state gives 0.

    >>> paired_cosine(torch.tensor([[1.0, 0.0]]), torch.tensor([[3.0, 4.0]])).tolist()
    [0.6000000238418579]
    """
    cosine = einsum(
        _unit(source),
        _unit(target),
        "... pair d_model, ... pair d_model -> ... pair",
    )
    return cosine.clamp(-1, 1)


def shifted_pair_cosine(
    source: Float[Tensor, "*batch pair d_model"],
    target: Float[Tensor, "*batch pair d_model"],
    *,
    shift: int = 1,
) -> Float[Tensor, "*batch pair"]:
    """Cosine of each source with the target `shift` pairs further on, in [-1, 1].

    The deterministic mismatched-pair control: cos(s_i, t_{i + shift mod n}).
    """
    n_pairs = source.shape[-2]
    if shift % n_pairs == 0:
        raise ValueError(
            f"shift {shift} keeps all {n_pairs} pairs matched; valid: no multiple of it"
        )
    return paired_cosine(source, target.roll(-shift, -2))


def shuffled_pair_null(
    source: Float[Tensor, "*batch pair d_model"],
    target: Float[Tensor, "*batch pair d_model"],
    score: Score,
    *,
    generator: torch.Generator,
    n_shuffles: int = 100,
) -> Float[Tensor, "*score shuffle"]:
    """The score of mismatched pairs, shuffle by shuffle, in the range of the score.

    Each shuffle is a uniform derangement: no source keeps its own target. The same
    derangement serves all leading axes.
    """
    null = []
    for _ in range(n_shuffles):
        order = _derangement(source.shape[-2], generator).to(target.device)
        null.append(score(source, target[..., order, :]))
    return torch.stack(null, -1)


def centred(
    representations: Float[Tensor, "*batch example d_model"],
) -> Float[Tensor, "*batch example d_model"]:
    """Representations minus their mean over examples.

    Residual streams share a large common direction; without it, a cosine measures what
    tells the examples apart. Examples that are all the same give 0.
    """
    states = _single(representations)
    moved = states - states.mean(-2, keepdim=True)
    # Round-off of a constant is not variation.
    floor = 8 * torch.finfo(states.dtype).eps * _largest(states, (-2, -1))
    return torch.where(_largest(moved, (-2, -1)) <= floor, 0.0, moved)


def centred_paired_cosine(
    source: Float[Tensor, "*batch pair d_model"],
    target: Float[Tensor, "*batch pair d_model"],
) -> Float[Tensor, "*batch pair"]:
    """Paired cosine after each set is centred on its own mean, in [-1, 1]."""
    return paired_cosine(centred(source), centred(target))


def sparsified(
    activations: Float[Tensor, "*batch width"], share: float
) -> Float[Tensor, "*batch width"]:
    """Activations with all but the largest by absolute value set to 0.

    Of the last axis round(share * width) stay, at least one; the measure of "Feature
    Resemblance", Table 3, keeps a fifth. Fewer common parts are left to share, so that
    cosines of what remains are nearer 0.

    Args:
        activations: Any activations.
        share: How much stays, in (0, 1].

    >>> sparsified(torch.tensor([3.0, -4.0, 1.0, 0.5]), 0.5).tolist()
    [3.0, -4.0, 0.0, 0.0]
    """
    if not 0 < share <= 1:
        raise ValueError(f"share {share} must be in (0, 1]")
    n_kept = max(1, round(share * activations.shape[-1]))
    kept = activations.abs().topk(n_kept, -1).indices
    values = activations.gather(-1, kept)
    return torch.zeros_like(activations).scatter(-1, kept, values)


def nearest_match_accuracy(
    source: Float[Tensor, "*batch pair d_model"],
    target: Float[Tensor, "*batch pair d_model"],
    *,
    tolerance: float = 1e-5,
) -> Float[Tensor, "*batch"]:
    """Share of sources whose nearest target (by cosine) is their own, in [0, 1].

    Chance is 1 / n_pairs. Targets within `tolerance` of the largest cosine tie and
    share the credit, so that collapsed representations score chance rather than
    round-off. `top1` of the study of "Identity Bridge".
    """
    cosines = einsum(
        _unit(source),
        _unit(target),
        "... pair d_model, ... other d_model -> ... pair other",
    )
    nearest = cosines >= cosines.amax(-1, keepdim=True) - tolerance
    own = nearest.diagonal(dim1=-2, dim2=-1)
    # Nothing is nearest to NaN: 0 / 0.
    return (own / nearest.sum(-1)).to(cosines.dtype).mean(-1)


def compressed(
    examples: Float[Tensor, "*batch example d_model"],
) -> Float[Tensor, "*batch example width"]:
    """The same examples, rotated into no more dimensions than there are examples.

    Inner products stay, and so does all that is blind to rotation; with few examples in
    a wide stream it is found many times faster.
    """
    n_examples, d_model = examples.shape[-2:]
    if d_model <= n_examples:
        return examples
    return torch.linalg.qr(_single(examples).mT, mode="r").R.mT


def linear_cka(
    source: Float[Tensor, "*batch example d_source"],
    target: Float[Tensor, "*batch example d_target"],
) -> Float[Tensor, "*batch"]:
    """Linear centred kernel alignment, in [0, 1]; 1 up to rotation and scale.

    CKA = |T'S|_F^2 / (|S'S|_F |T'T|_F) with centred columns; Kornblith et al. 2019,
    "Similarity of Neural Network Representations Revisited", Section 3. Biased upwards
    when examples are few against d_model: then use `debiased_linear_cka`. A set without
    variation gives 0.
    """
    s, t = _unit_frobenius(source), _unit_frobenius(target)
    cross = (s.mT @ t).square().sum((-2, -1))
    own = (s.mT @ s).norm(dim=(-2, -1)) * (t.mT @ t).norm(dim=(-2, -1))
    return torch.where(own == 0, 0.0, cross / own).clamp(0, 1)


def debiased_linear_cka(
    source: Float[Tensor, "*batch example d_source"],
    target: Float[Tensor, "*batch example d_target"],
) -> Float[Tensor, "*batch"]:
    """Linear CKA with the unbiased HSIC: at most 1, about 0 for unrelated sets.

    HSIC_1 of Song et al. 2012, "Feature Selection via Dependence Maximization", Eq. 4,
    put in place of HSIC. Needs at least 4 examples. Can be slightly negative. A set
    without structure (no variation, or all examples equally far apart) gives 0.
    """
    if source.shape[-2] < 4:
        raise ValueError(f"debiased CKA needs 4 examples, got {source.shape[-2]}")
    s, t = _hollow_gram(_unit_frobenius(source)), _hollow_gram(_unit_frobenius(target))
    own = _own_hsic(s) * _own_hsic(t)
    return torch.where(own == 0, 0.0, _unbiased_hsic(s, t) / own.sqrt())


def procrustes_distance(
    source: Float[Tensor, "*batch example d_model"],
    target: Float[Tensor, "*batch example d_model"],
) -> Float[Tensor, "*batch"]:
    """Squared distance after the best rotation, in [0, 2]; 0 up to rotation and scale.

    With sets centred and scaled to unit Frobenius norm: 2 - 2 |T'S|_*, the nuclear
    norm; Ding, Denain and Steinhardt 2021, "Grounding Representation Similarity with
    Statistical Testing", Section 2. A set without variation gives 2.
    """
    product = _unit_frobenius(target).mT @ _unit_frobenius(source)
    # The SVD refuses NaN, in one layer for all of them.
    known = product.isfinite().all(-1).all(-1)[..., None, None]
    sizes = torch.linalg.svdvals(torch.where(known, product, 0.0)).sum(-1)
    distance = (2 - 2 * sizes).clamp(0, 2)
    return torch.where(known[..., 0, 0], distance, torch.nan)


def polar_coordinates(cosines: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """The polar angle of each cosine, in [0, pi] radians: theta = arccos(cos).

    The radius of the polar plot is the layer ("Identity Bridge", Figure 6): it is the
    label of the Measurement's `layer` axis, which `figures.polar` draws.
    """
    return cosines.clamp(-1, 1).arccos()


def _derangement(n: int, generator: torch.Generator) -> Int[Tensor, " pair"]:
    if n < 2:
        raise ValueError(f"mismatched pairs need at least 2 pairs, got {n}")
    places = torch.arange(n, device=generator.device)
    while True:
        order = torch.randperm(n, generator=generator, device=generator.device)
        if not bool((order == places).any()):
            return order


def _hollow_gram(
    examples: Float[Tensor, "*batch example d_model"],
) -> Float[Tensor, "*batch example example"]:
    gram = examples @ examples.mT
    return gram - torch.diag_embed(gram.diagonal(dim1=-2, dim2=-1))


def _unbiased_hsic(
    k: Float[Tensor, "*batch example example"],
    l: Float[Tensor, "*batch example example"],  # noqa: E741
) -> Float[Tensor, "*batch"]:
    n = k.shape[-1]
    trace = (k * l).sum((-2, -1))
    product = k.sum((-2, -1)) * l.sum((-2, -1)) / ((n - 1) * (n - 2))
    rows = (k.sum(-1) * l.sum(-1)).sum(-1) * 2 / (n - 2)
    return (trace + product - rows) / (n * (n - 3))


def _own_hsic(gram: Float[Tensor, "*batch example example"]) -> Float[Tensor, "*batch"]:
    found, n = _unbiased_hsic(gram, gram), gram.shape[-1]
    # At least 0, and round-off of its terms is not more.
    floor = (
        16 * torch.finfo(gram.dtype).eps / (n * (n - 3)) * gram.square().sum((-2, -1))
    )
    return torch.where(found <= floor, 0.0, found)


def _unit_frobenius(
    examples: Float[Tensor, "*batch example d_model"],
) -> Float[Tensor, "*batch example width"]:
    """Centred, compressed and of Frobenius norm 1; 0 without variation."""
    moved = compressed(_near_one(centred(examples), (-2, -1)))
    norm = moved.norm(dim=(-2, -1), keepdim=True)
    return torch.where(norm == 0, 0.0, moved / norm)


def _unit(states: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
    """States of length 1, whatever their scale; 0 stays 0."""
    return normalize(_near_one(_single(states), (-1,)), dim=-1)


def _near_one(
    values: Float[Tensor, "*shape"], axes: tuple[int, ...]
) -> Float[Tensor, "*shape"]:
    """Values over the power of two below their largest: exact, and squares are safe."""
    largest = _largest(values.detach(), axes)
    exponent = torch.frexp(largest).exponent - 1
    return values / torch.ldexp(torch.ones_like(largest), exponent)


def _largest(
    values: Float[Tensor, "*shape"], axes: tuple[int, ...]
) -> Float[Tensor, "*reduced"]:
    return values.abs().amax(axes, keepdim=True)


def _single(values: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Values in single precision, or double if they are."""
    return values.to(torch.promote_types(values.dtype, torch.float32))

"""Do two sets of representations point the same way, pair by pair?

`source[i]` and `target[i]` are the states that a mechanism claims to align (a subject's
first-hop output and its bridge, two entities with one label). Falsified by: cosines of
matching pairs no larger than those of mismatched ones.
"""

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import normalize


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
        normalize(source, dim=-1),
        normalize(target, dim=-1),
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
    *,
    generator: torch.Generator,
    n_shuffles: int = 100,
) -> Float[Tensor, "*batch shuffle"]:
    """Mean cosine over mismatched pairs, one value per shuffle, in [-1, 1].

    Each shuffle is a uniform derangement: no source keeps its own target. The same
    derangement serves all leading axes.
    """
    unit_source, unit_target = normalize(source, dim=-1), normalize(target, dim=-1)
    null = []
    for _ in range(n_shuffles):
        order = _derangement(source.shape[-2], generator).to(target.device)
        cosines = (unit_source * unit_target[..., order, :]).sum(-1)
        null.append(cosines.mean(-1))
    return torch.stack(null, -1).clamp(-1, 1)


def centred(
    representations: Float[Tensor, "*batch example d_model"],
) -> Float[Tensor, "*batch example d_model"]:
    """Representations minus their mean over examples.

    Residual streams share a large common direction; without it, a cosine measures what
    tells the examples apart.
    """
    return representations - representations.mean(-2, keepdim=True)


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
        normalize(source, dim=-1),
        normalize(target, dim=-1),
        "... pair d_model, ... other d_model -> ... pair other",
    )
    nearest = cosines >= cosines.amax(-1, keepdim=True) - tolerance
    own = nearest.diagonal(dim1=-2, dim2=-1)
    return (own / nearest.sum(-1).clamp(min=1)).to(source.dtype).mean(-1)


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
    s, t = centred(source), centred(target)
    cross = (s.mT @ t).square().sum((-2, -1))
    own = (s.mT @ s).norm(dim=(-2, -1)) * (t.mT @ t).norm(dim=(-2, -1))
    return torch.where(own > 0, cross / own, 0.0).clamp(0, 1)


def debiased_linear_cka(
    source: Float[Tensor, "*batch example d_source"],
    target: Float[Tensor, "*batch example d_target"],
) -> Float[Tensor, "*batch"]:
    """Linear CKA with the unbiased HSIC: at most 1, about 0 for unrelated sets.

    HSIC_1 of Song et al. 2012, "Feature Selection via Dependence Maximization", Eq. 4,
    put in place of HSIC. Needs at least 4 examples. Can be slightly negative.
    """
    if source.shape[-2] < 4:
        raise ValueError(f"debiased CKA needs 4 examples, got {source.shape[-2]}")
    s, t = _hollow_gram(centred(source)), _hollow_gram(centred(target))
    own = _unbiased_hsic(s, s) * _unbiased_hsic(t, t)
    cross = _unbiased_hsic(s, t)
    return torch.where(own > 0, cross / own.clamp(min=0).sqrt(), 0.0)


def procrustes_distance(
    source: Float[Tensor, "*batch example d_model"],
    target: Float[Tensor, "*batch example d_model"],
) -> Float[Tensor, "*batch"]:
    """Squared distance after the best rotation, in [0, 2]; 0 up to rotation, scale.

    With sets centred and scaled to unit Frobenius norm: 2 - 2 |T'S|_*, the nuclear
    norm; Ding, Denain and Steinhardt 2021, "Grounding Representation Similarity with
    Statistical Testing", Section 2.
    """
    s, t = _unit_frobenius(centred(source)), _unit_frobenius(centred(target))
    return (2 - 2 * torch.linalg.svdvals(t.mT @ s).sum(-1)).clamp(0, 2)


def principal_angles(
    source: Float[Tensor, "d_source d_model"], target: Float[Tensor, "d_target d_model"]
) -> Float[Tensor, " angle"]:
    """Angles between the spans of two sets of directions, ascending, in [0, pi / 2].

    arccos of the singular values of Q_s' Q_t, with Q orthonormal bases; there are as
    many as the smaller span has dimensions (Björck and Golub 1973).
    """
    cosines = torch.linalg.svdvals(_orthonormal(source) @ _orthonormal(target).mT)
    return cosines.clamp(0, 1).arccos()


def subspace_overlap(
    source: Float[Tensor, "d_source d_model"], target: Float[Tensor, "d_target d_model"]
) -> Float[Tensor, ""]:
    """Mean squared cosine of the principal angles of two spans, in [0, 1].

    1 if the smaller span lies in the larger one, 0 if they are orthogonal; two random
    spans give max(d_source, d_target) / d_model on average.
    """
    return principal_angles(source, target).cos().square().mean()


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


def _unit_frobenius(
    examples: Float[Tensor, "*batch example d_model"],
) -> Float[Tensor, "*batch example d_model"]:
    norm = examples.norm(dim=(-2, -1), keepdim=True)
    return torch.where(norm > 0, examples / norm, 0.0)


def _orthonormal(
    directions: Float[Tensor, "rank d_model"],
) -> Float[Tensor, "rank d_model"]:
    _, sizes, basis = torch.linalg.svd(directions, full_matrices=False)
    floor = torch.finfo(directions.dtype).eps * max(directions.shape) * sizes.amax()
    if len(sizes) < len(directions) or bool((sizes <= floor).any()):
        raise ValueError(
            f"{len(directions)} directions span only {int((sizes > floor).sum())} "
            "dimensions; give linearly independent ones"
        )
    return basis

"""Where does attention go, and does it bind what belongs together?

Every function takes attention rows `*batch key`; a pattern `*batch query key` is such a
tensor, with `query` as its last batch axis. Falsified by: mass on the named keys no
larger than their share of all keys, or pairs no more alike than cyclically shifted
ones.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def attention_mass(
    rows: Float[Tensor, "*batch key"],
    keys: Bool[Tensor, "*#batch key"] | Int[Tensor, "*#batch target"],
) -> Float[Tensor, "*batch"]:
    """Attention on a set of keys, in [0, 1].

    mass = sum over k in keys of A[k].

    Args:
        rows: Attention rows, each summing to one.
        keys: A mask over keys, or key positions (a repeated position counts once);
            either one set for all rows or, with as many axes as `rows`, one per row
            (an axis may have size 1). Sets by prompt are [batch, 1, key] for the rows
            [batch, head, key]: [batch, key] would be taken for sets by head.

    >>> attention_mass(torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0, 2])).item()
    0.699999988079071
    """
    if keys.ndim not in (1, rows.ndim):
        raise ValueError(
            f"key sets of shape {tuple(keys.shape)} for rows of shape "
            f"{tuple(rows.shape)}; valid: one axis, or {rows.ndim}"
        )
    mask = keys if keys.dtype == torch.bool else _key_mask(rows, keys)
    # Many small weights in half precision would not add up.
    exact = torch.promote_types(rows.dtype, torch.float32)
    return torch.where(mask, rows, 0.0).sum(-1, dtype=exact)


def concentration_error(
    rows: Float[Tensor, "*batch key"],
    targets: Bool[Tensor, "*#batch key"] | Int[Tensor, "*#batch target"],
) -> Float[Tensor, "*batch"]:
    """Attention that misses its targets, in [0, 1]; 0 is perfect concentration.

    eps = 1 - sum over k in targets of A[k]. "Transformers Provably Learn
    Chain-of-Thought Reasoning with Length Generalization" calls eps the attention
    concentration degree; there the targets are the predicate with the next action and
    the last answer.
    """
    return 1 - attention_mass(rows, targets)


def balance_gap(
    rows: Float[Tensor, "*batch key"], targets: Int[Tensor, "*#batch 2"]
) -> Float[Tensor, "*batch"]:
    """Difference of the attention on two targets, in [0, 1]; 0 is balanced.

    Delta = |A[first] - A[second]|, of "Transformers Provably Learn Chain-of-Thought
    Reasoning with Length Generalization" (the attention gap beside eps).
    """
    first = attention_mass(rows, targets[..., :1])
    second = attention_mass(rows, targets[..., 1:])
    return (first - second).abs()


def attention_entropy(rows: Float[Tensor, "*batch key"]) -> Float[Tensor, "*batch"]:
    """Shannon entropy of each row in nats, in [0, log n_keys].

    H = -sum over k of A[k] log A[k], with 0 log 0 = 0; in float32 or better.
    """
    exact = rows.to(torch.promote_types(rows.dtype, torch.float32))
    return torch.special.entr(exact).sum(-1)


def within_pair_ratio(
    rows: Float[Tensor, "*batch key"], pairs: Int[Tensor, "pair 2"]
) -> Float[Tensor, "*batch"]:
    """Largest ratio of the two weights of a pair, in [1, inf]; 1 is equal inside pairs.

    psi = max over pairs (i, j) of max(A[i], A[j]) / min(A[i], A[j]), with 0 / 0 = 1.
    Lemma 8 of "Fine-Tuning Dynamics of In-Context Factual Recall in Transformers": psi
    falls once training leaves the saddle. Average over prompts first, never over seeds.

    >>> within_pair_ratio(torch.tensor([0.1, 0.2, 0.7]), torch.tensor([[0, 1]])).item()
    2.0
    """
    weights = _pair_weights(rows, pairs)
    heavy, light = weights.amax(-1), weights.amin(-1)
    return torch.where(heavy == light, 1.0, heavy / light).amax(-1)


def pair_gap(
    rows: Float[Tensor, "*batch key"], pairs: Int[Tensor, "pair 2"]
) -> Float[Tensor, "*batch"]:
    """Smallest difference between the mean weights of two pairs, in [0, 1/2].

    gap = min over pairs p != q of |mean(A[p]) - mean(A[q])|, per token. The relation
    can only be told from a confusing one if pairs are distinct ("Fine-Tuning Dynamics
    of In-Context Factual Recall in Transformers", Theorem 2: a is not 1/4).
    """
    return _smallest_gap(_pair_weights(rows, pairs).mean(-1))


def rest_mass(
    rows: Float[Tensor, "*batch key"], pairs: Int[Tensor, "pair 2"]
) -> Float[Tensor, "*batch"]:
    """Attention outside all pairs, in [0, 1]: the query subject, EoS, anything else.

    rest = sum over k in no pair of A[k]; 0 in Theorem 2 of "Fine-Tuning Dynamics of
    In-Context Factual Recall in Transformers".
    """
    return attention_mass(rows, ~_key_mask(rows, pairs.flatten()))


def pair_coherence(
    subject_mass: Float[Tensor, "*batch pair"],
    answer_mass: Float[Tensor, "*batch pair"],
) -> Float[Tensor, "*batch"]:
    """Do subjects and answers of a pair rise and fall together? In [-1, 1].

    Pearson correlation over pairs i of S_i and A_i, the attention of the last token to
    subject i and answer i. A side that does not vary gives 0. With two pairs the value
    is +1 or -1 by construction: use the sign with a binomial test, or four pairs and
    more.
    """
    if subject_mass.shape[-1] < 2:
        raise ValueError(
            f"coherence needs at least 2 pairs, got {subject_mass.shape[-1]}"
        )
    product = _standardised(subject_mass) * _standardised(answer_mass)
    return product.sum(-1).clamp(-1, 1)


def pair_coherence_null(
    subject_mass: Float[Tensor, "*batch pair"],
    answer_mass: Float[Tensor, "*batch pair"],
) -> Float[Tensor, "*batch shift"]:
    """Coherence with the answers cyclically shifted by 1, ..., n_pairs - 1; in [-1, 1].

    Over all shifts, the unshifted one included, the correlations sum to zero, so the
    mean of this null is -coherence / (n_pairs - 1). Compare with its largest value, or
    pool it over prompts.
    """
    shifts = range(1, subject_mass.shape[-1])
    null = [pair_coherence(subject_mass, answer_mass.roll(s, -1)) for s in shifts]
    return torch.stack(null, -1)


def _key_mask(
    rows: Float[Tensor, "*batch key"], keys: Int[Tensor, "*#batch target"]
) -> Bool[Tensor, "*batch key"]:
    _check_positions(keys, rows.shape[-1])
    index = keys.long().expand(*rows.shape[:-1], keys.shape[-1])
    return torch.zeros_like(rows, dtype=torch.bool).scatter(-1, index, True)


def _pair_weights(
    rows: Float[Tensor, "*batch key"], pairs: Int[Tensor, "pair 2"]
) -> Float[Tensor, "*batch pair 2"]:
    _check_positions(pairs, rows.shape[-1])
    if len(set(pairs.flatten().tolist())) != pairs.numel():
        raise ValueError(f"pairs share a key: {pairs.tolist()}")
    return rows[..., pairs]


def _check_positions(keys: Int[Tensor, "*shape"], n_keys: int) -> None:
    if keys.numel() and (int(keys.min()) < 0 or int(keys.max()) >= n_keys):
        raise ValueError(
            f"key positions from {int(keys.min())} to {int(keys.max())}; "
            f"valid: 0 to {n_keys - 1}"
        )


def _smallest_gap(per_pair: Float[Tensor, "*batch pair"]) -> Float[Tensor, "*batch"]:
    if per_pair.shape[-1] < 2:
        raise ValueError(f"a gap needs at least 2 pairs, got {per_pair.shape[-1]}")
    return per_pair.sort(-1).values.diff(dim=-1).amin(-1)


def _standardised(values: Float[Tensor, "*batch pair"]) -> Float[Tensor, "*batch pair"]:
    centred = values - values.mean(-1, keepdim=True)
    norm = centred.norm(dim=-1, keepdim=True)
    # Round-off of a constant is not variation.
    floor = 8 * torch.finfo(values.dtype).eps * values.norm(dim=-1, keepdim=True)
    return torch.where(norm <= floor, 0.0, centred / norm)

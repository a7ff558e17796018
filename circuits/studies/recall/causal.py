"""Does the pairwise pattern cause the answer? Interventions on attention and memory.

Run on the fully fine-tuned model with the affine table, where every prompt has
exactly one confusing relation.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from circuits.claims import Observed
from circuits.hooks import Edit, intervene
from trained.recall.model import RecallModel, memory_neurons
from trained.recall.prompts import (
    Prompts,
    confusing_relations,
    draw_prompts,
)
from trained.recall.setting import constructed_model, relation_table
from trained.seeding import generator

from .context import MEMORY, PATTERN, Context, relation_accuracy, relation_logits

LIGHT, HEAVY = 0.18, 0.32
SADDLE = (0.25, 0.25, 0.25, 0.25, 0.0, 0.0)
PAIRWISE = (LIGHT, LIGHT, HEAVY, HEAVY, 0.0, 0.0)
MIRRORED = (HEAVY, HEAVY, LIGHT, LIGHT, 0.0, 0.0)
CROSSED = (HEAVY, LIGHT, LIGHT, HEAVY, 0.0, 0.0)
ONE_PAIR = (0.0, 0.0, 0.5, 0.5, 0.0, 0.0)
SUBJECTS = (0.5, 0.0, 0.5, 0.0, 0.0, 0.0)
UNIFORM = (1 / 6,) * 6

CONFLICT_SUBJECTS, CONFLICT_RELATIONS = 16, 64

Measures = dict[str, tuple[float, float]]
"""claim name -> (value, control) of one seed."""


def observe(context: Context) -> dict[str, Observed]:
    """All interventions at the first step, seed by seed."""
    rows = []
    for seed in context.seeds:
        model = context.fine_tuned("full", "affine", seed)
        prompts = context.prompts("affine", seed)
        rows.append(
            {
                **_attention(model, prompts),
                **_knock_outs(model, prompts),
                **_neurons(model, prompts),
                **_replaced_pair(model, prompts, seed),
                "conflict": _conflict(seed),
            }
        )
    return {
        f"recall.cause.{name}": Observed.of(
            [row[name][0] for row in rows], [row[name][1] for row in rows]
        )
        for name in rows[0]
    }


def attend(weights: tuple[float, ...]) -> Edit:
    """The edit that gives every prompt the same attention."""

    def edit(pattern: Tensor) -> Tensor:
        return pattern.new_tensor(weights).expand_as(pattern)

    return edit


def knock_out(position: int) -> Edit:
    """The edit that takes a position's attention away and renormalises the rest."""

    def edit(pattern: Tensor) -> Tensor:
        kept = pattern.clone()
        kept[..., position] = 0
        return kept / kept.sum(-1, keepdim=True)

    return edit


def silence(neurons: Int[Tensor, "batch neuron"]) -> Edit:
    """The edit that sets some neurons of each prompt to zero."""

    def edit(activation: Tensor) -> Tensor:
        return activation.scatter(-1, neurons[:, None], 0.0)

    return edit


def _accuracy_under(model: RecallModel, prompts: Prompts, **edits: Edit) -> float:
    sites = {"pattern": PATTERN, "memory": MEMORY}
    with intervene(model, {sites[name]: edit for name, edit in edits.items()}):
        return relation_accuracy(model, prompts)


def _decodes(
    model: RecallModel, prompts: Prompts, wanted: Bool[Tensor, "batch relation"]
) -> float:
    """Share of prompts whose best relation is the wanted one."""
    best = relation_logits(model, prompts).argmax(1, keepdim=True)
    return float(wanted.gather(1, best).double().mean())


def _attention(model: RecallModel, prompts: Prompts) -> Measures:
    def under(weights: tuple[float, ...]) -> float:
        return _accuracy_under(model, prompts, pattern=attend(weights))

    intact = relation_accuracy(model, prompts)
    saddle = under(SADDLE)
    confusing = confusing_relations(prompts)
    with intervene(model, {PATTERN: attend(CROSSED)}):
        crossed = _decodes(model, prompts, confusing)
    with intervene(model, {PATTERN: attend(PAIRWISE)}):
        pairwise = _decodes(model, prompts, confusing)
    return {
        "uniform": (under(UNIFORM), intact),
        "saddle": (saddle, intact),
        "pairwise": (min(under(PAIRWISE), under(MIRRORED)), saddle),
        "crossed": (crossed, pairwise),
        "one-pair": (under(ONE_PAIR), intact),
        "subjects-only": (under(SUBJECTS), intact),
    }


def _knock_outs(model: RecallModel, prompts: Prompts) -> Measures:
    def without(position: int) -> float:
        return _accuracy_under(model, prompts, pattern=knock_out(position))

    examples = max(without(position) for position in range(4))
    others = min(without(position) for position in (4, 5))
    return {"knock-out": (examples, others)}


def _neurons(model: RecallModel, prompts: Prompts) -> Measures:
    """Neurons of the examples' facts, of the crossed pairs, and unrelated ones."""
    relation_neurons = memory_neurons(prompts.table)[1]
    s, a = prompts.subjects, prompts.answers
    facts = [relation_neurons[s[:, i], a[:, i]][:, None] for i in (0, 1)]
    crossed = torch.stack(
        [relation_neurons[s[:, 0], a[:, 1]], relation_neurons[s[:, 1], a[:, 0]]], dim=1
    )
    unrelated = _unrelated_neurons(prompts)

    def at_saddle(neurons: Tensor) -> float:
        edits: dict[str, Edit] = {"pattern": attend(SADDLE), "memory": silence(neurons)}
        return _accuracy_under(model, prompts, **edits)

    return {
        "fact-neurons": (
            max(_accuracy_under(model, prompts, memory=silence(f)) for f in facts),
            _accuracy_under(model, prompts, memory=silence(unrelated)),
        ),
        "crossed-neurons": (at_saddle(crossed), at_saddle(unrelated)),
    }


def _unrelated_neurons(prompts: Prompts) -> Int[Tensor, "batch 2"]:
    """Active relation neurons that neither the true nor a confusing relation uses.

    Those of (s1, a3) and (s2, a3): the prompt shows the subject, so they fire, unlike
    neurons of hidden pairs, which would be silent anyway.
    """
    relation_neurons = memory_neurons(prompts.table)[1]
    return relation_neurons[prompts.subjects[:, :2], prompts.answers[:, 2:]]


def _replaced_pair(model: RecallModel, prompts: Prompts, seed: int) -> Measures:
    """Answer of pair 1 changed so that (new pair 1, pair 2) fits another relation."""
    table = prompts.table
    n = table.shape[1]
    s, a = prompts.subjects, prompts.answers
    shift = torch.randint(1, n, (len(s),), generator=generator(seed, "replaced pair"))
    replaced = (a[:, 0] + shift) % n
    # The two pairs must not share their answer: no bijection would fit.
    usable = replaced != a[:, 1]
    kept = prompts.where(usable)
    images = table.T[kept.subjects]
    fits = images[:, 0] == replaced[usable, None]
    fits &= images[:, 1] == kept.answers[:, 1:2]
    tokens = kept.relation_step().tokens.clone()
    tokens[:, 1] = n + replaced[usable]
    logits = model(tokens)[:, 0, 2 * n : 2 * n + len(table)]
    best = logits.argmax(1, keepdim=True)
    followed = float(fits.gather(1, best).double().mean())
    original = float((best[:, 0] == kept.relation).double().mean())
    return {"replaced-pair": (followed, original)}


@torch.no_grad()
def _conflict(seed: int) -> tuple[float, float]:
    """Two pairs that no relation fits together: which pair's relations win?

    The value is the share that follows the heavy pair minus the share that follows
    the light one; the control is the same difference with both pairs equal.
    """
    table = relation_table("random", CONFLICT_SUBJECTS, CONFLICT_RELATIONS, seed)
    model = constructed_model(table, 2, seed)
    source = generator(seed, "conflict")
    first, second = (draw_prompts(table, 2, 4000, generator=source) for _ in range(2))
    s = torch.stack([first.subjects[:, 0], second.subjects[:, 1]], dim=1)
    a = torch.stack([first.answers[:, 0], second.answers[:, 1]], dim=1)
    query = first.subjects[:, 2]
    fits = table.T[s] == a[:, :, None]
    distinct = (
        (s[:, 0] != s[:, 1]) & (query[:, None] != s).all(1) & (a[:, 0] != a[:, 1])
    )
    usable = distinct & ~fits.all(1).any(1)
    n = table.shape[1]
    end = torch.full_like(query, 2 * n + len(table))
    tokens = torch.stack(
        [s[:, 0], n + a[:, 0], s[:, 1], n + a[:, 1], query, end], dim=1
    )

    def lead(weights: tuple[float, ...]) -> float:
        with intervene(model, {PATTERN: attend(weights)}):
            logits = model(tokens[usable])[:, 0, 2 * n : 2 * n + len(table)]
        credit = [_followed(logits, fits[usable, pair]) for pair in (0, 1)]
        return credit[1] - credit[0]

    return lead(PAIRWISE), lead(SADDLE)


def _followed(
    logits: Float[Tensor, "batch relation"], wanted: Bool[Tensor, "batch relation"]
) -> float:
    """Share of the best relations (ties split) that are wanted."""
    tied = logits >= logits.amax(1, keepdim=True) - 1e-4
    return float(((tied & wanted).sum(1) / tied.sum(1)).double().mean())

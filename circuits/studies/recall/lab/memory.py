"""Is the constructed memory what Lemma 1 and Table 2 say, and what is a learned one?

Functions of a model.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from circuits.interventions.ablation import ablate
from circuits.interventions.edit import Put
from circuits.interventions.part import Part
from circuits.interventions.passes import answer_logits
from trained.recall.model import RecallModel
from trained.recall.task import (
    Episodes,
    Table,
    Vocabulary,
    draw_episodes,
    draw_facts,
)
from trained.recall.theory import pattern_of_relation, quadratic_forms, relation_logits
from trained.seeding import generator

N_FORMULA = 50
"""Prompts with random attention; the formulas are identities, not estimates."""


def shuffled(model: RecallModel, seed: int) -> RecallModel:
    """The model, changed: its memory's values are assigned to the wrong keys."""
    values = model.memory.W_out
    order = torch.randperm(len(values), generator=generator(seed, "shuffled memory"))
    values.data = values.data[order]
    return model


def fact_measures(models: Sequence[tuple[Tensor, RecallModel]]) -> dict[str, float]:
    """How the memories recall all facts, the worst of several."""
    rights, wrongs, hits = [], [], []
    for table, model in models:
        for logits, right in _fact_logits(model, table):
            rights.append(logits[right])
            wrongs.append(logits[~right].max())
            best = logits.argmax(1, keepdim=True)
            hits.append(right.gather(1, best)[:, 0].double())
    all_right = torch.cat(rights)
    return {
        "right": float(all_right[(all_right - 4).abs().argmax()]),
        "mean right": float(all_right.mean()),
        "wrong": float(torch.stack(wrongs).max()),
        "recalled": float(torch.cat(hits).mean()),
    }


@torch.no_grad()
def _fact_logits(
    model: RecallModel, table: Table
) -> list[tuple[Float[Tensor, "fact d_vocab"], Bool[Tensor, "fact d_vocab"]]]:
    """For each token left out of every fact: all logits, and which are right.

    The memory is asked directly, with h = phi(u1) + phi(u2).
    """
    n_relations, n = table.shape
    words = Vocabulary.of(table)
    relation = torch.arange(n_relations).repeat_interleave(n)
    subject = torch.arange(n).repeat(n_relations)
    answer = n + table.flatten()
    phi = model.W_E
    s, a, r = phi[subject], phi[answer], phi[2 * n + relation]
    fits = torch.zeros(len(relation), words.size, dtype=torch.bool)
    fits[:, words.relations] = table[:, subject].T + n == answer[:, None]
    asked = (
        (s + r, F.one_hot(answer, words.size).bool()),
        (a + r, F.one_hot(subject, words.size).bool()),
        (s + a, fits),
    )
    return [(model.memory(h[:, None])[:, 0] @ phi.T, right) for h, right in asked]


def formula_error(table: Table, model: RecallModel, seed: int) -> float:
    """Largest difference between the model under random attention and the formulas."""
    source = generator(seed, "random attention")
    k, count = model.n_examples, N_FORMULA
    episodes = draw_episodes(table, k, count, generator=source)
    attention = torch.rand(count, 2 * k + 3, generator=source, dtype=torch.float64)
    first = attention[:, :-1] / attention[:, :-1].sum(1, keepdim=True)
    second = attention / attention.sum(1, keepdim=True)
    words = Vocabulary.of(table)
    batch, later = episodes.relation_step(), episodes.answer_step()
    parts = [Part("pattern", 0)]
    with ablate(model, batch, parts, Put(first[:, None, None])):
        logits = answer_logits(model, batch)
    by_pattern = relation_logits(first, quadratic_forms(k))
    expected = by_pattern.gather(1, pattern_of_relation(episodes))
    error = (logits[:, words.relations] - expected).abs().max()
    subjects, answers = first[:, 0:-1:2], first[:, 1:-1:2]
    for kind, squares in (
        (slice(0, words.n_subjects), answers),
        (words.answers, subjects),
    ):
        flat = squares.square().sum(1, keepdim=True)
        error = torch.maximum(error, (logits[:, kind] - flat).abs().max())
    with ablate(model, later, parts, Put(second[:, None, None])):
        logits = answer_logits(model, later)[:, words.answers]
    difference = logits - _second_step_formula(second, episodes)
    return float(torch.maximum(error, difference.abs().max()))


def _second_step_formula(
    attention: Float[Tensor, "batch key"], episodes: Episodes
) -> Float[Tensor, "batch answer"]:
    """l(a_i) = sum_j q_j^2 - q_i^2 + (q_i + c)^2, others sum_j q_j^2 + c^2."""
    subjects, strength = attention[:, 0:-2:2], 1 + attention[:, -1:]
    base = subjects.square().sum(1, keepdim=True) + strength.square()
    logits = base.repeat(1, episodes.table.shape[1])
    return logits.scatter_add_(1, episodes.answers, 2 * strength * subjects)


@torch.no_grad()
def facts_known(model: RecallModel, table: Table, count: int, seed: int) -> float:
    """Accuracy on subjects and answers; several relations may fit a pair of them."""
    batch = draw_facts(table, count, generator=generator(seed, "fact test"))
    asked = batch.targets < Vocabulary.of(table).relations.start
    predicted = model(batch.tokens.to(model.W_E.device))[:, 0].argmax(1).cpu()
    return float((predicted == batch.targets)[asked].double().mean())


@torch.no_grad()
def fact_margin(model: RecallModel, table: Table, seed: int) -> float:
    """The right logit minus the largest other, with equal attention on both words."""
    batch = draw_facts(table, 1000, generator=generator(seed, "fact test"))
    asked = batch.targets < Vocabulary.of(table).relations.start
    words = model.W_E[batch.tokens[asked]].sum(1, keepdim=True)
    logits = (model.memory(words) @ model.W_E.T)[:, 0].cpu()
    wanted = batch.targets[asked][:, None]
    right = logits.gather(1, wanted)[:, 0]
    others = logits.scatter(1, wanted, -torch.inf).amax(1)
    return float((right - others).mean())

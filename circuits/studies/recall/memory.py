"""Is the constructed memory what Lemma 1, Table 2 and Lemma 4 say it is?"""

from fractions import Fraction
from math import comb, factorial

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from circuits.claims import Observed
from circuits.hooks import intervene
from probes.statistics import tie_split_accuracy
from trained.recall.losses import two_step_loss
from trained.recall.model import RecallModel
from trained.recall.patterns import (
    pattern_of_relation,
    quadratic_forms,
)
from trained.recall.patterns import (
    relation_logits as pattern_logits,
)
from trained.recall.prompts import (
    Prompts,
    Vocabulary,
    bayes_ceiling,
    confusing_relations,
    draw_prompts,
    mismatched_relations,
)
from trained.recall.relations import Table, all_bijections
from trained.recall.setting import constructed_model, table_of
from trained.seeding import generator

from .context import PATTERN, Context, answer_logits


def observe(context: Context) -> dict[str, Observed]:
    """Lemma 1, Table 2 and eq. 18, Lemma 4, and the shares of prompt types."""
    result = {**_recall_of_facts(context), **_no_chain_of_thought(context)}
    result["recall.memory.formulas"] = _formulas(context)
    if context.config.n_examples == 2:
        result |= _prompt_types(context)
    return result


def _models(context: Context, seed: int) -> list[tuple[Tensor, RecallModel]]:
    """Three subjects, the affine and the random table, in double precision."""
    k = context.config.n_examples
    tables = [table_of(context.config, kind, seed) for kind in ("affine", "random")]
    if k == 2:
        tables.append(all_bijections(3))
    return [
        (table, constructed_model(table, k, seed, dtype=torch.float64))
        for table in tables
    ]


def _shuffled(model: RecallModel, seed: int) -> RecallModel:
    """The model with its memory's values assigned to the wrong keys."""
    values = model.memory.W_out
    order = torch.randperm(len(values), generator=generator(seed, "shuffled memory"))
    values.data = values.data[order]
    return model


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


def _recall_of_facts(context: Context) -> dict[str, Observed]:
    good, bad = [], []
    for seed in context.seeds:
        good.append(_worst_facts(_models(context, seed)))
        spoiled = [(t, _shuffled(m, seed)) for t, m in _models(context, seed)]
        bad.append(_worst_facts(spoiled))
    return {
        "recall.memory.right-logit": Observed.of(
            [g["right"] for g in good], [b["mean right"] for b in bad]
        ),
        "recall.memory.wrong-logit": Observed.of(
            [g["wrong"] for g in good], [b["wrong"] for b in bad]
        ),
        "recall.memory.accuracy": Observed.of(
            [g["accuracy"] for g in good], [b["accuracy"] for b in bad]
        ),
    }


def _worst_facts(models: list[tuple[Tensor, RecallModel]]) -> dict[str, float]:
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
        "accuracy": float(torch.cat(hits).mean()),
    }


def _formulas(context: Context) -> Observed:
    errors, control = [], []
    for seed in context.seeds:
        models = _models(context, seed)
        errors.append(max(_formula_error(t, m, seed) for t, m in models))
        spoiled = [_formula_error(t, _shuffled(m, seed), seed) for t, m in models]
        control.append(min(spoiled))
    return Observed.of(errors, control)


@torch.no_grad()
def _formula_error(table: Table, model: RecallModel, seed: int) -> float:
    """Largest difference between the model under do(random attention) and formulas."""
    source = generator(seed, "random attention")
    k = model.n_examples
    prompts = draw_prompts(table, k, 50, generator=source)
    attention = torch.rand(50, 2 * k + 3, generator=source, dtype=torch.float64)
    first = attention[:, :-1] / attention[:, :-1].sum(1, keepdim=True)
    second = attention / attention.sum(1, keepdim=True)
    words = Vocabulary.of(table)
    with intervene(model, {PATTERN: lambda _: first[:, None, None]}):
        logits = model(prompts.relation_step().tokens)[:, 0]
    by_pattern = pattern_logits(first, quadratic_forms(k))
    expected = by_pattern.gather(1, pattern_of_relation(prompts))
    error = (logits[:, words.relations] - expected).abs().max()
    subjects, answers = first[:, 0:-1:2], first[:, 1:-1:2]
    for kind, squares in (
        (slice(0, words.n_subjects), answers),
        (words.answers, subjects),
    ):
        flat = squares.square().sum(1, keepdim=True)
        error = torch.maximum(error, (logits[:, kind] - flat).abs().max())
    with intervene(model, {PATTERN: lambda _: second[:, None, None]}):
        logits = model(prompts.answer_step().tokens)[:, 0, words.answers]
    difference = logits - _second_step_formula(second, prompts)
    return float(torch.maximum(error, difference.abs().max()))


def _second_step_formula(
    attention: Float[Tensor, "batch key"], prompts: Prompts
) -> Float[Tensor, "batch answer"]:
    """l(a_i) = sum_j q_j^2 - q_i^2 + (q_i + c)^2, others sum_j q_j^2 + c^2."""
    subjects, strength = attention[:, 0:-2:2], 1 + attention[:, -1:]
    base = subjects.square().sum(1, keepdim=True) + strength.square()
    logits = base.repeat(1, prompts.table.shape[1])
    return logits.scatter_add_(1, prompts.answers, 2 * strength * subjects)


def _no_chain_of_thought(context: Context) -> dict[str, Observed]:
    accuracy, with_relation, gradient, with_steps = [], [], [], []
    for seed in context.seeds:
        model = context.fine_tuned("full", "affine", seed)
        prompts = context.prompts("affine", seed)
        accuracy.append(_blind_accuracy(model, prompts))
        second = prompts.answer_step().tokens
        logits = answer_logits(model, second, prompts.table)
        with_relation.append(_argmax_accuracy(logits, prompts.answers[:, -1]))
        untrained = context.fine_tuned("full", "affine", seed, step=0)
        gradient.append(_blind_gradient(untrained, prompts))
        with_steps.append(_two_step_gradient(untrained, prompts, context))
    return {
        "recall.nocot.accuracy": Observed.of(accuracy, with_relation),
        "recall.nocot.gradient": Observed.of(gradient, with_steps),
    }


def _argmax_accuracy(logits: Tensor, targets: Tensor) -> float:
    return float((logits.argmax(1) == targets).double().mean())


def _blind_accuracy(model: RecallModel, prompts: Prompts) -> float:
    """Accuracy on the answer at the first step, ties split."""
    tokens = prompts.relation_step().tokens
    logits = answer_logits(model, tokens, prompts.table)
    return tie_split_accuracy(logits, prompts.answers[:, -1])


def _blind_gradient(model: RecallModel, prompts: Prompts) -> float:
    """Largest gradient entry of the answer's loss at the first step."""
    tokens = prompts.relation_step().tokens
    logits = model(tokens)[:, 0, Vocabulary.of(prompts.table).answers]
    loss = F.cross_entropy(logits, prompts.answers[:, -1])
    (gradient,) = torch.autograd.grad(loss, model.W_KQ)
    return float(gradient.abs().max())


def _two_step_gradient(model: RecallModel, prompts: Prompts, context: Context) -> float:
    loss = two_step_loss(
        model,
        prompts.steps(),
        words=Vocabulary.of(prompts.table),
        temperature=context.config.temperature,
    )
    (gradient,) = torch.autograd.grad(loss, model.W_KQ)
    return float(gradient.abs().max())


def _prompt_types(context: Context) -> dict[str, Observed]:
    n, m = context.config.n_subjects, context.config.n_relations
    expected = closed_forms(n, m)
    seen = [_shares(context.prompts("random", seed)) for seed in context.seeds]
    affine = [_shares(context.prompts("affine", seed)) for seed in context.seeds]
    return {
        f"recall.types.{name}": Observed.of(
            [shares[name] - value for shares in seen],
            [shares[name] for shares in affine],
        )
        for name, value in expected.items()
    }


def closed_forms(n_subjects: int, n_relations: int) -> dict[str, float]:
    """Expected shares over random tables of m distinct bijections.

    Of all N = n! bijections, K = (n-2)! send two given subjects to two given answers;
    the m - 1 other rows are drawn from N - 1 without replacement.
    """
    n_all, n_through = factorial(n_subjects), factorial(n_subjects - 2)
    m = n_relations

    def none_of(excluded: int, among: int, drawn: int) -> float:
        return float(Fraction(comb(among - excluded, drawn), comb(among, drawn)))

    return {
        "confusing": 1 - none_of(n_through, n_all - 1, m - 1),
        "mismatched": 1 - none_of(4 * n_through, n_all - 1, m - 1),
        "ceiling": n_all / (m * n_through) * (1 - none_of(n_through, n_all, m)),
    }


def _shares(prompts: Prompts) -> dict[str, float]:
    return {
        "confusing": float(confusing_relations(prompts).any(1).double().mean()),
        "mismatched": float(mismatched_relations(prompts).any(1).double().mean()),
        "ceiling": bayes_ceiling(prompts),
    }

"""The trained attention: Figures 2 and 4. Equal in pairs, distinct across them?"""

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.claims import Observed
from probes.attention import pair_gap, rest_mass, within_pair_ratio
from probes.statistics import tie_split_accuracy
from trained.recall.arms import TRIPLE_TEMPERATURES
from trained.recall.losses import draw_facts
from trained.recall.model import RecallModel
from trained.recall.optimum import optimal_attention
from trained.recall.patterns import pattern_counts
from trained.recall.prompts import Prompts, Vocabulary, bayes_ceiling
from trained.recall.setting import triple_table, unseen_prompts
from trained.seeding import generator

from .context import (
    Context,
    answer_logits,
    attention_rows,
    crossed_pairs,
    pairs_of,
    relation_accuracy,
)


def observe(context: Context) -> dict[str, Observed]:
    """Figure 2 for every mode and table; Figures 2b and 4 where they were trained."""
    result: dict[str, Observed] = {}
    for mode in ("full", "partial"):
        for kind in ("affine", "random"):
            result |= _figure2(context, mode, kind)
    if context.config.triple_steps:
        result |= _figure2b(context)
    if context.config.pretrained_steps:
        result |= _figure4(context)
    return result


def mean_attention(
    model: RecallModel, prompts: Prompts, *, step: str = "relation"
) -> Float[Tensor, " key"]:
    """The last token's attention, averaged over prompts of one seed.

    Never averaged over seeds: heavy-first and heavy-second would give the saddle.
    """
    return attention_rows(model, prompts.steps()[step].tokens).double().mean(0)


def _figure2(context: Context, mode: str, kind: str) -> dict[str, Observed]:
    rows = []
    for seed in context.seeds:
        prompts = context.prompts(kind, seed)
        trained = context.fine_tuned(mode, kind, seed)
        untrained = context.fine_tuned(mode, kind, seed, step=0)
        rows.append(_compare(trained, untrained, prompts, context.config.temperature))
    return _collect(f"recall.fig2.{mode}-{kind}", rows)


def _figure2b(context: Context) -> dict[str, Observed]:
    rows = []
    for seed in context.arm_seeds("triple"):
        table = triple_table(context.config, seed)
        prompts = unseen_prompts(table, 3, context.config.n_test, seed)
        trained = context.restore("triple", seed)
        untrained = context.restore("triple", seed, 0)
        assert isinstance(trained, RecallModel)
        assert isinstance(untrained, RecallModel)
        rows.append(_compare(trained, untrained, prompts, 0.01))
    return _collect("recall.fig2b", rows)


Row = dict[str, tuple[float, float]]
"""quantity -> (value, control) of one seed."""


def _collect(prefix: str, rows: list[Row]) -> dict[str, Observed]:
    return {
        f"{prefix}.{name}": Observed.of(
            [row[name][0] for row in rows], [row[name][1] for row in rows]
        )
        for name in rows[0]
    }


def _compare(
    trained: RecallModel, untrained: RecallModel, prompts: Prompts, temperature: float
) -> Row:
    k = prompts.n_examples
    optimum = optimal_attention(pattern_counts(prompts), k, temperature=temperature)
    ceiling = bayes_ceiling(prompts)
    after, before = mean_attention(trained, prompts), mean_attention(untrained, prompts)
    return {
        **_shape(after, before, k),
        "optimum": (_distance(after, optimum), _distance(before, optimum)),
        "accuracy": (
            relation_accuracy(trained, prompts) - ceiling,
            relation_accuracy(untrained, prompts) - ceiling,
        ),
        "answer": _answer_accuracy(trained, prompts),
    }


def _shape(
    after: Float[Tensor, " key"], before: Float[Tensor, " key"], n_examples: int
) -> Row:
    pairs = pairs_of(n_examples)
    return {
        "within-pair": (
            float(within_pair_ratio(after, pairs)),
            float(within_pair_ratio(after, crossed_pairs(n_examples))),
        ),
        "gap": (float(pair_gap(after, pairs)), float(pair_gap(before, pairs))),
        "rest": (float(rest_mass(after, pairs)), float(rest_mass(before, pairs))),
    }


def _distance(
    attention: Float[Tensor, " key"], optimum: Float[Tensor, " key"]
) -> float:
    """Largest difference once the pairs are ordered from light to heavy."""
    pairs = attention[:-2].reshape(-1, 2)
    ordered = pairs[pairs.sum(1).argsort()].flatten()
    return float((torch.cat([ordered, attention[-2:]]) - optimum).abs().max())


def _answer_accuracy(model: RecallModel, prompts: Prompts) -> tuple[float, float]:
    """With the true relation written, and with another one in its place."""
    words = Vocabulary.of(prompts.table)
    tokens = prompts.answer_step().tokens
    answers = prompts.answers[:, -1]
    right = tie_split_accuracy(answer_logits(model, tokens, prompts.table), answers)
    other = tokens.clone()
    shifted = (prompts.relation + 1) % words.n_relations
    other[:, -1] = words.relations.start + shifted
    wrong = tie_split_accuracy(answer_logits(model, other, prompts.table), answers)
    return right, wrong


def _figure4(context: Context) -> dict[str, Observed]:
    rows = [_pretrained_row(context, seed) for seed in context.arm_seeds("pretrained")]
    result = _collect("recall.fig4", rows)
    cold = [_cold_row(context, seed) for seed in context.arm_seeds("pretrained-cold")]
    for name in cold[0]:
        values = [row[name][0] for row in rows]
        result[f"recall.fig4.{name}"] = Observed.of(values, [row[name] for row in cold])
    for temperature in TRIPLE_TEMPERATURES:
        result |= _figure4_triple(context, temperature)
    return result


def _figure4_triple(context: Context, temperature: float) -> dict[str, Observed]:
    arm = f"pretrained-triple-{temperature:g}"
    rows = []
    for seed in context.arm_seeds(arm):
        table = triple_table(context.config, seed)
        prompts = unseen_prompts(table, 3, context.config.n_test, seed)
        after = mean_attention(_recall_model(context, arm, seed), prompts)
        before = mean_attention(_recall_model(context, arm, seed, 0), prompts)
        rows.append(_shape(after, before, 3))
    return _collect(f"recall.fig4.triple-T{temperature:g}", rows)


def _pretrained_row(context: Context, seed: int) -> Row:
    prompts = context.prompts("random", seed)
    model = _recall_model(context, "pretrained", seed)
    untrained = _recall_model(context, "pretrained", seed, 0)
    pretrained = _recall_model(
        context, "pretrained", seed, context.config.pretrained_steps
    )
    after, before = mean_attention(model, prompts), mean_attention(untrained, prompts)
    constructed = context.fine_tuned("full", "random", seed)
    end = 2 * prompts.n_examples + 1
    return {
        **_shape(after, before, prompts.n_examples),
        "facts": (_facts(pretrained, prompts, seed), _facts(untrained, prompts, seed)),
        "lighter-pair": (_lighter(after), 0.0),
        "accuracy": (relation_accuracy(model, prompts), 0.0),
        "end-token": (
            float(mean_attention(model, prompts, step="answer")[end]),
            float(mean_attention(constructed, prompts, step="answer")[end]),
        ),
    }


def _cold_row(context: Context, seed: int) -> dict[str, float]:
    prompts = context.prompts("random", seed)
    model = _recall_model(context, "pretrained-cold", seed)
    return {
        "lighter-pair": _lighter(mean_attention(model, prompts)),
        "accuracy": relation_accuracy(model, prompts),
    }


def _recall_model(
    context: Context, arm: str, seed: int, step: int | None = None
) -> RecallModel:
    model = context.restore(arm, seed, step)
    assert isinstance(model, RecallModel)
    return model


def _lighter(attention: Float[Tensor, " key"]) -> float:
    return float(attention[:-2].reshape(-1, 2).mean(1).min())


@torch.no_grad()
def _facts(model: RecallModel, prompts: Prompts, seed: int) -> float:
    """Accuracy on pretraining facts; a relation counts if it fits the pair."""
    batch = draw_facts(prompts.table, 2000, generator=generator(seed, "fact test"))
    predicted = model(batch.tokens)[:, 0].argmax(1)
    words = Vocabulary.of(prompts.table)
    right = predicted == batch.targets
    asked = batch.targets >= words.relations.start
    pair = batch.tokens.sort(1).values
    subject, answer = pair[:, 0], pair[:, 1] - words.n_subjects
    guess = (predicted - words.relations.start).clamp(0, words.n_relations - 1)
    is_relation = (predicted >= words.relations.start) & (predicted < words.end)
    fits = prompts.table[guess, subject.clamp_max(words.n_subjects - 1)] == answer
    return float((right | (asked & is_relation & fits)).double().mean())

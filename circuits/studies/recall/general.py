"""Any number of subjects at low temperature: Lemmas 2 and 9, Theorems 1 and 3."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from circuits.claims import Observed
from probes.attention import within_pair_ratio
from trained.recall.algorithm import Outcome, Problem, Schedule, algorithm1
from trained.recall.model import RecallModel
from trained.recall.patterns import (
    pattern_counts,
    quadratic_forms,
    relation_accuracy,
    relation_loss,
)
from trained.recall.prompts import (
    Prompts,
    Vocabulary,
    confusing_relations,
    draw_prompts,
)
from trained.recall.relations import Table
from trained.recall.scores import install
from trained.recall.setting import constructed_model, relation_table, unseen_prompts
from trained.seeding import generator

from .context import Context, answer_logits, pairs_of, relation_logits

PROMPTS = 8
"""Fine-tuning prompts of Theorem 3."""

FORMS = quadratic_forms(2)


@dataclass(frozen=True)
class Cell:
    """Algorithm 1 at one number of subjects and one temperature, all seeds."""

    n_subjects: int
    temperature: float
    tables: tuple[Table, ...]
    outcome: Outcome


def solve(n_subjects: int, temperature: float, seeds: tuple[int, ...]) -> Cell:
    """Fine-tune on eight prompts of each seed's affine table."""
    tables = tuple(relation_table("affine", n_subjects, 0, seed) for seed in seeds)
    return _descend(tables, temperature, seeds, Schedule.general(temperature))


def _descend(
    tables: tuple[Table, ...],
    temperature: float,
    seeds: tuple[int, ...],
    schedule: Schedule,
) -> Cell:
    n_subjects = tables[0].shape[1]
    counts = torch.stack(
        [
            pattern_counts(
                draw_prompts(table, 2, PROMPTS, generator=generator(seed, "general"))
            )
            for table, seed in zip(tables, seeds, strict=True)
        ]
    )
    problem = Problem(
        counts, n_subjects=n_subjects, n_examples=2, temperature=temperature
    )
    sources = [generator(seed, "general", "perturb") for seed in seeds]
    outcome = algorithm1(problem, schedule, perturbations=sources)
    return Cell(n_subjects, temperature, tables, outcome)


def observe(
    context: Context, cells: list[Cell], warm_ratio: float
) -> dict[str, Observed]:
    """Theorems 1 and 3, Lemmas 2 and 9.

    Args:
        context: the run.
        cells: one per number of subjects and temperature.
        warm_ratio: the within-pair ratio at the end of the warm-up, as a control.
    """
    seeds = context.seeds
    tests = {
        (cell.n_subjects, i): unseen_prompts(table, 2, context.config.n_test, seed)
        for cell in cells
        for i, (table, seed) in enumerate(zip(cell.tables, seeds, strict=True))
    }
    scores = [_Scores.of(cell, tests) for cell in cells]
    uniform = torch.stack([score.accuracy_start for score in scores])
    final = torch.stack([score.accuracy for score in scores]).amin(0)
    return {
        "recall.lemma9.start": Observed.of(uniform.mean(0).tolist(), final.tolist()),
        "recall.lemma9.confusing": _confusing(context, cells[0]),
        "recall.theorem3.accuracy": Observed.of(
            final.tolist(), uniform.amax(0).tolist()
        ),
        **_probabilities(cells, scores),
        **_end_state(cells, warm_ratio),
        "recall.theorem1.decoding": _decoding(cells, tests, seeds),
    }


@dataclass(frozen=True)
class _Scores:
    """Accuracy and probability of the relation on unseen prompts, one per seed."""

    accuracy_start: Float[Tensor, " seed"]
    accuracy: Float[Tensor, " seed"]
    probability_first: Float[Tensor, " seed"]
    probability: Float[Tensor, " seed"]

    @classmethod
    def of(cls, cell: Cell, tests: dict[tuple[int, int], Prompts]) -> "_Scores":
        start, final, p_first, p_final = [], [], [], []
        uniform = torch.full((6,), 1 / 6, dtype=torch.float64)
        for i in range(len(cell.tables)):
            prompts = tests[cell.n_subjects, i]
            first, last = cell.outcome.attention_first[i], cell.outcome.attention[i]
            start.append(_accuracy(uniform, prompts))
            final.append(_accuracy(last, prompts))
            p_first.append(_probability(first, prompts, cell.temperature).mean())
            p_final.append(_probability(last, prompts, cell.temperature).mean())
        return cls(*(torch.stack(x) for x in (start, final, p_first, p_final)))


def _accuracy(attention: Float[Tensor, " key"], prompts: Prompts) -> Tensor:
    counts = pattern_counts(prompts)
    return relation_accuracy(attention[None], counts, FORMS, tolerance=1e-6).mean()


def _probability(
    attention: Float[Tensor, " key"], prompts: Prompts, temperature: float
) -> Float[Tensor, " batch"]:
    """The true relation's probability, prompt by prompt."""
    counts = pattern_counts(prompts)
    loss = relation_loss(attention[None], counts, FORMS, temperature=temperature)
    return (-loss).exp()


def _probabilities(cells: list[Cell], scores: list[_Scores]) -> dict[str, Observed]:
    result = {}
    for temperature in dict.fromkeys(cell.temperature for cell in cells):
        chosen = [
            score
            for cell, score in zip(cells, scores, strict=True)
            if cell.temperature == temperature
        ]
        result[f"recall.theorem3.probability-T{temperature:g}"] = Observed.of(
            torch.stack([s.probability for s in chosen]).amin(0).tolist(),
            torch.stack([s.probability_first for s in chosen]).amax(0).tolist(),
        )
    return result


def _end_state(cells: list[Cell], warm_ratio: float) -> dict[str, Observed]:
    final = torch.stack([cell.outcome.attention for cell in cells])
    first = torch.stack([cell.outcome.attention_first for cell in cells])
    lowest = torch.stack([cell.outcome.lowest_answer_probability for cell in cells])
    # With all attention equal, an answer of the prompt beats the others by a little.
    start = [_initial_answer_probability(cell) for cell in cells]
    return {
        "recall.theorem3.not-pairwise": Observed.of(
            within_pair_ratio(final, pairs_of(2)).amin(0).tolist(), [warm_ratio]
        ),
        "recall.theorem3.heavier-pair": Observed.of(
            _product(final).amin(0).tolist(), _product(first).abs().amax(0).tolist()
        ),
        "recall.lemma2.answer": Observed.of(lowest.amin(0).tolist(), start),
    }


def _product(attention: Float[Tensor, "cell seed key"]) -> Float[Tensor, "cell seed"]:
    v = attention
    return (v[..., 0] - v[..., 2]) * (v[..., 1] - v[..., 3])


def _initial_answer_probability(cell: Cell) -> float:
    counts = torch.ones(1, 1, len(FORMS), dtype=torch.long)
    problem = Problem(
        counts,
        n_subjects=cell.n_subjects,
        n_examples=2,
        temperature=cell.temperature,
    )
    return float(problem.answer_probability(np.zeros((1, 7)))[0])


def _confusing(context: Context, cell: Cell) -> Observed:
    """After stage 1 on half of the table's rows: confusing prompts and the others.

    Fewer rows keep Assumption 1 and leave some prompts without a confusing relation.
    """
    tables = tuple(table[: len(table) // 2] for table in cell.tables)
    first_only = replace(Schedule.general(cell.temperature), second_steps=0)
    half = _descend(tables, cell.temperature, context.seeds, first_only)
    confusing, others = [], []
    for i, (table, seed) in enumerate(zip(half.tables, context.seeds, strict=True)):
        prompts = unseen_prompts(table, 2, context.config.n_test, seed)
        probability = _probability(
            half.outcome.attention_first[i], prompts, half.temperature
        )
        is_confusing = confusing_relations(prompts).any(1)
        confusing.append(float(probability[is_confusing].mean()))
        others.append(float(probability[~is_confusing].mean()))
    return Observed.of(confusing, others)


def _decoding(
    cells: list[Cell],
    tests: dict[tuple[int, int], Prompts],
    seeds: tuple[int, ...],
) -> Observed:
    final, start = [], []
    for i, seed in enumerate(seeds):
        scores, scores_start = [], []
        for cell in cells:
            prompts = tests[cell.n_subjects, i]
            model = constructed_model(cell.tables[i], 2, seed, dtype=torch.float64)
            theta, omega = cell.outcome.theta[i], cell.outcome.omega[i]
            scores.append(_decoded(install(model, theta, omega), prompts))
            untrained = install(model, 0 * theta, 0 * omega)
            scores_start.append(_decoded(untrained, prompts))
        final.append(min(scores))
        start.append(max(scores_start))
    return Observed.of(final, start)


def _decoded(model: RecallModel, prompts: Prompts) -> float:
    """Accuracy of the answer when the model's own relation is appended."""
    relation = relation_logits(model, prompts).argmax(1)
    words = Vocabulary.of(prompts.table)
    first = prompts.relation_step().tokens
    written = (words.relations.start + relation)[:, None]
    tokens = torch.cat([first, written], dim=1)
    answer = answer_logits(model, tokens, prompts.table).argmax(1)
    return float((answer == prompts.answers[:, -1]).double().mean())

"""What does the answer depend on once the relation is written? Changed prompts.

Run on the fully fine-tuned model with the affine table.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from circuits.claims import Observed
from probes.statistics import tie_split_accuracy
from trained.recall.model import RecallModel
from trained.recall.prompts import Prompts
from trained.seeding import generator

from .context import Context


def observe(context: Context) -> dict[str, Observed]:
    """What the answer depends on once the relation is written."""
    tests: dict[str, Callable[..., tuple[float, float]]] = {
        "written-relation": _written_relation,
        "query": _other_query,
        "context": _other_context,
    }
    rows: dict[str, list[tuple[float, float]]] = {name: [] for name in tests}
    for seed in context.seeds:
        model = context.fine_tuned("full", "affine", seed)
        prompts = context.prompts("affine", seed)
        for name, test in tests.items():
            rows[name].append(test(model, prompts, seed))
    return {
        f"recall.cause.{name}": Observed.of([v for v, _ in row], [c for _, c in row])
        for name, row in rows.items()
    }


def _answers(
    model: RecallModel, tokens: Tensor, n_subjects: int, wanted: Tensor
) -> float:
    with torch.no_grad():
        logits = model(tokens)[:, 0, n_subjects : 2 * n_subjects]
    return tie_split_accuracy(logits, wanted)


def _written_relation(
    model: RecallModel, prompts: Prompts, seed: int
) -> tuple[float, float]:
    table, n = prompts.table, prompts.table.shape[1]
    step = torch.randint(
        1, len(table), prompts.relation.shape, generator=generator(seed, "written")
    )
    other = (prompts.relation + step) % len(table)
    tokens = prompts.answer_step().tokens.clone()
    tokens[:, -1] = 2 * n + other
    wanted = table[other, prompts.subjects[:, -1]]
    original = prompts.answers[:, -1]
    return _answers(model, tokens, n, wanted), _answers(model, tokens, n, original)


def _other_query(
    model: RecallModel, prompts: Prompts, seed: int
) -> tuple[float, float]:
    table, n = prompts.table, prompts.table.shape[1]
    noise = torch.rand(len(prompts.relation), n, generator=generator(seed, "query"))
    other = noise.scatter(1, prompts.subjects, -1.0).argmax(1)
    # With three subjects all are shown; one of the examples' then becomes the query.
    shown = (other[:, None] == prompts.subjects).any(1)
    other = torch.where(shown, prompts.subjects[:, 0], other)
    tokens = prompts.answer_step().tokens.clone()
    tokens[:, -3] = other
    wanted = table[prompts.relation, other]
    original = prompts.answers[:, -1]
    return _answers(model, tokens, n, wanted), _answers(model, tokens, n, original)


def _other_context(
    model: RecallModel, prompts: Prompts, seed: int
) -> tuple[float, float]:
    """Examples of another relation with the same subjects; the relation stays."""
    table, n = prompts.table, prompts.table.shape[1]
    step = torch.randint(
        1, len(table), prompts.relation.shape, generator=generator(seed, "context")
    )
    other = (prompts.relation + step) % len(table)
    changed = Prompts(table, other, prompts.subjects)
    tokens = changed.answer_step().tokens.clone()
    tokens[:, -1] = 2 * n + prompts.relation
    original, new = prompts.answers[:, -1], changed.answers[:, -1]
    return _answers(model, tokens, n, original), _answers(model, tokens, n, new)

"""What the real model is trained on: the two steps, and facts for pretraining."""

import torch
from torch import Tensor
from torch.nn import functional as F

from trained.task import Batch

from .model import RecallModel
from .prompts import Vocabulary
from .relations import Table


def two_step_loss(
    model: RecallModel,
    data: dict[str, Batch],
    *,
    words: Vocabulary,
    temperature: float,
) -> Tensor:
    """Cross-entropy of the relation plus that of the answer, each among its kind."""
    total = torch.zeros((), device=data["relation"].tokens.device)
    for step, classes in (("relation", words.relations), ("answer", words.answers)):
        logits = model(data[step].tokens)[:, 0, classes] / temperature
        total = total + F.cross_entropy(logits, data[step].targets - classes.start)
    return total


def draw_facts(table: Table, count: int, *, generator: torch.Generator) -> Batch:
    """Pretraining data: two tokens of a fact in random order -> the third."""
    n_relations, n_subjects = table.shape
    relation = torch.randint(n_relations, (count,), generator=generator)
    subject = torch.randint(n_subjects, (count,), generator=generator)
    fact = torch.stack(
        [
            subject,
            table[relation, subject] + n_subjects,
            relation + 2 * n_subjects,
        ],
        dim=1,
    )
    order = torch.rand(count, 3, generator=generator).argsort(1)
    shuffled = fact.gather(1, order)
    return Batch(shuffled[:, :2], shuffled[:, 2])


def fact_loss(model: RecallModel, batch: Batch, *, temperature: float) -> Tensor:
    """Cross-entropy of the third token over the whole vocabulary."""
    return F.cross_entropy(model(batch.tokens)[:, 0] / temperature, batch.targets)

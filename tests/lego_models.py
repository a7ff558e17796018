"""A reader of clauses whose circuit is known: wired by hand, never trained."""

import torch

from circuits.studies.lego.substitutes import folded_circuit
from trained.lego.action import action
from trained.lego.model import FoldedModel
from trained.lego.task import Sentences, draw_sentences, table_of

N_VARIABLES, N_HEADS = 12, 2


def wired(group: str = "C3", score: float = 30.0) -> FoldedModel:
    """The planted circuit for a dozen variables."""
    model = folded_circuit(group, N_VARIABLES, score=score, n_heads=N_HEADS)
    return model.requires_grad_(False).eval()


def sentences(
    length: int, count: int = 20, *, group: str = "C3", seed: int = 0
) -> Sentences:
    """Sentences that the wired model can read."""
    return draw_sentences(
        table_of(action(group)),
        count,
        length,
        n_variables=N_VARIABLES,
        generator=torch.Generator().manual_seed(seed),
    )

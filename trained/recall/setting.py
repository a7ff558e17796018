"""Tables, embeddings, models and unseen prompts: all functions of a seed.

Arms that should share a relation table get the same one for the same seed.
"""

from functools import cache

import torch
from torch import Tensor

from trained.seeding import generator

from .config import Config
from .model import RecallModel, constructed_memory, orthogonal_embedding
from .prompts import Prompts, Vocabulary, draw_prompts
from .relations import Table, affine_table, random_table


@cache
def relation_table(kind: str, n_subjects: int, n_relations: int, seed: int) -> Table:
    """The relation table of a seed: `affine` (all of its rows) or `random`."""
    source = generator(seed, "recall", "table", kind, n_subjects)
    if kind == "affine":
        return affine_table(n_subjects, generator=source)
    return random_table(n_subjects, n_relations, generator=source)


def table_of(config: Config, kind: str, seed: int) -> Table:
    """The headline tables: `affine` and `random` at the configuration's sizes."""
    return relation_table(kind, config.n_subjects, config.n_relations, seed)


def sample_table(config: Config, name: str, seed: int) -> Table:
    """A table of Figure 3."""
    if name == "affine":
        return table_of(config, "affine", seed)
    return relation_table("random", int(name), config.n_relations, seed)


def triple_table(config: Config, seed: int) -> Table:
    """The table of Figure 2b: 512 relations, as many as the paper has."""
    return relation_table("random", config.n_subjects, 512, seed)


def constructed_model(
    table: Table, n_examples: int, seed: int, *, dtype: torch.dtype = torch.float32
) -> RecallModel:
    """The real model with Lemma 1's memory and a small random key-query matrix."""
    embedding = embedding_of(table, seed, dtype=dtype)
    keys, values = constructed_memory(table, embedding)
    model = RecallModel(embedding, 2 * n_examples + 3, keys, values)
    model.W_KQ.data.copy_(small_start(model, seed))
    return model


def small_start(model: RecallModel, seed: int) -> Tensor:
    """The random key-query matrix that full fine-tuning starts from."""
    source = generator(seed, "recall", "key-query")
    return 0.02 * torch.randn(model.W_KQ.shape, generator=source)


def embedding_of(
    table: Table, seed: int, *, dtype: torch.dtype = torch.float32
) -> Tensor:
    """The random orthogonal embedding of a seed, as wide as the vocabulary."""
    source = generator(seed, "recall", "embedding")
    size = Vocabulary.of(table).size
    return orthogonal_embedding(size, generator=source, dtype=dtype)


def unseen_prompts(table: Table, n_examples: int, count: int, seed: int) -> Prompts:
    """Unseen prompts of the same table."""
    source = generator(seed, "recall", "test")
    return draw_prompts(table, n_examples, count, generator=source)

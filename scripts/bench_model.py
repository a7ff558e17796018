"""The model and the prompts of the benchmarks: GPT-2 small's size, random weights."""

from dataclasses import dataclass
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from circuits.models.language_model import LanguageModel
from circuits.models.open import wrap
from trained.seeding import generator
from trained.task import Batch

from .bench_timing import device


@dataclass(frozen=True)
class Size:
    """Of a model; the defaults are GPT-2 small's."""

    n_layers: int = 12
    n_heads: int = 12
    d_model: int = 768
    d_vocab: int = 50_257
    n_ctx: int = 1024


GPT2_SMALL = Size()


def gpt2(size: Size, **options: Any) -> GPT2LMHeadModel:
    """A random GPT-2; the same weights each time."""
    torch.manual_seed(0)
    config = GPT2Config(
        n_layer=size.n_layers,
        n_head=size.n_heads,
        n_embd=size.d_model,
        vocab_size=size.d_vocab,
        n_positions=size.n_ctx,
        bos_token_id=0,
        eos_token_id=0,
        **options,
    )
    return GPT2LMHeadModel(config).to(device()).eval().requires_grad_(False)


def opened(size: Size) -> LanguageModel:
    """The same, as `reasonscope.open` gives models."""
    return wrap(gpt2(size), None)


def prompts(size: Size, rows: int, length: int, seed: int = 0) -> Batch:
    """Random tokens, a set of keys, and pairs of positions that belong together."""
    source = generator(seed, "bench", rows, length)
    tokens = torch.randint(size.d_vocab, (rows, length), generator=source)
    targets = torch.randint(size.d_vocab, (rows,), generator=source)
    places = torch.arange(length).expand(rows, -1)
    roles = {
        "keys": places[:, :: max(1, length // 8)],
        "source": places[:, 1::4][:, :8],
        "partner": places[:, 3::4][:, :8],
    }
    return Batch(tokens, targets, torch.ones_like(tokens).bool(), roles).to(device())

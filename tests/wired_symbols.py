"""Models whose circuit is known because it was wired by hand."""

import torch

from circuits.studies.symbols.specimen import Specimen
from trained.decoder import Decoder, DecoderConfig
from trained.seeding import generator
from trained.symbols.sampler import SPLITS, Alphabet, alphabet, sample
from trained.symbols.scores import answers
from trained.symbols.tasks import task
from trained.task import Batch

FLAG, SAME = 0, 1
"""Directions: the first position, and what the comparison writes."""


def _strings(tokens: Alphabet, seed: int = 0) -> dict[str, Batch]:
    return {
        split: sample(tokens, split, 60, generator=generator(seed, split))
        for split in SPLITS
    }


@torch.no_grad()
def comparison(strength: float = 20.0) -> Specimen:
    """Same/different through the first layer's aI; with strength 0 it is absent.

    No norm. The second symbol attends to the first, which carries FLAG, as far as they
    are equal and writes what it finds to SAME; the second layer averages SAME at CLS.
    """
    tokens = alphabet(task("same_different"), 8, n_held_out=30)
    sizes = DecoderConfig(
        d_vocab=tokens.d_vocab,
        d_model=32,
        n_layers=2,
        n_heads=1,
        n_ctx=3,
        d_vocab_out=1,
        d_head=1,
        d_mlp=0,
        mask="none",
        norm="none",
        biases="none",
        head="affine",
        key_query_identity=1.0,
    )
    model = Decoder(sizes, generator=generator(0)).requires_grad_(False).eval()
    for parameter in model.parameters():
        parameter.zero_()
    symbols = torch.randn(tokens.cls, 30, generator=generator(1))
    model.W_E[: tokens.cls, 2:] = torch.nn.functional.normalize(symbols, dim=1)
    model.W_pos[0, FLAG] = 1.0
    first, second = (block.attn for block in model.blocks)
    first.a.fill_(strength)
    first.W_V[0, FLAG, 0] = 1.0
    first.W_O[0, 0, SAME] = 1.0
    second.W_V[0, SAME, 0] = 1.0
    second.W_O[0, 0, SAME] = 1.0
    model.unembedding[SAME, 0] = 1.0
    strings = _strings(tokens)
    if strength:
        said, same = (
            answers(model, strings["train"])[:, 0],
            strings["train"].targets > 0,
        )
        low, high = said[~same].mean(), said[same].mean()
        model.unembedding.mul_(2 / (high - low))
        model.b_U.fill_(-(high + low) / (high - low))
    return Specimen(model, 0, tokens, strings)


@torch.no_grad()
def copier(through: str) -> Specimen:
    """Copying through bI (`scalar`), through W_V W_O = I (`weights`), or not."""
    tokens = alphabet(task("copy"), 30, n_held_out=20)
    d = 40
    sizes = DecoderConfig(
        d_vocab=tokens.d_vocab,
        d_model=d,
        n_layers=1,
        n_heads=1,
        n_ctx=2,
        d_head=d,
        d_mlp=0,
        mask="none",
        final_gain="none",
        biases="none",
        embedding_std=1.0,
        value_output_identity=1.0,
    )
    model = Decoder(sizes, generator=generator(0)).requires_grad_(False).eval()
    attention = model.blocks[0].attn
    for weight in (attention.W_Q, attention.W_K, attention.W_V, attention.W_O):
        weight.zero_()
    model.W_pos.zero_()
    if through == "scalar":
        attention.b.fill_(20.0)
    if through == "weights":
        attention.W_V[0], attention.W_O[0] = torch.eye(d), 20 * torch.eye(d)
    return Specimen(model, 0, tokens, _strings(tokens))

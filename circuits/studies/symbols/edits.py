"""Edits of trained models: scalars knocked out, symbols given other vectors.

Every edit holds for the length of a block and leaves the model as it was.
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Literal, cast

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Generator, Tensor

from circuits.hooks import Edit, intervene, record
from circuits.sites import Site
from trained.decoder import Attention, Decoder
from trained.symbols.sampler import Strings

from .context import Specimen

Scalar = Literal["a", "b"]
FLOOR = 1e-30


def decoder(specimen: Specimen) -> Decoder:
    """The specimen's model, which must be a transformer."""
    assert isinstance(specimen.model, Decoder)
    return specimen.model


def scalar(attention: Attention, name: Scalar) -> Float[Tensor, " head"]:
    """The trained scalars of a layer, which must have them."""
    return cast(Tensor, getattr(attention, name))


@contextmanager
def held(tensors: Iterable[Tensor], value: float = 0.0) -> Iterator[None]:
    """Fill some weights with a value."""
    tensors = list(tensors)
    kept = [tensor.clone() for tensor in tensors]
    try:
        with torch.no_grad():
            for tensor in tensors:
                tensor.fill_(value)
        yield
    finally:
        with torch.no_grad():
            for tensor, old in zip(tensors, kept, strict=True):
                tensor.copy_(old)


@contextmanager
def knocked_out(model: Decoder, name: Scalar, layers: Iterable[int]) -> Iterator[None]:
    """The scalars of some layers at 0."""
    found = [scalar(model.blocks[layer].attn, name) for layer in layers]
    with held(found):
        yield


@contextmanager
def averaged_out(
    model: Decoder, name: Scalar, layers: Iterable[int], strings: Strings
) -> Iterator[None]:
    """What the scalars of some layers add replaced by its mean over strings."""
    layers = list(layers)
    edits = dict(_mean_edit(model, name, layer, strings) for layer in layers)
    with ExitStack() as stack:
        stack.enter_context(knocked_out(model, name, layers))
        stack.enter_context(intervene(model, edits))
        yield


@torch.no_grad()
def _mean_edit(
    model: Decoder, name: Scalar, layer: int, strings: Strings
) -> tuple[Site, Edit]:
    block = model.blocks[layer]
    before, weights = Site("resid_pre", layer), Site("pattern", layer)
    with record(model, [before, weights]) as seen:
        model(strings.tokens)
    x = block.ln1.layer(seen[before])
    if name == "a":
        factor = model.config.key_query_identity * scalar(block.attn, "a")
        match = einsum(x, x, "batch q d, batch k d -> batch q k").mean(0)
        term = einsum(factor, match, "head, q k -> head q k")
        # Adding to scores is adding to the logarithm of the pattern.
        return weights, lambda p: (p.clamp_min(FLOOR).log() + term).softmax(-1)
    factor = model.config.value_output_identity * scalar(block.attn, "b")
    axes = "batch head q k, head, batch k d -> batch q d"
    written = einsum(seen[weights], factor, x, axes).mean(0)
    return Site("attn_out", layer), lambda out: out + written


def with_matching(model: Decoder, size: float) -> Decoder:
    """A copy of a vanilla model whose first layer's heads add c x x^T to their scores.

    c |x|^2 = size for the x of a LayerNorm without gain.
    """
    changed = replace(model.config, key_query_identity=1.0)
    copy = Decoder(changed, generator=torch.Generator())
    copy.load_state_dict(model.state_dict(), strict=False)
    with torch.no_grad():
        scalar(copy.blocks[0].attn, "a").fill_(size / model.config.d_model)
    return copy


@contextmanager
def fresh_symbols(
    model: Decoder, ids: range, *, generator: Generator
) -> Iterator[None]:
    """New random vectors, of the initial distribution, for some tokens."""
    rows = model.W_E[ids.start : ids.stop]
    kept = rows.clone()
    try:
        with torch.no_grad():
            rows.copy_(torch.randn(rows.shape, generator=generator))
        yield
    finally:
        with torch.no_grad():
            rows.copy_(kept)


@contextmanager
def replaced_inputs(
    model: Decoder, strings: Strings, vectors: Float[Tensor, "batch pos d_model"]
) -> Iterator[None]:
    """Other vectors for the strings' symbols as input; the unembedding keeps its own.

    `vectors` leaves CLS, the last position, out.
    """
    symbols = vectors.shape[1]
    change = vectors - model.W_E[strings.tokens[:, :symbols]]

    def put(residual: Tensor) -> Tensor:
        edited = residual.clone()
        edited[:, :symbols] += change
        return edited

    with intervene(model, {Site("resid_pre", 0): put}):
        yield


def permuted(strings: Strings, ids: range, *, generator: Generator) -> Strings:
    """The strings with the tokens of one alphabet permuted among themselves."""
    order = torch.randperm(len(ids), generator=generator) + ids.start
    table = torch.arange(int(strings.tokens.max()) + 1)
    inside = table[ids.start : ids.stop]
    inside.copy_(order[: len(inside)])
    symbolic = not strings.targets.is_floating_point()
    targets = table[strings.targets] if symbolic else strings.targets
    return Strings(table[strings.tokens], targets, strings.templates)


def donors(
    labels: Int[Tensor, " row"], *, same: bool, generator: Generator
) -> Int[Tensor, " row"]:
    """For every row a random other row with the same, or another, label."""
    keys = torch.rand(len(labels), len(labels), generator=generator)
    allowed = (labels[:, None] == labels[None]) == same
    allowed.fill_diagonal_(False)
    return keys.masked_fill(~allowed, -1.0).argmax(1)

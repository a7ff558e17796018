"""Data, losses, caps and records of the theory's training, and what starts a stage."""

from functools import partial
from math import log

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from .task import Sentences, draw_sentences, rollout
from .theory import TheoryModel


def every_pair(
    table: Int[Tensor, "g y"], *, n_variables: int, generator: Generator
) -> Sentences:
    """One-step sentences with every pair of an action and a value, random variables."""
    drawn = draw_sentences(
        table, table.numel(), 1, n_variables=n_variables, generator=generator
    )
    g, y = torch.meshgrid(*(torch.arange(n) for n in table.shape), indexing="ij")
    values = torch.stack([y.flatten(), table.flatten()], dim=1)
    return drawn._replace(actions=g.reshape(-1, 1), values=values)


def every_variable(
    table: Int[Tensor, "g y"], *, n_variables: int, generator: Generator
) -> Sentences:
    """One-step sentences that lead to every variable once, the rest random."""
    drawn = draw_sentences(
        table, n_variables, 1, n_variables=n_variables, generator=generator
    )
    last = torch.arange(n_variables)
    distance = torch.randint(1, n_variables, (n_variables,), generator=generator)
    first = (last + distance) % n_variables
    return drawn._replace(variables=torch.stack([first, last], dim=1))


def slot_loss(
    logits: Float[Tensor, "batch query n_classes"], target: Tensor, d: int
) -> Float[Tensor, ""]:
    """Cross-entropy over all d classes; those without a logit here have logit 0."""
    rest = torch.full_like(logits[..., 0], log(d - logits.shape[-1]))
    total = torch.logaddexp(logits.logsumexp(-1), rest)
    return (total - logits.gather(-1, target[..., None])[..., 0]).mean()


def variable_loss(model: TheoryModel, sentences: Sentences) -> Float[Tensor, ""]:
    """Loss_4 of all steps."""
    words = model.vocabulary
    logits = model.variable_logits(sentences.tokens(words))
    return slot_loss(logits, sentences.variables[..., 1:], words.size)


def value_loss(
    model: TheoryModel, sentences: Sentences, *, steps: slice = slice(None)
) -> Float[Tensor, ""]:
    """Loss_5, the mean over some steps (all by default) of one length."""
    words = model.vocabulary
    logits = model.value_logits(sentences.tokens(words), queries=steps)
    return slot_loss(logits, sentences.values[..., 1:][..., steps], words.size)


def pair_loss(model: TheoryModel, sentences: Sentences) -> Float[Tensor, ""]:
    """`value_loss` of `every_pair` under uniform attention, written out.

    Neurons receive (V(g) + V(y) + what the variables bring) / 2: no lookups to train
    through, so it costs a fifth.
    """
    neurons, (x0, x1) = model.block.value, sentences.variables.unbind(-1)
    variables = neurons.W1[x1] + neurons.W3[x0] + neurons.W4[x0]
    pairs = (neurons.W2[:, None] + neurons.W5).flatten(0, 1)
    logits = neurons.logits((pairs + variables) / 2)[:, None]
    return slot_loss(logits, sentences.values[..., 1:], model.vocabulary.size)


def self_labelled_loss(model: TheoryModel, sentences: Sentences) -> Float[Tensor, ""]:
    """Loss_5^{L,2} where the frozen copy wrote answers 1 and 2 (Definition 5.2)."""
    words, length = model.vocabulary, sentences.length
    annotator = partial(model.forward, key_query=model.annotator)
    first = rollout(annotator, sentences, words, steps=1)
    clauses = [sentences.predicates(words), first.answers(words)]
    seen = words.packed(torch.cat(clauses, dim=-2))
    read = partial(model.value_logits, seen, n_predicates=length, queries=slice(1, 2))
    label = read(key_query=model.annotator).argmax(-1)
    return slot_loss(read(), label, words.size)


def cap_step(gradients: dict[str, Tensor], *, largest: float) -> None:
    """Scale a seed's whole gradient so that no entry exceeds `largest`."""
    peaks = [g.flatten(1).abs().amax(1) for g in gradients.values()]
    factor = (largest / torch.stack(peaks).amax(0).clamp_min(1e-30)).clamp_max(1.0)
    for gradient in gradients.values():
        gradient.mul_(factor.reshape(-1, *[1] * (gradient.ndim - 1)))


def cap_entries(gradients: dict[str, Tensor], *, largest: float) -> None:
    """Clip every entry of the gradient."""
    for gradient in gradients.values():
        gradient.clamp_(-largest, largest)


def mean_entries(model: TheoryModel, _data: Sentences) -> dict[str, Tensor]:
    """The mean diagonal entry and the mean other entry of both blocks."""
    found: dict[str, Tensor] = {}
    for block in _BLOCKS:
        entries = getattr(model.tables, block)[0]
        diagonal, size = entries.diagonal(), len(entries)
        rest = (entries.sum() - diagonal.sum()) / (size * (size - 1))
        found |= {f"diagonal{block}": diagonal.mean(), f"rest{block}": rest}
    return found


_BLOCKS = ("Q43", "Q44")


def reset(parameters: dict[str, Tensor]) -> None:
    """Q back to zero."""
    for block in _BLOCKS:
        parameters[f"blocks.0.attn.key_query.{block}"].zero_()


def freeze_copy(parameters: dict[str, Tensor]) -> None:
    """The annotator becomes the current model."""
    for block in _BLOCKS:
        current = parameters[f"blocks.0.attn.key_query.{block}"]
        parameters[f"annotator.{block}"].copy_(current)


def return_to_copy(parameters: dict[str, Tensor]) -> None:
    """The current model becomes the annotator."""
    for block in _BLOCKS:
        frozen = parameters[f"annotator.{block}"]
        parameters[f"blocks.0.attn.key_query.{block}"].copy_(frozen)

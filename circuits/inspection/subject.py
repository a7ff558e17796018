"""The prompts under inspection: how they are shown and which answers are followed."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from circuits.hooks import Model, sites_of
from circuits.interventions.passes import activations, answer_logits
from circuits.models.language_model import LanguageModel
from circuits.sites import Site
from trained.errors import BadInput
from trained.task import Batch
from trained.text import printable

PROMPTS_AT_ONCE = 32
"""Prompts whose activations at every layer are held at a time."""


def visible(text: str) -> str:
    r"""Printable text in which blanks are seen as well.

    >>> visible(" Paris"), visible("\n")
    ('·Paris', '\\n')
    """
    return printable(text.replace(" ", "·"))


def show(model: Model, token: int) -> str:
    """A token as visible text; of a model without a tokenizer, its number."""
    if not isinstance(model, LanguageModel):
        return str(token)
    return visible(model.tokenizer.decode([token]))


def shown_tokens(model: Model, prompts: Batch) -> list[str]:
    """The tokens of the first prompt."""
    return [show(model, token) for token in prompts.tokens[0].tolist()]


def places(model: Model, prompts: Batch) -> tuple[str, ...]:
    """Labels for positions, each different: the column, and the token all have there.

    A column in which the prompts differ is labelled by its number alone.
    """
    shared = (prompts.tokens == prompts.tokens[:1]).all(0) & prompts.real.all(0)
    tokens = zip(shown_tokens(model, prompts), shared.tolist(), strict=True)
    return tuple(
        f"{i} {token}" if same else f"{i}" for i, (token, same) in enumerate(tokens)
    )


def answered(model: Model, prompts: Batch) -> Batch:
    """Prompts with the answer to follow: their own, else what the model says."""
    if bool((prompts.targets >= 0).all()):
        return prompts
    said = answer_logits(model, prompts).argmax(-1)
    return prompts.with_targets(
        torch.where(prompts.targets >= 0, prompts.targets, said)
    )


def residual_layers(model: Model) -> tuple[int, ...]:
    """The layers whose residual stream can be observed."""
    layers = [s.layer for s in sites_of(model) if s.kind == "resid_post"]
    if not layers:
        raise BadInput(f"{type(model).__name__} has no residual stream to read")
    return tuple(sorted(layers))


def layer_labels(model: Model) -> tuple[str, ...]:
    """Names for the residuals that `residuals` gives."""
    return ("embedding", *(str(layer) for layer in residual_layers(model)))


@torch.no_grad()
def residuals(
    model: Model, prompts: Batch, columns: Int[Tensor, "batch place"]
) -> Float[Tensor, "layer batch place d_model"]:
    """The residual stream at some columns, before the first layer and after each."""
    layers = residual_layers(model)
    sites = [Site("resid_pre", layers[0]), *(Site("resid_post", n) for n in layers)]
    found = []
    parts = torch.split(columns, PROMPTS_AT_ONCE)
    for chunk, own in zip(prompts.chunks(PROMPTS_AT_ONCE), parts, strict=True):
        seen = activations(model, chunk, sites, own)
        found.append(torch.stack([_at_least_single(seen[site]) for site in sites]))
    return torch.cat(found, 1)


def _at_least_single(tensor: Tensor) -> Tensor:
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))

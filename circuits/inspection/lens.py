"""The logit lens on one prompt: what each layer would answer at each position."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from circuits.hooks import record
from circuits.models.language_model import LanguageModel
from circuits.sites import Site
from probes.lens import middle_rank
from probes.measurement import Measurement

from .subject import Subject

EMBEDDING = "embedding"
"""The label of the residual before the first layer."""


@dataclass(frozen=True)
class LensReading:
    """By layer (embedding first): the top token everywhere, the answer at the end."""

    probability: Measurement
    """Of the top token; axes ("layer", "position")."""
    top_tokens: tuple[tuple[str, ...], ...]
    """The top token of each of these cells."""
    answer_rank: Measurement
    """At the last position; 1 is the top; axis ("layer",)."""
    answer_logprob: Measurement
    """At the last position, in nats; axis ("layer",)."""


@torch.no_grad()
def read_lens(subject: Subject) -> LensReading:
    """Send every layer's residual through the final norm and the unembedding.

    nostalgebraist 2020, "interpreting GPT: the logit lens". One layer's logits over
    the vocabulary are held at a time.
    """
    model = subject.model
    last = int(subject.prompts.last[0])
    probability, tokens, ranks, log_probs = [], [], [], []
    for residual in residuals(subject):
        found = model.readout.logits(residual).float().log_softmax(-1)
        best, token = found.max(-1)
        probability.append(best.exp())
        tokens.append(token)
        own = found[last, subject.answer]
        log_probs.append(own)
        ranks.append(middle_rank(found[last], own))
    layers = layer_labels(model)
    name = f"answer {subject.show(subject.answer)}"
    return LensReading(
        probability=Measurement(
            torch.stack(probability),
            ("layer", "position"),
            {"layer": layers, "position": subject.places},
            name="logit lens: probability of the top token",
        ),
        top_tokens=_texts(subject, torch.stack(tokens)),
        answer_rank=_by_layer(ranks, layers, f"rank of the {name}", "1 is the top"),
        answer_logprob=_by_layer(log_probs, layers, f"log p of the {name}", "nats"),
    )


@torch.no_grad()
def residuals(subject: Subject) -> Float[Tensor, "layer pos d_model"]:
    """The residual stream of the prompt, before the first layer and after each."""
    model, prompts = subject.model, subject.prompts
    sites = [Site("resid_pre", layer) for layer in range(model.n_layers)]
    sites.append(Site("resid_post", model.n_layers - 1))
    with record(model, sites) as seen:
        model(prompts.tokens, prompts.mask)
    return torch.stack([seen[site][0] for site in sites])


def layer_labels(model: LanguageModel) -> tuple[str, ...]:
    """Names for the residuals that `residuals` gives."""
    return (EMBEDDING, *(f"{layer}" for layer in range(model.n_layers)))


def _texts(
    subject: Subject, tokens: Int[Tensor, "layer pos"]
) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(subject.show(t) for t in row) for row in tokens.tolist())


def _by_layer(
    values: list[Tensor], layers: tuple[str, ...], name: str, unit: str
) -> Measurement:
    return Measurement(
        torch.stack(values), ("layer",), {"layer": layers}, name=name, unit=unit
    )

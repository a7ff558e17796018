"""The logit lens: what each layer would answer, and how likely the answer is."""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from circuits.backends.anatomy import Readout
from circuits.hooks import Model, attached, forward, reading, readout_of
from circuits.interventions.part import columns
from circuits.interventions.passes import answer_logits
from circuits.interventions.sweep import target_log_prob
from circuits.sites import Site
from probes.lens import lens_log_probs, middle_rank
from probes.measurement import Measurement
from trained.errors import BadInput
from trained.task import Batch

from .subject import (
    answered,
    layer_labels,
    places,
    residual_layers,
    residuals,
    show,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class LensReading:
    """By layer, the embedding first: the answers at the end, the first prompt's tops.

    Attributes:
        rank: of each prompt's answer at its last token; 1 is the top; axes ("layer",
            "example").
        log_prob: of the same, in nats.
        probability: of the top token at each position of the first prompt; axes
            ("layer", "position").
        tokens: the top token of each of these cells.
    """

    rank: Measurement
    log_prob: Measurement
    probability: Measurement
    tokens: tuple[tuple[str, ...], ...]

    def plot(self) -> "Figure":
        """The tokens of one prompt by layer; of several, the answer's log p."""
        if len(self.log_prob.labels["example"]) > 1:
            return self.log_prob.plot()
        from .figures import lens_figure

        return lens_figure(self)


@torch.no_grad()
def lens(model: Model, prompts: Batch) -> LensReading:
    """Send every layer's residual through the final norm and the unembedding.

    nostalgebraist 2020, "interpreting GPT: the logit lens". Prompts without an answer
    are followed by what the model says to them. One layer's logits are held at a time.
    """
    prompts = answered(model, prompts)
    readout = readout_of(model)
    ranks, log_probs = [], []
    for residual in residuals(model, prompts, prompts.role("last")):
        found = lens_log_probs(residual[:, 0], readout.logits)
        own = found.gather(-1, prompts.targets[:, None])[:, 0]
        log_probs.append(own)
        ranks.append(middle_rank(found, own))
    probability, tokens = _tops(model, prompts.rows(slice(1)), readout)
    return LensReading(
        rank=_by_layer(model, prompts, ranks, "rank", "1 is the top"),
        log_prob=_by_layer(model, prompts, log_probs, "log p", "nats"),
        probability=probability,
        tokens=tokens,
    )


@torch.no_grad()
def answer_logit(model: Model, prompts: Batch) -> Measurement:
    """The logit of every prompt's answer by layer and position: its column alone.

    As `lens`, for the one token: no probability, no rank, and hardly more than the
    forward pass. Axes ("layer", "example", "position"), before the first layer and
    after each.
    """
    prompts, readout = answered(model, prompts), readout_of(model)
    layers = residual_layers(model)
    sites = [Site("resid_pre", layers[0]), *(Site("resid_post", n) for n in layers)]
    found: dict[Site, Tensor] = {}

    def see(site: Site, residual: Tensor) -> None:
        own = readout.target_logits(residual, prompts.targets[:, None])
        found[site] = own[..., 0]

    with (
        reading(model, prompts.tokens[:, :0]),
        attached(model, {site: partial(see, site) for site in sites}),
    ):
        forward(model, prompts)
    return Measurement(
        torch.stack([found[site] for site in sites]),
        ("layer", "example", "position"),
        {"layer": layer_labels(model), "position": places(model, prompts)},
        name=_named(model, prompts, "logit"),
        unit="logits",
    )


@torch.no_grad()
def log_prob(model: Model, prompts: Batch) -> Measurement:
    """The log-probability of every prompt's answer, in nats; axis ("example",)."""
    if bool((prompts.targets < 0).any()):
        raise BadInput("the prompts have no answers: prompts(texts, answers)")
    values = target_log_prob(answer_logits(model, prompts).float(), prompts)
    return Measurement(
        values, ("example",), name=_named(model, prompts, "log p"), unit="nats"
    )


def _tops(
    model: Model, prompt: Batch, readout: Readout
) -> tuple[Measurement, tuple[tuple[str, ...], ...]]:
    """The top token at every position of one prompt, and its probability."""
    found = [
        lens_log_probs(residual[0], readout.logits).max(-1)
        for residual in residuals(model, prompt, columns(prompt, None))
    ]
    probability = Measurement(
        torch.stack([best.values.exp() for best in found]),
        ("layer", "position"),
        {"layer": layer_labels(model), "position": places(model, prompt)},
        name="logit lens: probability of the top token",
    )
    tops = [best.indices.tolist() for best in found]
    return probability, tuple(tuple(show(model, t) for t in row) for row in tops)


def _by_layer(
    model: Model, prompts: Batch, values: list[Tensor], name: str, unit: str
) -> Measurement:
    return Measurement(
        torch.stack(values),
        ("layer", "example"),
        {"layer": layer_labels(model)},
        name=_named(model, prompts, name),
        unit=unit,
    )


def _named(model: Model, prompts: Batch, name: str) -> str:
    """A quantity of the answer, which is named if there is but one."""
    if len(prompts) > 1:
        return f"{name} of the answer"
    return f"{name} of the answer {show(model, int(prompts.targets[0]))}"

"""The logit lens: what each layer would answer, and how likely the answer is."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from circuits.hooks import Model, attached, forward, reading, readout_of
from circuits.interventions.part import Places, columns
from circuits.interventions.passes import answer_logits
from circuits.interventions.sweep import target_log_prob
from circuits.sites import Site
from probes.measurement import Measurement
from trained.errors import BadInput
from trained.task import Batch

from .answer_lens import Lens, Tops, answer_lens, top_tokens
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
def lens(model: Model, prompts: Batch, *, positions: Places = None) -> LensReading:
    """Send every layer's residual through the final norm and the unembedding.

    nostalgebraist 2020, "interpreting GPT: the logit lens". Prompts without an answer
    are followed by what the model says to them. The vocabulary is passed in tiles, some
    positions at a time: no whole row of logits is kept.

    Args:
        model: the model.
        prompts: the prompts.
        positions: where the top tokens of the first prompt are read: a role or
            columns; None for everywhere.
    """
    prompts = answered(model, prompts)
    last, readout = residuals(model, prompts, prompts.role("last")), readout_of(model)
    found = answer_lens(readout, last[:, :, 0], prompts.targets)
    first = prompts.rows(slice(1))
    shown = columns(first, positions)
    tops = top_tokens(readout, residuals(model, first, shown)[:, 0])
    return lens_reading(model, prompts, found, tops, shown[0].tolist())


def lens_reading(
    model: Model, prompts: Batch, found: Lens, tops: Tops, shown: Sequence[int]
) -> LensReading:
    """What was found, with its names.

    Args:
        model: the model.
        prompts: with their answers.
        found: of the answers, by layer and prompt.
        tops: of the first prompt, by layer and position.
        shown: these positions.
    """
    names = places(model, prompts.rows(slice(1)))
    probability = Measurement(
        tops.log_prob.exp(),
        ("layer", "position"),
        {"layer": layer_labels(model), "position": tuple(names[p] for p in shown)},
        name="logit lens: probability of the top token",
    )
    return LensReading(
        rank=_by_layer(model, prompts, found.rank, "rank", "1 is the top"),
        log_prob=_by_layer(model, prompts, found.log_prob, "log p", "nats"),
        probability=probability,
        tokens=tuple(
            tuple(show(model, token) for token in row) for row in tops.token.tolist()
        ),
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


def _by_layer(
    model: Model, prompts: Batch, values: Tensor, name: str, unit: str
) -> Measurement:
    return Measurement(
        values,
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

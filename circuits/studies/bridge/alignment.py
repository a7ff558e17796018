"""Does the state of (a, r1) become that of its bridge, and when (Figures 6 and 7)?

Read after one block and later, but before the last: there both prompts must give the
same answer, so their agreement would prove nothing.
"""

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import normalize

from circuits.claims import Observed
from circuits.hooks import record
from circuits.sites import Site
from probes.alignment import paired_cosine
from probes.weights import diagonal_excess
from trained.bridge.arms import gpt
from trained.task import Batch

from .context import Context, Specimen, difference, ood_obj

NEAREST_ENOUGH, ACCURATE_ENOUGH, LEARNED = 0.8, 0.5, 0.8
FIRST_BLOCK = Site("resid_post", 0)


def observe(context: Context) -> dict[str, Observed]:
    """Initialisation scale against alignment, and the order of events."""
    return {**_initialisation(context), **_timeline(context)}


@torch.no_grad()
def end_states(
    model: nn.Module, batch: Batch, site: Site = FIRST_BLOCK
) -> Float[Tensor, "batch d_model"]:
    """The residual at the last token of every prompt."""
    with record(model, [site]) as seen:
        model(batch.tokens)
    return seen[site][:, -1]


def pair_states(
    specimen: Specimen, site: Site = FIRST_BLOCK
) -> tuple[Float[Tensor, "pair d_model"], Float[Tensor, "pair d_model"]]:
    """The states at the end of [a, r1] and of [b], pair by pair."""
    world, model = specimen.world, specimen.model
    return end_states(model, world.hop1(), site), end_states(
        model, world.zero_hop(), site
    )


def cosine(specimen: Specimen) -> float:
    """Mean cosine of (a, r1) with its bridge after one block, in [-1, 1]."""
    return float(paired_cosine(*pair_states(specimen)).mean())


def net_cosine(specimen: Specimen) -> float:
    """That minus the mean cosine with all other bridges."""
    subjects, bridges = pair_states(specimen)
    cosines = normalize(subjects, dim=-1) @ normalize(bridges, dim=-1).mT
    return float(diagonal_excess(cosines))


def _initialisation(context: Context) -> dict[str, Observed]:
    config = context.config
    small, none = gpt(config.complexity), gpt(config.complexity, "none")
    standard = replace(small, gamma=config.standard_gamma)
    found = {}
    quantities = (("accuracy", ood_obj), ("alignment", cosine))
    for name, quantity in quantities:
        base = context.each(standard, quantity)
        found[f"bridge.initialisation.{name}"] = Observed.of(
            difference(context.each(small, quantity), base),
            difference(context.each(none, quantity), base),
        )
    found["bridge.initialisation.net-alignment"] = Observed.of(
        difference(context.each(small, net_cosine), context.each(standard, net_cosine)),
        context.each(none, net_cosine),
    )
    if "standard" in config.variants and config.small_gammas:
        rows = [
            context.each(replace(gpt(), gamma=gamma), ood_obj)
            for gamma in config.small_gammas
        ]
        found["bridge.initialisation.range"] = Observed.of(
            [min(column) for column in zip(*rows, strict=True)],
            context.each(gpt(1, "none"), ood_obj),
        )
    return found


def first_step(
    steps: Float[Tensor, " record"], curve: Float[Tensor, " record"], level: float
) -> float:
    """The first recorded step at which a curve is at least a level; nan if never.

    >>> first_step(torch.tensor([0.0, 5.0]), torch.tensor([0.2, 0.9]), 0.8)
    5.0
    """
    reached = (curve >= level).nonzero()
    return float(steps[reached[0, 0]]) if len(reached) else float("nan")


def _timeline(context: Context) -> dict[str, Observed]:
    kappa = context.config.complexity
    metrics = context.run.metrics(gpt(kappa).name)
    steps = metrics["step"].float()
    events = {
        name: [first_step(steps, curve, level) for curve in metrics[name]]
        for name, level in (
            ("nearest", NEAREST_ENOUGH),
            ("ood", ACCURATE_ENOUGH),
            ("hop2", LEARNED),
        )
    }
    absent = context.run.metrics(gpt(kappa, "none").name)["nearest"]
    return {
        "bridge.timeline.alignment-first": Observed.of(
            difference(events["ood"], events["nearest"]),
            [float((row >= NEAREST_ENOUGH).float().mean()) for row in absent],
        ),
        "bridge.timeline.hop2-between": Observed.of(
            difference(events["ood"], events["hop2"]),
            difference(events["hop2"], events["nearest"]),
        ),
    }

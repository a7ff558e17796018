"""Do the answers follow the states and the rows that are said to carry them?

States are exchanged after one block. Donors always have another answer, so that
following and staying exclude each other; prompts whose donor shares the answer are
left out.
"""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from circuits.claims import Observed
from circuits.hooks import intervene, record
from trained.bridge.arms import gpt
from trained.bridge.data import cycle
from trained.seeding import generator
from trained.task import Batch

from .alignment import FIRST_BLOCK, end_states
from .context import Context, Specimen, hits, last_logits, ood

SUBJECT, RELATION = 0, 1
"""Positions of [a, r1, r2]."""

States = Float[Tensor, "batch d_model"]


def observe(context: Context) -> dict[str, Observed]:
    """Exchanges and ablations in the GPT."""
    kappa = context.config.complexity
    return {
        **_exchanges(context, kappa),
        **_bridge_states(context, kappa),
        **_ablations(context, kappa),
        "bridge.cause.donor-one-object": Observed.of(
            [donor_exchange(s, RELATION)[0] for s in context.specimens(gpt())],
            [donor_exchange(s, RELATION)[0] for s in context.specimens(gpt(1, "none"))],
        ),
    }


def donors(specimen: Specimen) -> tuple[Int[Tensor, " pair"], Bool[Tensor, " pair"]]:
    """Another pair for every pair, and where its answer differs."""
    source = generator(specimen.seed, "bridge", "donors")
    order = cycle(specimen.world.n_bridges, generator=source)
    answers = specimen.world.answer
    return order, answers[order] != answers


def patched(
    specimen: Specimen, batch: Batch, position: int, states: States
) -> Float[Tensor, "batch d_vocab"]:
    """Final logits with one position's state after one block replaced."""

    def put(residual: Tensor) -> Tensor:
        edited = residual.clone()
        edited[:, position] = states
        return edited

    with intervene(specimen.model, {FIRST_BLOCK: put}):
        return last_logits(specimen.model, batch)


@torch.no_grad()
def states_at(specimen: Specimen, batch: Batch, position: int) -> States:
    """A position's states after one block."""
    with record(specimen.model, [FIRST_BLOCK]) as seen:
        specimen.model(batch.tokens)
    return seen[FIRST_BLOCK][:, position]


def _followed(
    specimen: Specimen, logits: Float[Tensor, "batch d_vocab"]
) -> tuple[float, float]:
    """Shares of answers that are the donor's and the prompt's own."""
    order, differs = donors(specimen)
    answers = specimen.world.answer
    follow, stay = hits(logits, answers[order]), hits(logits, answers)
    return float(follow[differs].mean()), float(stay[differs].mean())


def donor_exchange(specimen: Specimen, position: int) -> tuple[float, float]:
    """Follow and stay when a position's state comes from the donor's prompt."""
    batch, (order, _) = specimen.world.two_hop(), donors(specimen)
    states = states_at(specimen, batch, position)[order]
    return _followed(specimen, patched(specimen, batch, position, states))


def _exchanges(context: Context, kappa: int) -> dict[str, Observed]:
    models, plain = context.specimens(gpt(kappa)), context.specimens(gpt(kappa, "none"))
    relation = [donor_exchange(s, RELATION) for s in models]
    subject = [donor_exchange(s, SUBJECT) for s in models]
    return {
        "bridge.cause.donor": Observed.of(
            [follow for follow, _ in relation],
            [donor_exchange(s, RELATION)[0] for s in plain],
        ),
        "bridge.cause.subject-spent": Observed.of(
            [stay for _, stay in subject], [stay for _, stay in relation]
        ),
        "bridge.cause.back": Observed.of(
            [backward_exchange(s) for s in models],
            [backward_exchange(s) for s in plain],
        ),
    }


def backward_exchange(specimen: Specimen) -> float:
    """Share of [b, r2] answered with the object of the (a, r1) whose state is put in.

    The state at the end of the donor's [a, r1] takes the place of the bridge's.
    """
    order, _ = donors(specimen)
    states = end_states(specimen.model, specimen.world.hop1())[order]
    logits = patched(specimen, specimen.world.hop2(), 0, states)
    return _followed(specimen, logits)[0]


def _bridge_states(context: Context, kappa: int) -> dict[str, Observed]:
    models, plain = context.specimens(gpt(kappa)), context.specimens(gpt(kappa, "none"))
    other = [other_bridge(s) for s in models]
    return {
        "bridge.cause.own-bridge": Observed.of(
            [own_bridge(s) for s in models], [stay for _, stay in other]
        ),
        "bridge.cause.rescue": Observed.of(
            [own_bridge(s) for s in plain], [ood(s) for s in plain]
        ),
        "bridge.cause.other-bridge": Observed.of(
            [follow for follow, _ in other], [stay for _, stay in other]
        ),
    }


def own_bridge(specimen: Specimen) -> float:
    """Ood with r1's state replaced by that of the true bridge alone."""
    batch = specimen.world.two_hop()
    states = end_states(specimen.model, specimen.world.zero_hop())
    logits = patched(specimen, batch, RELATION, states)
    return float(hits(logits, batch.targets).mean())


def other_bridge(specimen: Specimen) -> tuple[float, float]:
    """Follow and stay with r1's state replaced by that of the donor's bridge."""
    order, _ = donors(specimen)
    states = end_states(specimen.model, specimen.world.zero_hop())[order]
    batch = specimen.world.two_hop()
    return _followed(specimen, patched(specimen, batch, RELATION, states))


def _ablations(context: Context, kappa: int) -> dict[str, Observed]:
    models = context.specimens(gpt(kappa))
    return {
        "bridge.cause.mean-ablation": Observed.of(
            [mean_ablation(s, RELATION) for s in models],
            [mean_ablation(s, SUBJECT) for s in models],
        ),
        "bridge.cause.subspace": Observed.of(
            [_projected(s, bridge_span) for s in models],
            [_projected(s, random_span) for s in models],
        ),
    }


def mean_ablation(specimen: Specimen, position: int) -> float:
    """Ood with a position's state replaced by its mean over prompts."""
    batch = specimen.world.two_hop()
    mean = states_at(specimen, batch, position).mean(0, keepdim=True)
    states = mean.expand(len(batch.targets), -1)
    logits = patched(specimen, batch, position, states)
    return float(hits(logits, batch.targets).mean())


Basis = Float[Tensor, "rank d_model"]


def bridge_span(specimen: Specimen) -> Basis:
    """Orthonormal directions in which the bridges' states differ, 95 % of variance."""
    states = end_states(specimen.model, specimen.world.zero_hop())
    _, sizes, directions = torch.linalg.svd(
        states - states.mean(0), full_matrices=False
    )
    kept = sizes.square().cumsum(0) / sizes.square().sum()
    return directions[: int((kept < 0.95).sum()) + 1]


def random_span(specimen: Specimen) -> Basis:
    """As many random orthonormal directions."""
    rank, width = bridge_span(specimen).shape
    source = generator(specimen.seed, "bridge", "span")
    return torch.linalg.qr(torch.randn(width, rank, generator=source)).Q.mT


def _projected(specimen: Specimen, span: Callable[[Specimen], Basis]) -> float:
    """Ood with a span removed from r1's states, around their mean."""
    batch, basis = specimen.world.two_hop(), span(specimen)
    states = states_at(specimen, batch, RELATION)
    mean = states.mean(0)
    removed = (states - mean) @ basis.mT @ basis
    logits = patched(specimen, batch, RELATION, states - removed)
    return float(hits(logits, batch.targets).mean())

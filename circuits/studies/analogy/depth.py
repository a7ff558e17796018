"""How does alignment change from layer to layer? Observations and curves."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.claims import Observed
from circuits.sites import Site
from probes.alignment import paired_cosine, shifted_pair_cosine
from trained.analogy.deep_linear import ARM
from trained.analogy.gpt import joint_name

from .readings import Reader, Trained, least_gain, states

Observations = dict[str, Observed]
Curve = Float[Tensor, " layer"]


def observe_linear(reader: Reader) -> Observations:
    """Everything that `claims_depth.linear` asks for."""
    with torch.no_grad():
        trained = reader.seeds(ARM)
        same = [linear_curves(one.model)[0].tolist() for one in trained]
        different = [linear_curves(one.model)[1] for one in trained]
        before = [linear_curves(one.untrained().model)[0] for one in trained]
    prefix = "analogy.linear"
    return {
        f"{prefix}.depth.steps": Observed.of(
            [least_gain(curve) for curve in same],
            [float(curve.abs().max()) for curve in before],
        ),
        f"{prefix}.depth.gain": Observed.of(
            [curve[-1] - curve[0] for curve in same],
            [float(curve.max()) for curve in different],
        ),
        f"{prefix}.first-layer": Observed.of(
            [curve[1] for curve in same], [float(curve[1]) for curve in before]
        ),
    }


def observe_gpt_depth(reader: Reader) -> Observations:
    """Everything that `claims_depth.gpt` asks for."""
    if "joint" not in reader.config.curricula:
        return {}
    trained = reader.seeds(joint_name(reader.config.multiplicity))
    with torch.no_grad():
        curves = [gpt_curves(one) for one in trained]
    return {
        "analogy.gpt.depth.steps": Observed.of(
            [least_gain(pairs.tolist()) for pairs, _ in curves],
            [float(shifted.max()) for _, shifted in curves],
        ),
        "analogy.gpt.depth.last": Observed.of(
            [float(pairs[-1]) for pairs, _ in curves],
            [float(pairs[0].abs()) for pairs, _ in curves],
        ),
    }


def linear_curves(model: Any) -> tuple[Curve, Curve]:
    """Cosine of same-label and of different-label inputs, from the input upwards."""
    n_inputs = model.W_E.shape[0]
    firsts = torch.arange(0, n_inputs, 2)[:, None]
    sites = [Site("resid_pre", 0)]
    sites += [Site("resid_post", layer) for layer in range(len(model.blocks))]
    first = states(model, firsts, sites, 0)
    second = states(model, firsts + 1, sites, 0)
    same = paired_cosine(first, second).mean(-1)
    return same, shifted_pair_cosine(first, second).mean(-1)


def gpt_curves(trained: Trained) -> tuple[Curve, Curve]:
    """Cosine of source and target, and of shifted pairs, at the entity's position.

    The first point is the token embedding: positions are the same for all entities.
    """
    model, asked = trained.model, trained.asked
    sites = [Site("resid_post", layer) for layer in range(len(model.blocks))]
    source = states(model, asked.known, sites, 0)
    target = states(model, asked.test, sites, 0)
    source = torch.cat([model.W_E[asked.source][None], source])
    target = torch.cat([model.W_E[asked.target][None], target])
    pairs = paired_cosine(source, target).mean(-1)
    return pairs, shifted_pair_cosine(source, target).mean(-1)

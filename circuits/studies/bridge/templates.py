"""Which tokens does each row of Z vote for (Figure 3)?"""

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.claims import Observed
from probes.weights import diagonal_excess
from trained.bridge.arms import embedding, model_of

from .context import Context, Specimen
from .theory import logit_matrix


def observe(context: Context) -> dict[str, Observed]:
    """Relations select classes, bridges peak twice, subjects inherit."""
    with_identity, without = embedding(), embedding(1, "none")
    unfactorised = replace(with_identity, factors="one")
    each = context.each
    untrained = [
        replace(s, model=model_of(context.config, with_identity, s.seed))
        for s in context.specimens(with_identity)
    ]
    return {
        "bridge.templates.relations": Observed.of(
            each(with_identity, class_lead), [class_lead(s) for s in untrained]
        ),
        "bridge.templates.bridges": Observed.of(
            each(with_identity, bridge_peak), each(without, bridge_peak)
        ),
        "bridge.templates.subjects": Observed.of(
            each(with_identity, inheritance), each(without, inheritance)
        ),
        "bridge.unfactorised.excess": Observed.of(
            each(unfactorised, object_excess), each(with_identity, object_excess)
        ),
    }


def blocks(specimen: Specimen) -> dict[str, Float[Tensor, "row col"]]:
    """The four entity blocks of Z, rows and columns ordered so that pairs meet.

    `a->b` names rows a and columns b; column i of c is the object of subject i.
    """
    world = specimen.world
    assert world.complexity == 1, "blocks are square with one object per subject only"
    matrix, n = logit_matrix(specimen), world.n_subjects
    objects = n + world.objects[0]
    return {
        "a->b": matrix[:n, :n],
        "a->c": matrix[:n, objects],
        "b->b": matrix[n : 2 * n, :n],
        "b->c": matrix[n : 2 * n, objects],
    }


def class_lead(specimen: Specimen) -> float:
    """The lesser of r1's lead of bridges and r2's lead of objects."""
    n = specimen.world.n_subjects
    relations = logit_matrix(specimen)[2 * n :]
    leads = relations[:, :n].mean(1) - relations[:, n:].mean(1)
    return float(torch.minimum(leads[0], -leads[1]))


def bridge_peak(specimen: Specimen) -> float:
    """The lesser of excess(b->b) and excess(b->c), over excess(a->b)."""
    found = {name: float(diagonal_excess(b)) for name, b in blocks(specimen).items()}
    return min(found["b->b"], found["b->c"]) / found["a->b"]


def inheritance(specimen: Specimen) -> float:
    """excess(a->c) over excess(a->b): how much a subject prefers its own object."""
    found = blocks(specimen)
    return float(diagonal_excess(found["a->c"]) / diagonal_excess(found["a->b"]))


def object_excess(specimen: Specimen) -> float:
    """|excess(a->c)|: whether a subject's row treats its own object apart at all."""
    return abs(float(diagonal_excess(blocks(specimen)["a->c"])))

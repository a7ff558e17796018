"""Does the one-layer block transfer, and is it aligned? Observations for its claims."""

from functools import partial

import torch
from torch import Tensor

from circuits.claims import Observed
from circuits.hooks import record
from circuits.sites import Site
from trained.analogy.law import STEPS
from trained.analogy.layerwise import first_phase_step, fitted_step, joint_name

from .readings import (
    Reader,
    Trained,
    answered,
    c_only,
    known,
    known_c_only,
    least_gain,
    success,
    training_loss,
    value_alignment,
)

Observations = dict[str, Observed]
PREFIX = "analogy.block"


def observe_block(reader: Reader) -> Observations:
    """Everything that `claims_block` asks for."""
    names = reader.config.curricula
    seen: Observations = {}
    if "joint" in names:
        seen |= _joint(reader) | _multiplicities(reader)
    if "SA" in names:
        seen |= _similarity_first(reader)
    if "AS_T" in names:
        seen |= _theorem3(reader)
    if "AS_E" in names:
        seen |= _section5(reader)
    for name in ("AS_T", "AS_E"):
        if name in names:
            seen |= _frozen(reader, name)
    return seen | _two_hop(reader)


def _joint(reader: Reader) -> Observations:
    name = joint_name(reader.config.multiplicity)
    return {
        f"{PREFIX}.joint.success": Observed.of(
            reader.of(name, success), reader.of("block-permuted", success)
        ),
        f"{PREFIX}.joint.alignment": _alignment(reader, name),
        f"{PREFIX}.joint.alignment-centred": Observed.of(
            reader.of(name, lambda t: value_alignment(t).centred),
            reader.of(name, lambda t: abs(value_alignment(t).shifted_centred)),
        ),
        f"{PREFIX}.attention-balance": Observed.of(
            reader.of(name, imbalance), reader.of("block-large_init", imbalance)
        ),
        f"{PREFIX}.coefficient.shared": _coefficient(reader, name, "target", "shared"),
        f"{PREFIX}.coefficient.attribute": _coefficient(
            reader, name, "source", "answer"
        ),
    }


def _multiplicities(reader: Reader) -> Observations:
    ks = reader.config.block_ks
    seen: Observations = {}
    for k in ks:
        if k != reader.config.multiplicity:
            seen[f"{PREFIX}.k{k}.alignment"] = _alignment(reader, joint_name(k))
        seen[f"{PREFIX}.k{k}.loss"] = _loss(reader, joint_name(k))
    by_k = [reader.of(joint_name(k), success) for k in ks]
    before = reader.of(joint_name(ks[0]), lambda t: success(t.untrained()))
    worst = [min(column) for column in zip(*by_k, strict=True)]
    seen[f"{PREFIX}.k.success"] = Observed.of(worst, before)
    if len(ks) > 1:
        pairs = [reader.of(joint_name(k), lambda t: value_alignment(t).raw) for k in ks]
        null = [
            reader.of(joint_name(k), lambda t: value_alignment(t).shifted) for k in ks
        ]
        seen[f"{PREFIX}.k.increasing"] = Observed.of(
            [least_gain(column) for column in zip(*pairs, strict=True)],
            [abs(least_gain(column)) for column in zip(*null, strict=True)],
        )
    return seen


def _similarity_first(reader: Reader) -> Observations:
    before = first_phase_step(reader.config)
    return {
        f"{PREFIX}.SA.success": Observed.of(
            reader.of("block-SA", success), reader.of("block-SA", success, step=before)
        ),
        f"{PREFIX}.SA.alignment": _alignment(reader, "block-SA"),
        f"{PREFIX}.SA.coefficient": _coefficient(
            reader, "block-SA", "target", "shared"
        ),
        f"{PREFIX}.SA.retention": Observed.of(
            reader.of("block-SA", answered(0)),
            reader.of("block-SA", answered(0), step=before),
        ),
        f"{PREFIX}.SA.loss": _loss(reader, "block-SA"),
    }


def _theorem3(reader: Reader) -> Observations:
    name, fitted = "block-AS_T", fitted_step(reader.config)
    target = partial(coefficient, entity="target", label="shared")
    source = partial(coefficient, entity="source", label="shared")
    return {
        f"{PREFIX}.AS_T.success": Observed.of(
            reader.of(name, success, step=fitted),
            reader.of(name, answered(-1), step=fitted),
        ),
        f"{PREFIX}.AS_T.c-only": Observed.of(
            reader.of(name, c_only, step=fitted),
            reader.of(name, known_c_only, step=fitted),
        ),
        f"{PREFIX}.AS_T.retention": Observed.of(
            reader.of(name, known, step=fitted),
            reader.of(name, lambda t: known(t.untrained())),
        ),
        f"{PREFIX}.AS_T.coefficient": Observed.of(
            reader.of(name, target), reader.of(name, source)
        ),
    }


def _section5(reader: Reader) -> Observations:
    name = "block-AS_E"
    fitted, before = fitted_step(reader.config), first_phase_step(reader.config)
    taught = reader.of(name, answered(-1), step=fitted)
    return {
        f"{PREFIX}.AS_E.success": Observed.of(
            reader.of(name, success, step=fitted), taught
        ),
        f"{PREFIX}.AS_E.c-only": Observed.of(
            reader.of(name, c_only, step=fitted), taught
        ),
        f"{PREFIX}.AS_E.retention": Observed.of(
            reader.of(name, known, step=fitted), reader.of(name, known, step=before)
        ),
    }


def _frozen(reader: Reader, name: str) -> Observations:
    plain, replay = f"block-{name}", f"block-{name}-replay"
    fitted = fitted_step(reader.config)
    frozen = reader.of(replay, success, step=fitted)
    return {
        f"{PREFIX}.{name}.alignment": Observed.of(
            reader.of(plain, lambda t: abs(value_alignment(t).raw)),
            reader.of(replay, lambda t: value_alignment(t).raw),
        ),
        f"{PREFIX}.{name}.replay": Observed.of(
            frozen, reader.of(replay, answered(-1), step=fitted)
        ),
        f"{PREFIX}.{name}.unfrozen": Observed.of(reader.of(replay, success), frozen),
        f"{PREFIX}.{name}.loss": _loss(reader, plain),
    }


def _two_hop(reader: Reader) -> Observations:
    yes, no = "block-bridge", "block-no_bridge"
    without = reader.of(no, success)
    return {
        f"{PREFIX}.bridge.success": Observed.of(reader.of(yes, success), without),
        f"{PREFIX}.bridge.alignment": _alignment(reader, yes),
        f"{PREFIX}.bridge.coefficient": _coefficient(reader, yes, "target", "shared"),
        f"{PREFIX}.bridge.loss": _loss(reader, yes),
        f"{PREFIX}.no-bridge.success": Observed.of(
            without, reader.of(no, answered(-1))
        ),
        f"{PREFIX}.no-bridge.alignment": Observed.of(
            reader.of(no, lambda t: abs(value_alignment(t).raw)),
            reader.of(yes, lambda t: value_alignment(t).raw),
        ),
        f"{PREFIX}.no-bridge.loss": _loss(reader, no),
    }


def _alignment(reader: Reader, name: str) -> Observed:
    """The cosine, beside the absolute one of shifted pairs."""
    return Observed.of(
        reader.of(name, lambda t: value_alignment(t).raw),
        reader.of(name, lambda t: abs(value_alignment(t).shifted)),
    )


def _loss(reader: Reader, name: str) -> Observed:
    return Observed.of(
        reader.of(name, training_loss),
        reader.of(name, lambda t: training_loss(t.untrained())),
    )


def _coefficient(reader: Reader, name: str, entity: str, label: str) -> Observed:
    right = partial(coefficient, entity=entity, label=label)
    wrong = partial(coefficient, entity=entity, label=label, shift=1)
    return Observed.of(reader.of(name, right), reader.of(name, wrong))


def imbalance(trained: Trained) -> float:
    """The largest distance of the entity's attention from 1/2 over all premises."""
    site = Site("pattern", 0)
    with record(trained.model, [site]) as seen:
        trained.model(trained.premises(0).tokens)
    return float((seen[site][:, 0, 0, 0] - 0.5).abs().max())


def coefficient(trained: Trained, *, entity: str, label: str, shift: int = 0) -> float:
    """What stage 1 added to V z of a label's head row, as a share of the prediction.

    The rows are not orthogonal, so all coefficients are solved for at once. The
    prediction is rate x steps x scale / 2 x the weight of the fact among the premises.
    """
    before = trained.untrained().model
    tokens: Tensor = getattr(trained.asked, entity)
    labels: Tensor = getattr(trained.asked, label).roll(-shift)
    added = trained.model.value_vectors(tokens) - before.value_vectors(tokens)
    rows = before.head
    all_of_them = torch.linalg.lstsq(rows.mT, added.mT).solution
    found = all_of_them[labels, torch.arange(len(labels))]
    stage = trained.arm.stages[0]
    premises = trained.premises(0)
    weight = premises.weights[premises.targets == labels[0]].min()
    step = stage.optimiser.lr * STEPS * trained.model.scale / 2
    return float(found.mean() / (step * weight))

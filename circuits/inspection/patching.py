"""What carries the answer: patches from clean prompts into corrupt ones, and its parts.

A clean and a corrupt prompt differ in what the answer depends on. Every number is read
off the logit difference between their two answers.
"""

from collections.abc import Sequence

from circuits.hooks import Model, sites_of
from circuits.interventions.attribution import logit_attribution
from circuits.interventions.metric import TOKENS_AT_ONCE
from circuits.interventions.part import (
    HEAD_AXIS,
    Grid,
    Part,
    head_grid,
    position_grid,
)
from circuits.interventions.passes import activations
from circuits.interventions.patching import effect, patch_sweep
from circuits.interventions.path_patching import Path, Receiver, path_patch_sweep
from circuits.interventions.sweep import Reading, logit_difference
from circuits.models.prompts import named
from circuits.sites import Kind, Site
from probes.measurement import Measurement
from trained.errors import BadInput, unknown
from trained.task import Batch

from .subject import answered, places, show


def patch(
    model: Model,
    clean: Batch,
    corrupt: Batch,
    kind: Kind,
    *,
    positions: Sequence[str | int] | None = None,
    tokens_at_once: int = TOKENS_AT_ONCE,
) -> Measurement:
    """Share of the answer that each part of the clean run restores in a corrupt one.

    The model runs on the corrupt prompts with one part taken from its run on the clean
    ones: 0 as if nothing was patched, 1 as if everything was; mean over prompts. The
    answer to a prompt that has none is what the model says.

    Args:
        model: the model.
        clean: the prompts whose answer is followed.
        corrupt: for each, the other one, with another answer.
        kind: the parts: those that have heads are patched head by head at all positions
            ("head_out", "pattern", "value"), others ("resid_post", "mlp_out", ...)
            position by position.
        positions: roles or columns to patch at; None for all.
        tokens_at_once: no pass holds more, unless a single prompt has more: fewer take
            less memory and more time.

    Returns:
        A Measurement with axes ("layer", "position") or ("layer", "head").
    """
    clean, corrupt = _answered_pair(model, clean, corrupt)
    clean, corrupt = (
        named(model, batch, *positions or ()) for batch in (clean, corrupt)
    )
    grid = _grid(model, clean, kind, positions)
    reading = Reading(logit_difference(corrupt.targets), tokens_at_once=tokens_at_once)
    share = effect(patch_sweep(model, clean, corrupt, grid, reading)).mean("example")
    labels = dict(share.labels)
    if "position" in labels and positions is None:
        labels["position"] = places(model, clean)
    return _share(model, clean, corrupt, share, labels, f"restored by {kind}")


def path_patch(
    model: Model,
    clean: Batch,
    corrupt: Batch,
    sender: Part,
    *,
    receivers: Sequence[Receiver] | None = None,
    tokens_at_once: int = TOKENS_AT_ONCE,
) -> Measurement:
    """Share of the answer that goes from one part straight to each later one.

    Args:
        model: the model.
        clean: the prompts whose answer is followed.
        corrupt: for each, the other one, with another answer and as many tokens.
        sender: a part that writes to the residual: "head_out", "attn_out", "mlp_out",
            or "resid_pre" of layer 0.
        receivers: who reads; None for the attention and the MLP of every later layer
            and the logits.
        tokens_at_once: as for `patch`.

    Returns:
        A Measurement with axis ("receiver",).
    """
    clean, corrupt = _answered_pair(model, clean, corrupt)
    readers = list(receivers or _later(model, sender))
    labels = tuple(_reader_name(reader) for reader in readers)
    grid = Grid({"receiver": labels}, tuple(Path(sender, reader) for reader in readers))
    reading = Reading(logit_difference(corrupt.targets), tokens_at_once=tokens_at_once)
    swept = path_patch_sweep(model, clean, corrupt, grid, reading)
    share = effect(swept).mean("example")
    name = f"restored by the path from {sender.site}"
    return _share(model, clean, corrupt, share, dict(share.labels), name)


def attribute(model: Model, clean: Batch, corrupt: Batch) -> Measurement:
    """What each component adds to the clean answer's logit over the corrupt one's.

    Direct logit attribution on the clean prompts (see `logit_attribution`), mean over
    prompts; axis ("component",). Only the answers of the corrupt prompts matter.
    """
    clean, corrupt = _answered_pair(model, clean, corrupt)
    return logit_attribution(model, clean, corrupt.targets).mean("example")


def _answered_pair(model: Model, clean: Batch, corrupt: Batch) -> tuple[Batch, Batch]:
    """Both with an answer; `BadInput` unless they are pairs with different answers."""
    if len(clean) != len(corrupt):
        raise BadInput(f"{len(clean)} clean prompts and {len(corrupt)} corrupt ones")
    clean, corrupt = answered(model, clean), answered(model, corrupt)
    same = (clean.targets == corrupt.targets).nonzero()[:, 0].tolist()
    if same:
        answer = show(model, int(clean.targets[same[0]]))
        raise BadInput(f"pair {same[0]} of prompts has one answer, {answer}, for both")
    return clean, corrupt


def _grid(
    model: Model, clean: Batch, kind: Kind, positions: Sequence[str | int] | None
) -> Grid[Part]:
    layers = [site.layer for site in sites_of(model) if site.kind == kind]
    if not layers:
        raise unknown("site", kind, sorted({site.kind for site in sites_of(model)}))
    if kind not in HEAD_AXIS:
        chosen = positions or range(clean.tokens.shape[1])
        return position_grid(kind, layers, chosen)
    if positions is not None:
        raise BadInput(f"{kind} is patched head by head: leave out positions")
    site = Site(kind, layers[0])
    seen = activations(model, clean.rows(slice(1)), [site])[site]
    return head_grid(kind, layers, range(seen.shape[HEAD_AXIS[kind]]))


def _later(model: Model, sender: Part) -> list[Receiver]:
    """Everybody who reads what the sender wrote."""
    found = []
    for site in sorted(sites_of(model), key=lambda site: (site.layer, site.kind)):
        start = sender.kind == "resid_pre" or site.layer > sender.layer
        if site.kind == "attn_out" and start:
            found.append(Receiver("attention", site.layer))
        same_block = site.layer == sender.layer and sender.kind != "mlp_out"
        if site.kind == "mlp_out" and (start or (same_block and _serial(model))):
            found.append(Receiver("mlp", site.layer))
    return [*found, Receiver("logits")]


def _serial(model: Model) -> bool:
    """Whether the MLP of a block reads what its attention wrote."""
    return any(site.kind == "resid_mid" for site in sites_of(model))


def _reader_name(reader: Receiver) -> str:
    if reader.part == "logits":
        return "logits"
    head = "" if reader.head is None else f".{reader.head}"
    through = "" if reader.through == "input" else f" by {reader.through}"
    return f"{reader.part} {reader.layer}{head}{through}"


def _share(
    model: Model,
    clean: Batch,
    corrupt: Batch,
    share: Measurement,
    labels: dict[str, tuple[str | int | float, ...]],
    name: str,
) -> Measurement:
    """A restored share with names that a reader understands."""
    if len(clean) == 1:
        right, wrong = (show(model, int(b.targets[0])) for b in (clean, corrupt))
        name = f"{right} over {wrong} {name}"
    return Measurement(
        share.values,
        share.axes,
        labels,
        name=name,
        unit="share",
        provenance=share.provenance,
    )

"""The backend for models with TransformerLens hook points: ours and its bridges."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from trained.errors import BadInput, unknown

from .sites import KINDS, Site, hooked_name

Callback = Callable[[Tensor], Tensor | None]
"""Sees an activation; what it returns, if anything, takes the activation's place."""


def attach(model: nn.Module, site: Site, callback: Callback) -> RemovableHandle:
    """Call back with the activation at a site on every forward pass.

    A plain torch hook, so removing the handle leaves the user's own hooks alone.
    """
    points = hook_points(model)
    name = hooked_name(site)
    if name not in points:
        raise unknown("site", site, [str(s) for s in sites(model)])

    def hook(_module: nn.Module, _inputs: Any, output: Tensor) -> Tensor | None:
        return callback(output)

    return points[name].register_forward_hook(hook)


def sites(model: nn.Module) -> list[Site]:
    """Every site that the model has, in the order of kinds and layers."""
    points = hook_points(model)
    found = []
    for kind in KINDS:
        layer = 0
        while hooked_name(Site(kind, layer)) in points:
            found.append(Site(kind, layer))
            if kind == "logits":
                break
            layer += 1
    return found


def hook_points(model: nn.Module) -> dict[str, nn.Module]:
    """The model's hook points by name; `BadInput` for a model that has none."""
    points = getattr(model, "hook_dict", None)
    if not points:
        raise BadInput(
            f"{type(model).__name__} has no TransformerLens hook points; "
            "pass a model of trained/ or a TransformerBridge"
        )
    return dict(points)

"""The ways into a model, one file each, all with the same functions.

`sites(model)` lists what can be observed; `attach(model, site, callback)` calls back
with an activation on every forward pass and returns a handle whose `remove` ends it.
What the callback returns, if anything, takes the activation's place.
`attach_view(model, layer, view, show)` shows less than a layer's pattern. `readout`,
`unembedding`, `resumption`, `branching`, `head_weights` and `writing` say what is
inside.

`hooked` serves models with TransformerLens hook points (ours and its bridges), `hf`
plain Hugging Face models, `nnsight` models wrapped by nnsight.
"""

import sys
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from torch import Tensor, nn

from circuits.sites import Site
from trained.errors import BadInput

from .anatomy import HeadWeights, Readout, Resumption, Writing
from .view import View

if TYPE_CHECKING:
    from .branches import Branching

Callback = Callable[[Tensor], Tensor | None]
"""Sees an activation; what it returns, if anything, takes the activation's place."""


@runtime_checkable
class Handle(Protocol):
    """Ends what `attach` began."""

    def remove(self) -> None:
        """Stop calling back."""


@runtime_checkable
class Backend(Protocol):
    """What a backend module offers."""

    def sites(self, model: Any) -> list[Site]:
        """Every site that the model has, in the order of kinds and layers."""

    def attach(self, model: Any, site: Site, callback: Callback) -> Handle:
        """Call back with the activation at a site on every forward pass."""

    def attach_view(
        self, model: Any, layer: int, view: View, show: Callable[[Tensor], None]
    ) -> Handle:
        """Show what a view asks of a layer's pattern on every forward pass."""

    def unembedding(self, model: Any) -> nn.Module | None:
        """Whose input may be narrowed to what is read; None if nothing may."""

    def readout(self, model: Any) -> Readout:
        """From the last residual to logits; `BadInput` if that is not known."""

    def resumption(self, model: Any) -> Resumption | None:
        """How a pass can start inside the model; None if it cannot."""

    def branching(self, model: Any, length: int) -> "Branching | None":
        """How runs on prompts of a length can be branched off; None if not exactly."""

    def head_weights(self, model: Any, layer: int) -> HeadWeights:
        """The weights of a layer's heads; `BadInput` if these are not known."""

    def writing(self, model: Any, layer: int) -> Writing | None:
        """What a layer's heads and neurons become; None if that is not known."""


NAMES = ("hooked", "hf", "nnsight")


def backend_of(model: Any) -> Backend:
    """The backend that reaches into a model; loads nothing that it does not need."""
    if getattr(model, "hook_dict", None):
        return _load("hooked")
    if _is(model, f"{__name__}.nnsight", "Traced"):
        return _load("nnsight")
    if _is(model, "transformers.modeling_utils", "PreTrainedModel"):
        return _load("hf")
    raise BadInput(
        f"{type(model).__name__} cannot be observed; pass a model of trained/, a "
        "TransformerBridge, a transformers model or backends.nnsight.Traced(one)"
    )


def _is(model: Any, module: str, name: str) -> bool:
    """Whether a model is of a class that may not even be loaded."""
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(model, getattr(loaded, name))


def _load(name: str) -> Backend:
    module: Any = import_module(f"{__name__}.{name}")
    return module

"""Callbacks at one place of a model, in the order in which they came."""

from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor

from . import Callback, Handle


@dataclass(eq=False)
class Tap:
    """Passes an activation through callbacks; closes with the last of them.

    Attributes:
        close: what to do when nobody listens any more.
    """

    close: Callable[[], None] = lambda: None
    listeners: list["Listener"] = field(default_factory=list)

    def add(self, callback: Callback) -> "Listener":
        """Call back from now on, after those that are already here."""
        listener = Listener(self, callback)
        self.listeners.append(listener)
        return listener

    def __call__(self, activation: Tensor) -> Tensor | None:
        """What takes the activation's place; None if nobody changed it."""
        edited = None
        for listener in tuple(self.listeners):
            answer = listener.callback(activation if edited is None else edited)
            edited = edited if answer is None else answer
        return edited


@dataclass(eq=False)
class Listener:
    """One callback at a tap."""

    tap: Tap
    callback: Callback

    def remove(self) -> None:
        """Stop calling back; a second time does nothing."""
        if self in self.tap.listeners:
            self.tap.listeners.remove(self)
            if not self.tap.listeners:
                self.tap.close()


def scaled(callback: Callback, scale: float) -> Callback:
    """A callback for what is added, at a place where it is not yet multiplied."""
    if scale == 1:
        return callback

    def see(activation: Tensor) -> Tensor | None:
        edited = callback(activation * scale)
        return None if edited is None else edited / scale

    return see


@dataclass
class Bypass:
    """An edit of a residual from which two branches leave.

    One goes into a norm, where `into` sees and replaces it; the other goes past the
    norm to the end of the block, where `past` makes the same change.
    """

    callback: Callback
    change: Tensor | None = None

    def into(self, residual: Tensor) -> Tensor | None:
        """What goes into the norm; None if nothing changed."""
        edited = self.callback(residual)
        self.change = None if edited is None else edited - residual
        return edited

    def past(self, output: Tensor) -> Tensor | None:
        """What the block then gives; None if nothing changed."""
        change, self.change = self.change, None
        return None if change is None else output + change


@dataclass(frozen=True)
class Handles:
    """Several handles as one."""

    parts: tuple[Handle, ...]

    def remove(self) -> None:
        """Stop all of them."""
        for part in self.parts:
            part.remove()

"""AdamW with bfloat16 moments: four bytes of state a parameter instead of eight.

The mean of squares decays by a thousandth a step, less than bfloat16 resolves, so it is
rounded up or down at random, by where it lies between the two: right on average. A
bfloat16 parameter keeps beside it what its own rounding took away (Kahan 1965), so that
updates below its resolution add up. All that is random follows from seed and step.
"""

from collections.abc import Iterable, Iterator, Mapping

import torch
from torch import Tensor, nn

from trained.seeding import generator

CHUNK = 2**18
"""Numbers that are updated at a time: float32 copies are of these only."""
BETAS = (0.9, 0.999)
EPSILON = 1e-8
LOW = 16
"""Bits of a float32 that bfloat16 drops."""

State = dict[str, Tensor]


class LeanAdamW:
    """One phase's optimiser over named parameters (Loshchilov and Hutter 2019).

    Args:
        parameters: what is trained; gradients are read from their `grad`.
        lr: the rate.
        weight_decay: decoupled.
        seed: of the rounding.
    """

    def __init__(
        self,
        parameters: Mapping[str, nn.Parameter],
        *,
        lr: float,
        weight_decay: float = 0.0,
        seed: int = 0,
    ) -> None:
        self._parameters = dict(parameters)
        self._lr, self._decay, self._seed = lr, weight_decay, seed
        self.taken = 0
        self._states = {name: _state(p) for name, p in self._parameters.items()}

    @torch.no_grad()
    def step(self, scale: float = 1.0, clip: float | None = None) -> float:
        """Take a step and drop the gradients.

        Args:
            scale: factor of the gradients, such as 1 / (rows that were added up).
            clip: largest norm of the scaled gradient.

        Returns:
            That norm, before it is clipped.
        """
        gradients = [p.grad for p in self._parameters.values() if p.grad is not None]
        norm = scale * _norm(gradients)
        if clip is not None and norm > clip:
            scale *= clip / norm
        self.taken += 1
        shared = {device: self._shared(device) for device in self._devices()}
        for name, parameter in self._parameters.items():
            if parameter.grad is not None:
                for parts in _chunks(parameter, self._states[name]):
                    self._update(*parts, scale, *shared[parameter.device])
            parameter.grad = None
        return norm

    def _update(
        self,
        value: Tensor,
        gradient: Tensor,
        state: State,
        scale: float,
        taken: Tensor,
        noise: Tensor,
    ) -> None:
        # Of a float32 parameter this is itself, and updated in place.
        exact = value.float()
        if "lost" in state:
            exact += state["lost"]
        mean, square = state["mean"].float(), state["square"].float()
        torch._fused_adamw_(
            [exact],
            [gradient.float().mul_(scale)],
            [mean],
            [square],
            [],
            [taken],
            lr=self._lr,
            beta1=BETAS[0],
            beta2=BETAS[1],
            weight_decay=self._decay,
            eps=EPSILON,
            amsgrad=False,
            maximize=False,
        )
        if "lost" in state:
            value.copy_(exact)
            state["lost"].copy_(exact - value)
        state["mean"].copy_(mean)
        state["square"].copy_(rounded(square, noise[: square.numel()]))

    def _devices(self) -> set[torch.device]:
        return {parameter.device for parameter in self._parameters.values()}

    def _shared(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Of every chunk of a step: its number, and whole numbers for the rounding."""
        most = min(CHUNK, max(p.numel() for p in self._parameters.values()))
        source = generator(self._seed, "rounding", self.taken)
        noise = torch.randint(2**LOW, (most,), generator=source, dtype=torch.int32)
        return torch.tensor(float(self.taken), device=device), noise.to(device)

    def tensors(self) -> State:
        """Everything that the next step depends on, by name."""
        return {
            f"{name}/{key}": tensor
            for name, state in self._states.items()
            for key, tensor in state.items()
        }

    @torch.no_grad()
    def load(self, tensors: Mapping[str, Tensor], taken: int) -> None:
        """Go back to what `tensors` gave after so many steps."""
        for name, tensor in self.tensors().items():
            tensor.copy_(tensors[name])
        self.taken = taken


def rounded(values: Tensor, noise: Tensor) -> Tensor:
    """Float32 values rounded to bfloat16 at random, up as often as they lie high.

    Args:
        values: finite, float32.
        noise: whole numbers from 0 to 2^16 - 1, int32, one for each.

    >>> one = torch.tensor([1.0])
    >>> [float(rounded(one * 1.001, torch.tensor([n]).int())) for n in (0, 65535)]
    [1.0, 1.0078125]
    """
    bits = values.contiguous().view(torch.int32) + noise
    # Without its low half a float32 is a bfloat16.
    return bits.bitwise_and_(-(2**LOW)).view(torch.float32).bfloat16()


def _state(parameter: Tensor) -> State:
    def zeros() -> Tensor:
        shape = parameter.detach()
        return torch.zeros_like(shape, dtype=torch.bfloat16).contiguous()

    moments = {"mean": zeros(), "square": zeros()}
    whole = parameter.dtype == torch.float32
    return moments if whole else {**moments, "lost": zeros()}


def _chunks(parameter: Tensor, state: State) -> Iterator[tuple[Tensor, Tensor, State]]:
    """Views of a parameter, its gradient and its state, some numbers at a time."""
    assert parameter.grad is not None
    flat = parameter.detach().view(-1)
    gradient = parameter.grad.reshape(-1)
    states = {key: tensor.view(-1) for key, tensor in state.items()}
    for start in range(0, flat.numel(), CHUNK):
        part = slice(start, start + CHUNK)
        yield flat[part], gradient[part], {k: t[part] for k, t in states.items()}


def _norm(gradients: Iterable[Tensor]) -> float:
    norms = [torch.linalg.vector_norm(g, dtype=torch.float32) for g in gradients]
    if not norms:
        return 0.0
    # One copy to the host for all of them: each would wait for the device.
    return float(torch.stack([n.to(norms[0].device) for n in norms]).norm())

"""What two numbers on top of the proved features already explain, and what they fake.

After equally many steps, or at equal loss, the symmetric action's attention is less
sharp. At equal loss part of this is an artefact: with the clip the cyclic action's
loss cannot fall below about 1/d with its smaller d, so it trains on for long.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.claims import Observed
from trained.lego.theory_arms import RULE
from trained.lego.theory_model import loss_floor

from .context import Context
from .dilution import irrelevant
from .theory_models import READ_LENGTH, Theory

EARLY = 4
"""The record after 20 steps, when steps were still capped."""
WINDOW = 9
"""Records over which a noisy loss is averaged."""

Path = dict[str, Tensor]
"""alpha, beta and loss [seed, record] over training."""


def observe(context: Context) -> dict[str, Observed]:
    """The reduced models of both kinds of action."""
    theory = Theory(context)
    simple, other = theory.course("simple"), theory.course("other")
    if simple is None or other is None:
        return {}
    one, two = (theory.reduced(course) for course in (simple, other))
    own = [RULE * loss_floor(course.words.size) for course in (simple, other)]
    end = [float(loss) for loss in smoothed_loss(one)[:, -1]]
    return {
        "lego.reduced.steps": Observed.of(
            _ratios(sharpness(two)[:, -1], sharpness(one)[:, -1]),
            _ratios(sharpness(two)[:, EARLY], sharpness(one)[:, EARLY]),
        ),
        "lego.reduced.loss": Observed.of(
            _ratios(at_loss(two, end), sharpness(one)[:, -1]),
            _ratios(
                at_loss(two, [own[1]] * len(end)), at_loss(one, [own[0]] * len(end))
            ),
        ),
        "lego.reduced.balance": Observed.of(
            gaps(two), gaps(theory.reduced(other, balanced=True))
        ),
    }


def sharpness(path: Path) -> Float[Tensor, "seed record"]:
    """K = e^alpha + e^beta over training."""
    return path["alpha"].exp() + path["beta"].exp()


def smoothed_loss(path: Path, window: int = WINDOW) -> Float[Tensor, "seed record"]:
    """The training loss, each record averaged with the ones just before it."""
    early = path["loss"][:, :1].expand(-1, window - 1)
    return torch.cat([early, path["loss"]], 1).unfold(1, window, 1).mean(-1)


def at_loss(
    path: Path, thresholds: list[float], window: int = WINDOW
) -> Float[Tensor, " seed"]:
    """K of each seed once its loss is no larger than a threshold, or at the end."""
    reached = smoothed_loss(path, window) <= torch.tensor(thresholds)[:, None]
    reached[:, -1] = True
    first = reached.int().argmax(1, keepdim=True)
    return sharpness(path).gather(1, first)[:, 0]


def gaps(path: Path) -> list[float]:
    """Delta at the end: mean over the queries of a length of |e^alpha - e^beta| / Z."""
    first, second = path["alpha"][:, -1].exp(), path["beta"][:, -1].exp()
    total = irrelevant(READ_LENGTH) + (first + second)[:, None]
    return list(((first - second).abs()[:, None] / total).mean(1).tolist())


def _ratios(above: Tensor, below: Tensor) -> list[float]:
    return list((above / below).tolist())

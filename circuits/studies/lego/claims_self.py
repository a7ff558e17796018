"""What self-training should do (Figure 1b, Corollary 5.1), fixed before this code ran.

The paper does not compare with equally many more steps at the first length; we do,
since they sharpen attention as well.
"""

from collections.abc import Iterator
from dataclasses import replace

from circuits.claims import Claim, Control
from trained.lego.action import action
from trained.lego.config import Config

from .claims_length import UNIFORM


def self_trained(config: Config) -> Iterator[Claim]:
    """Claims about the group that trains itself."""
    if not config.self_lengths:
        return
    name = action(config.symmetric or config.groups[0]).slug
    steps = " -> ".join(str(n) for n in (config.train_length, *config.self_lengths))
    yield from _reach(config, name, steps)
    yield from _controls(config, name)


def _reach(config: Config, name: str, steps: str) -> Iterator[Claim]:
    farthest = config.lengths[-1]
    yield Claim(
        "lego.self.final",
        f"{name}, self-trained {steps}: chains of length {farthest} are solved.",
        "Figure 1b",
        "behaviour",
        ">= 0.95",
        Control("where self-training starts", "<= 0.5"),
        paper=1.0,
        # Beyond four times the last round nothing is claimed.
        gated=config.self_lengths[-1] < farthest <= 4 * config.self_lengths[-1],
    )
    yield Claim(
        "lego.self.rounds",
        f"{name}: every round solves at least twice its own length: the least L* over"
        " the round's length.",
        "Corollary 5.1",
        "behaviour",
        ">= 2",
        Control("one round labelled by uniform attention, over the first", "< 2"),
        gated=False,
    )
    jump = 2 * config.self_lengths[-1]
    possible = jump < config.n_variables
    yield Claim(
        "lego.self.labels",
        f"{name}: a round's annotator labels new chains of its length right (share,"
        " worst round, every seed).",
        "Section 5",
        "behaviour",
        ">= 0.99",
        Control(f"length {jump} at once" if possible else UNIFORM, "< 0.1"),
        every_seed=True,
    )
    if possible:
        at_once = Claim(
            "lego.self.jump",
            f"{name}: one round at length {jump} at once does not solve {farthest}.",
            "ours",
            "behaviour",
            "<= 0.1",
            Control("in rounds", ">= 0.95"),
            gated=config.self_lengths[-1] < farthest <= 4 * config.self_lengths[-1],
        )
        yield at_once
        yield replace(
            at_once,
            id="lego.self.jump.steps",
            statement=f"{name}: nor do as many steps there as all rounds have.",
            gated=False,
        )


def _controls(config: Config, name: str) -> Iterator[Claim]:
    steps = config.self_steps * len(config.self_lengths)
    farthest, first = config.lengths[-1], config.train_length
    same = f"own labels at length {first} instead"
    yield Claim(
        "lego.self.more-steps",
        f"{name}: self-training beats {steps} more steps at length {first} with true"
        f" labels: difference of all at length {farthest}.",
        "ours",
        "behaviour",
        "> 0",
        Control(same, "in [-0.25, 0.25]"),
    )
    yield Claim(
        "lego.self.sharpness",
        f"{name}: K after self-training over K after as many steps at length {first}.",
        "ours",
        "signal",
        "> 1",
        Control(same, "in [0.8, 1.25]"),
    )
    yield Claim(
        "lego.self.corrupt",
        f"{name}: labels of a uniform attention do not sharpen: K after one round over"
        " K before.",
        "ours",
        "causal",
        "<= 1",
        Control("own labels", "> 1"),
    )
    yield Claim(
        "lego.self.tables",
        f"{name}: the last round's Q43 alone, put into the first model, solves length"
        f" {farthest}.",
        "ours",
        "causal",
        ">= 0.5",
        Control("its Q44 alone", "<= 0.5"),
        gated=False,
    )

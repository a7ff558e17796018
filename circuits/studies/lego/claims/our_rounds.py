"""What we add about self-training: the folded model's rounds, and what T's do to K."""

from collections.abc import Iterator
from functools import partial
from itertools import pairwise

from circuits.claims import Claim, Null
from circuits.conditions import Each, Mean
from trained.lego.action import action
from trained.lego.config import Config, first_of_kind

from .common import Measured

Own = partial(Claim, source="ours", origin="ours")

RESTARTS = (
    "Step 5: after a first value, what is compared restarts Adam as often as the rounds"
)


def our_rounds(config: Config) -> Iterator[Claim]:
    """What we add: rounds of the folded model, and what T's rounds do to K."""
    if config.self_group:
        yield from _folded(config, config.self_group)
        yield from _instead(config, config.self_group)
    group = first_of_kind(config.theory.groups, simply=False)
    if group and config.theory.attention.rounds:
        yield from _rounds(config, group)


def _folded(config: Config, group: str) -> Iterator[Claim]:
    name, rounds = action(group).slug, config.self_training.lengths
    farthest, last = config.lengths[-1], f"self{rounds[-1]}"
    steps = " -> ".join(str(n) for n in (config.train_length, *rounds))
    yield Own(
        "lego.ours.self.final",
        f"{name}, self-trained {steps}: chains of length {farthest} are solved (all).",
        kind="behaviour",
        conditions=(Mean("all", ">= 0.95", _farthest(last)),),
        nulls=(
            Null(
                "where self-training starts",
                measure=_farthest("base"),
                bound="<= 0.5",
            ),
        ),
        paper=1.0,
    )
    yield Own(
        "lego.ours.self.rounds",
        f"{name}: every round solves at least twice its own length: the least L* over"
        " the round's length.",
        kind="behaviour",
        conditions=(Mean("L* / L", ">= 2", lambda lab: lab.rounds_reach()),),
        nulls=(
            Null(
                "one round labelled by uniform attention, over the first length",
                measure=lambda lab: lab.corrupt_reach(),
            ),
        ),
    )
    yield from _labels(config, name, last)


def _labels(config: Config, name: str, last: str) -> Iterator[Claim]:
    jump, farthest = 2 * config.self_training.lengths[-1], config.lengths[-1]
    possible = jump < config.n_variables
    yield Own(
        "lego.ours.self.labels",
        f"{name}: a round's annotator labels new chains of its length right (share,"
        " worst round).",
        kind="behaviour",
        conditions=(Each("right", ">= 0.99", lambda lab: lab.worst_labels()),),
        nulls=(
            Null(
                f"length {jump} at once" if possible else "uniform attention",
                measure=lambda lab: lab.jump_labels(),
                bound="< 0.1",
            ),
        ),
    )
    if possible:
        yield Own(
            "lego.ours.self.jump",
            f"{name}: length {jump} at once does not solve {farthest}, in one round or"
            " in as many steps as all rounds have.",
            kind="behaviour",
            conditions=(
                Mean("all", "<= 0.1", _farthest("jump")),
                Mean("all, as many steps", "<= 0.1", _farthest("jump-on")),
            ),
            nulls=(Null("in rounds", measure=_farthest(last), bound=">= 0.95"),),
            revised="Step 5: `as many steps` was added after one round alone had not"
            " failed in every seed",
        )


def _instead(config: Config, group: str) -> Iterator[Claim]:
    name, own = action(group).slug, config.self_training
    steps, first = own.steps * len(own.lengths), config.train_length
    same, last = f"own labels at length {first} instead", f"self{own.lengths[-1]}"

    yield Own(
        "lego.ours.self.more-steps",
        f"{name}: self-training beats {steps} more steps at length {first} with true"
        f" labels: difference of all at length {config.lengths[-1]}.",
        kind="behaviour",
        conditions=(Mean("gain", "> 0", _own_gain(last)),),
        nulls=(Null(same, measure=_own_gain("same"), bound="in [-0.25, 0.25]"),),
        revised=RESTARTS,
    )
    yield Own(
        "lego.ours.self.sharpness",
        f"{name}: K after self-training over K after as many steps at length {first}.",
        kind="signal",
        conditions=(Mean("K ratio", "> 1", _sharper(last, "longer")),),
        nulls=(Null(same, measure=_sharper("same", "longer"), bound="in [0.8, 1.25]"),),
        revised=RESTARTS,
    )
    yield Own(
        "lego.ours.self.corrupt",
        f"{name}: labels of a uniform attention do not sharpen: K after one round over"
        " K before.",
        kind="causal",
        conditions=(Mean("K ratio", "<= 1", _sharper("corrupt", "base")),),
        nulls=(Null("own labels", measure=_sharper(f"self{own.lengths[0]}", "base")),),
    )


def _rounds(config: Config, group: str) -> Iterator[Claim]:
    name, length = action(group).slug, config.theory.length
    stages = ["second-step"]
    stages += [f"round-{2**k}" for k in range(2, 2 + config.theory.attention.rounds)]
    for before, after in pairwise(stages):
        yield Own(
            f"lego.ours.theory.{after}",
            f"T, {name}: self-training ({after}) until the loss rule holds again about"
            " doubles K: after / before.",
            source="Theorem 5.1",
            kind="signal",
            conditions=(
                Mean(
                    "K ratio",
                    "in [1.5, 2.2]",
                    _growth(group, before, after),
                ),
            ),
            nulls=(
                Null(
                    "as many steps at L = 2 instead",
                    measure=_longer_growth(group, after),
                    bound="< 1.5",
                ),
            ),
            revised="Step 4: the null became as many steps as each seed's round took,"
            " after a value was seen",
        )
    yield Own(
        "lego.ours.theory.self",
        f"T, {name}: the rounds extend the length: all at {length} after the last.",
        source="Corollary 5.1",
        kind="behaviour",
        conditions=(
            Mean(
                "all",
                ">= 0.95",
                lambda lab: lab.solves(lab.theory(group, stages[-1]), length),
            ),
        ),
        nulls=(
            Null(
                "before the rounds",
                measure=lambda lab: lab.solves(lab.theory(group, stages[0]), length),
                bound="<= 0.5",
            ),
        ),
    )


def _farthest(branch: str) -> Measured:
    return lambda lab: lab.farthest(lab.self_trained(branch))


def _sharper(branch: str, than: str) -> Measured:
    return lambda lab: lab.ratios(
        *(lab.sharpness(lab.self_trained(b)) for b in (branch, than))
    )


def _own_gain(branch: str) -> Measured:
    return lambda lab: lab.differences(
        *(lab.farthest(lab.self_trained(b)) for b in (branch, "longer"))
    )


def _growth(group: str, before: str, after: str) -> Measured:
    return lambda lab: lab.ratios(
        *(lab.sharpness(lab.theory(group, stage)) for stage in (after, before))
    )


def _longer_growth(group: str, stage: str) -> Measured:
    return lambda lab: lab.longer_growth(group, stage)

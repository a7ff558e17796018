"""What we add about the experiment's transformers and their variants."""

from collections.abc import Iterator

from circuits.claims import UNTRAINED, Claim
from circuits.conditions import Mean
from trained.lego.action import action
from trained.lego.config import Config, Variant

from .our_rounds import Own

FAR = 16
"""L* over the training length that counts as far: 80 from 5."""


def variants(config: Config) -> Iterator[Claim]:
    """The experiment's transformers; learned positions are a null of the paper's."""
    trained = [v for v in config.standard.variants if v != "positions"]
    for group in config.standard.groups:
        for variant in trained:
            yield from _standard(config, group, variant)


def _standard(config: Config, group: str, variant: Variant) -> Iterator[Claim]:
    name = f"{action(group).slug.lower()}.{variant}"
    what = f"{action(group).slug}, the experiment's transformer ({variant})"
    yield Own(
        f"lego.ours.standard.learned.{name}",
        f"{what}: the training length is learned (all).",
        source="Section 7",
        kind="behaviour",
        conditions=(
            Mean(
                "all", ">= 0.99", lambda lab: lab.learned(lab.standard(group, variant))
            ),
        ),
        nulls=(UNTRAINED,),
    )
    tested = [n for n in config.lengths if n < config.standard.n_variables]
    if variant == "plain" or not tested:
        return
    yield Own(
        f"lego.ours.standard.mass.{name}",
        f"{what}: attention on the two targets at length {config.train_length}.",
        source="Figure 2",
        kind="signal",
        conditions=(
            Mean("mass", ">= 0.95", lambda lab: lab.mass(lab.standard(group, variant))),
        ),
        nulls=(UNTRAINED,),
    )
    far = FAR if action(group).is_simply_transitive else 2
    bar = min(far * config.train_length, tested[-1])
    yield Own(
        f"lego.ours.standard.length.{name}",
        f"{what}: the largest tested length up to which all >= {config.test.solved}.",
        source="Figure 1a",
        kind="behaviour",
        conditions=(
            Mean(
                "L*", f">= {bar}", lambda lab: lab.reach(lab.standard(group, variant))
            ),
        ),
        nulls=(UNTRAINED,),
    )

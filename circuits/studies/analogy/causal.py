"""Does alignment cause transfer? Observations for the causal claims."""

from collections.abc import Callable
from functools import partial

from circuits.claims import Observed
from trained.analogy import gpt
from trained.analogy.layerwise import fitted_step, joint_name

from .interventions import (
    with_source_residual,
    with_source_values,
    without_source_residual,
    without_source_values,
)
from .readings import Reader, Trained, answers, share, success

Observations = dict[str, Observed]
Reading = Callable[[Trained], float]
BLOCK, GPT = "analogy.block.causal", "analogy.gpt.causal"


def observe_block_causes(reader: Reader) -> Observations:
    """Everything that `claims_causal.block` asks for."""
    config = reader.config
    places = {
        "joint": (joint_name(config.multiplicity), None),
        "SA": ("block-SA", None),
        "AS_T": ("block-AS_T", fitted_step(config)),
    }
    places = {name: at for name, at in places.items() if name in config.curricula}
    places |= {"bridge": ("block-bridge", None), "no-bridge": ("block-no_bridge", None)}
    other = partial(with_source_values, shift=1)
    random = partial(without_source_values, random=True)
    seen: Observations = {}
    for name, (arm, step) in places.items():

        def of(
            reading: Reading, arm: str = arm, step: int | None = step
        ) -> list[float]:
            return reader.of(arm, reading, step=step)

        seen[f"{BLOCK}.swap.{name}"] = Observed.of(of(other), of(answers_as(1)))
        if name in ("AS_T", "no-bridge"):
            put_in = of(with_source_values)
            seen[f"{BLOCK}.patch.{name}"] = Observed.of(put_in, of(success))
        else:
            taken_out = of(without_source_values)
            seen[f"{BLOCK}.removal.{name}"] = Observed.of(taken_out, of(random))
    return seen | _data(reader)


def _data(reader: Reader) -> Observations:
    half = reader.config.n_entities // 2
    seen = {
        f"{BLOCK}.permuted-bridge": Observed.of(
            reader.of("block-permuted_bridge", answers_as(-1)),
            reader.of("block-permuted_bridge", success),
        ),
        f"{BLOCK}.half-bridge": Observed.of(
            reader.of("block-half_bridge", answers_as(0, tuples=slice(half))),
            reader.of("block-half_bridge", answers_as(0, tuples=slice(half, None))),
        ),
    }
    if "joint" in reader.config.curricula:
        seen[f"{BLOCK}.permuted"] = Observed.of(
            reader.of("block-permuted", answers_as(1)),
            reader.of("block-permuted", success),
        )
    return seen


def observe_gpt_causes(reader: Reader) -> Observations:
    """Everything that `claims_causal.gpt` asks for."""
    config = reader.config
    places = {"joint": gpt.joint_name(config.multiplicity), "SA": "gpt-SA"}
    places = {name: arm for name, arm in places.items() if name in config.curricula}
    places |= {"bridge": "gpt-bridge", "no-bridge": "gpt-no_bridge"}
    other = partial(with_source_residual, shift=1)
    random = partial(without_source_residual, random=True)
    seen: Observations = {}
    for name, arm in places.items():
        seen[f"{GPT}.swap.{name}"] = Observed.of(
            reader.of(arm, other), reader.of(arm, answers_as(1))
        )
        if name != "no-bridge":
            seen[f"{GPT}.removal.{name}"] = Observed.of(
                reader.of(arm, without_source_residual), reader.of(arm, random)
            )
    return seen


def answers_as(shift: int, *, tuples: slice = slice(None)) -> Reading:
    """Share of targets that answer as the tuple `shift` further on."""

    def reading(trained: Trained) -> float:
        given = answers(trained.model, trained.asked.test)
        return share(given[tuples], trained.asked.answer.roll(-shift)[tuples])

    return reading

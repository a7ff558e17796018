"""The one-layer block, stage by stage: attention and values first, the head after.

Every phase of a curriculum ends with the head; only the first one trains attention
and values (stage 1), except in the `unfrozen` arms. The paper's claim that attribution
before similarity does not transfer is a claim about these frozen values.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from trained.arm import Arm, Stage, gradient_descent
from trained.seeding import generator

from .config import Config
from .head import AcceleratedDescent, HeadDescent, HeadFit
from .model import ATTENTION, HEAD, LinearBlock
from .task import (
    Curriculum,
    Phase,
    block_reading,
    curriculum,
    premise_loss,
    scores,
)
from .theory import Alignment

PLAIN_CHUNK = 5000
"""Steps of plain descent between two looks at its loss, where it takes very many."""


def block_arms(config: Config) -> tuple[Arm, ...]:
    """Every arm of the one-layer block."""
    main, result, nulls = config.multiplicity, [], []
    if "joint" in config.curricula:
        result += [_plain(config, "joint", k) for k in config.block_ks]
        result += [_limit(config, k) for k in config.block.limit_ks]
        nulls += [_plain(config, name, main) for name in ("permuted", "omitted")]
        nulls += [_large(config), _weak(config)]
    if "SA" in config.curricula:
        result += [_similarity_first(config)]
        nulls += [_unfrozen(config, "SA")]
    for name in ("AS_T", "AS_E"):
        if name in config.curricula:
            result.append(_attribution_first(config, name))
    if "AS_T" in config.curricula:
        result += [_replay(config, "AS_T"), _unfrozen(config, "AS_T")]
        nulls.append(_replay(config, "given"))
        if config.head.plain_steps:
            nulls.append(_by_plain_descent(config))
    result += [_plain(config, name, main) for name in ("bridge", "no_bridge")]
    others = ("permuted_bridge", "half_bridge", "decoy")
    nulls += [_plain(config, name, main) for name in others]
    few = [replace(arm, max_seeds=arm.max_seeds or config.null_seeds) for arm in nulls]
    return (*result, *few)


def first_phase_step(config: Config) -> int:
    """The step at which an arm of two phases ends its first."""
    return config.values.steps + _chunks(config)


def fitted_step(config: Config) -> int:
    """The step at which AS has just fitted its second phase."""
    return first_phase_step(config) + _fit_chunks(config)


def later_steps(config: Config) -> tuple[int, ...]:
    """The steps of AS that are kept from the first full fit to convergence."""
    fitted = fitted_step(config)
    return tuple(fitted + i for i in range(config.head.rounds + 1))


def _chunks(config: Config) -> int:
    return config.head.steps // config.head.check_every


def _fit_chunks(config: Config) -> int:
    return config.head.steps // 2 // config.head.fit_every


def _plain(config: Config, name: str, k: int) -> Arm:
    """One phase: stage 1, then the head."""
    taught = curriculum(name, k)
    (phase,) = taught.phases
    stages = (
        _values(config, taught, phase),
        _head(config, taught, phase, rate=config.head.rate),
    )
    label = f"block-joint-k{k}" if name == "joint" else f"block-{name}"
    return _arm(config, label, taught, stages)


def _large(config: Config) -> Arm:
    """Stage 1 of joint training from a larger initialisation."""
    taught = curriculum("joint", config.multiplicity)
    stages = (_values(config, taught, taught.phases[0]),)
    larger = config.block.large_init
    return _arm(config, "block-large_init", taught, stages, larger=larger)


def _limit(config: Config, k: int) -> Arm:
    """Stage 1 of joint training, stronger, for the limit of many copies."""
    taught = curriculum("joint", k)
    stage = _values(config, taught, taught.phases[0], share=config.values.limit)
    return _arm(config, f"block-limit-k{k}", taught, (stage,))


def _weak(config: Config) -> Arm:
    """The null of the limit: many copies, stage 1 as it is elsewhere."""
    taught = curriculum("joint", config.block.limit_k)
    stage = _values(config, taught, taught.phases[0])
    return _arm(config, "block-weak", taught, (stage,))


def _similarity_first(config: Config) -> Arm:
    """Two phases: the second trains the head alone."""
    taught = curriculum("SA", config.multiplicity)
    late = _head(config, taught, taught.phases[1], rate=config.head.rate, name="late")
    stages = (*_first_phase(config, taught), late)
    return _arm(config, "block-SA", taught, stages, [first_phase_step(config)])


def _attribution_first(config: Config, name: str) -> Arm:
    """The second phase trains the head alone, first until it just fits."""
    taught = curriculum(name, config.multiplicity)
    stages = (*_first_phase(config, taught), *_to_convergence(config, taught))
    saved = [first_phase_step(config), *later_steps(config)]
    return _arm(config, f"block-{name}", taught, stages, saved)


def _replay(config: Config, name: str) -> Arm:
    """The same, with the attribution in the second phase too."""
    taught = curriculum(name, config.multiplicity).with_replay()
    stages = (*_first_phase(config, taught), *_to_convergence(config, taught))
    saved = later_steps(config)
    return _arm(config, f"block-{name}-replay", taught, stages, saved)


def _unfrozen(config: Config, name: str) -> Arm:
    """The second phase goes as the first: attention and values, then the head."""
    taught = curriculum(name, config.multiplicity)
    again = _values(config, taught, taught.phases[1], share=config.values.unfrozen)
    stages = (*_first_phase(config, taught), again, *_rounds(config, taught))
    return _arm(config, f"block-{name}-unfrozen", taught, stages)


def _by_plain_descent(config: Config) -> Arm:
    """AS_T as in Theorem 3, its second phase at a constant rate; one seed."""
    taught = curriculum("AS_T", config.multiplicity)
    late = replace(
        _head(config, taught, taught.phases[1], rate=config.head.late_rate),
        name="late",
        steps=max(1, config.head.plain_steps // PLAIN_CHUNK),
        loss=HeadDescent(PLAIN_CHUNK, _mean_rate(config, config.head.late_rate)),
    )
    stages = (*_first_phase(config, taught), late)
    return replace(_arm(config, "block-AS_T-plain", taught, stages), max_seeds=1)


def _first_phase(config: Config, taught: Curriculum) -> tuple[Stage, Stage]:
    phase = taught.phases[0]
    return (
        _values(config, taught, phase),
        _head(config, taught, phase, rate=config.head.first_rate),
    )


def _to_convergence(config: Config, taught: Curriculum) -> tuple[Stage, ...]:
    """The head on the second phase: until it just fits, then to a small loss."""
    return (_fit(config, taught, taught.phases[1]), *_rounds(config, taught))


def _rounds(config: Config, taught: Curriculum) -> tuple[Stage, ...]:
    """Rounds of accelerated descent on the second phase, each twice as long."""
    return tuple(
        Stage(
            f"round {i}",
            1,
            gradient_descent(1.0),
            AcceleratedDescent(config.head.first_round * 2**i, config.head.boost),
            taught.world(config.block.n_entities).draw(taught.phases[1]),
            trainable=HEAD,
            stop_below=config.head.loss,
        )
        for i in range(config.head.rounds)
    )


def _arm(
    config: Config,
    name: str,
    taught: Curriculum,
    stages: tuple[Stage, ...],
    saved: Sequence[int] = (),
    larger: float = 1.0,
) -> Arm:
    world = taught.world(config.block.n_entities)
    return Arm(
        name,
        partial(_build, config, world.size, larger),
        stages,
        measure=partial(scores, block_reading),
        held_out=lambda _seed: world.conclusions(),
        record_every=2,
        save_steps=tuple(saved),
    )


def _build(config: Config, d_vocab: int, larger: float, seed: int) -> LinearBlock:
    block = config.block
    return LinearBlock(
        d_vocab,
        block.d_model,
        n_neurons=block.n_neurons,
        std=larger * block.init_std,
        generator=generator(seed, "analogy", "block", d_vocab),
    )


def _values(
    config: Config, taught: Curriculum, phase: Phase, *, share: float = 1.0
) -> Stage:
    """Stage 1: attention and values, the head frozen."""
    return Stage(
        "values" if share == 1 else f"values x {share:g}",
        config.values.steps,
        gradient_descent(Alignment.at(config).rate * share),
        premise_loss,
        taught.world(config.block.n_entities).draw(phase),
        trainable=ATTENTION,
    )


def _head(
    config: Config, taught: Curriculum, phase: Phase, *, rate: float, name: str = "head"
) -> Stage:
    """Stage 2: the head to a small loss, attention and values frozen."""
    return Stage(
        name,
        _chunks(config),
        gradient_descent(1.0),
        HeadDescent(config.head.check_every, _mean_rate(config, rate)),
        taught.world(config.block.n_entities).draw(phase),
        trainable=HEAD,
        stop_below=config.head.loss,
    )


def _fit(config: Config, taught: Curriculum, phase: Phase) -> Stage:
    """The head until every premise of the phase is answered, and no further."""
    rate = config.head.late_rate if "S_src" not in phase else config.head.rate
    return Stage(
        "fit",
        _fit_chunks(config),
        gradient_descent(1.0),
        HeadFit(config.head.fit_every, _mean_rate(config, rate)),
        taught.world(config.block.n_entities).draw(phase),
        trainable=HEAD,
        stop_below=0.0,
    )


def _mean_rate(config: Config, rate: float) -> float:
    """The rate of the mean neuron that moves the logits as fast at any width.

    A step moves them by rate x scale^2 x |h|^2 / m, and scale^2 |h|^2 grows with the
    square of the width.
    """
    return rate * (512 / config.block.d_model) ** 2 / config.block.n_neurons

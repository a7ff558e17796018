"""The one-layer block, stage by stage: attention and values first, the head after.

Every phase of a curriculum ends with the head; only the first one trains attention
and values (stage 1), except in the `replay` arms. The paper's claim that attribution
before similarity does not transfer is a claim about these frozen values.
"""

from collections.abc import Mapping
from functools import partial

from trained.arm import Arm, Draw, Stage, gradient_descent
from trained.seeding import generator

from .block import ATTENTION, HEAD, LinearBlock
from .config import Config
from .data import Curriculum, Phase, curriculum
from .head import HeadDescent
from .law import INIT_STD, N_NEURONS, STEPS, Alignment
from .quantities import metrics, premise_loss, value_features

ITERATIONS = 50
"""Gradient steps of the head per step of the engine."""
FIT_ITERATIONS = 10
"""The same where the first step with every premise answered is looked for."""
FITTED = 0.005
"""A head stops once its training loss is below this."""
LARGE_INIT = 10 * INIT_STD
"""Breaks the balance of attention: the control of that claim."""
UNFROZEN_RATE = 1e-3
"""Of stage 1 in a second phase, as a share of its rate in the first: by then the head
is about a thousand times larger."""
_RATES: Mapping[str, tuple[float, ...]] = {
    "SA": (150.0, 300.0),
    "AS_T": (150.0, 100.0),
    "AS_E": (150.0, 300.0),
}
"""Of each neuron of the head at width 512, by phase; 300 for a single phase."""


def arms(config: Config) -> tuple[Arm, ...]:
    """Every arm of the one-layer block."""
    result = []
    if "joint" in config.curricula:
        result += [_plain(config, "joint", k) for k in config.block_ks]
        result += [_plain(config, "permuted", config.multiplicity), _large(config)]
    if "SA" in config.curricula:
        result.append(_sequence(config, "SA"))
    for name in ("AS_T", "AS_E"):
        if name in config.curricula:
            result += [_sequence(config, name), _replay(config, name)]
    for name in ("bridge", "no_bridge", "permuted_bridge", "half_bridge"):
        result.append(_plain(config, name, config.multiplicity))
    return tuple(result)


def joint_name(k: int) -> str:
    """The arm of joint training with k copies of the similarity premises."""
    return f"block-joint-k{k}"


def fitted_step(config: Config) -> int:
    """The step at which an arm of two phases has just fitted its second."""
    return STEPS + _chunks(config) + _fit_chunks(config)


def first_phase_step(config: Config) -> int:
    """The step at which an arm of two phases ends its first."""
    return STEPS + _chunks(config)


def _chunks(config: Config) -> int:
    return config.head_steps // ITERATIONS


def _fit_chunks(config: Config) -> int:
    return config.head_steps // 2 // FIT_ITERATIONS


def _plain(config: Config, name: str, k: int) -> Arm:
    """One phase: stage 1, then the head."""
    taught = curriculum(name, k)
    (phase,) = taught.phases
    draw = _draw(taught, config, phase)
    stages = (_values(config, draw), _head(config, draw, rate=300.0))
    label = joint_name(k) if name == "joint" else f"block-{name}"
    return _arm(config, label, taught, stages)


def _large(config: Config) -> Arm:
    """Stage 1 of joint training from a larger initialisation."""
    taught = curriculum("joint", config.multiplicity)
    stages = (_values(config, _draw(taught, config, taught.phases[0])),)
    return _arm(config, "block-large_init", taught, stages, std=LARGE_INIT)


def _sequence(config: Config, name: str) -> Arm:
    """Two phases: the second trains the head alone, first until it just fits."""
    taught = curriculum(name, config.multiplicity)
    first, second = (_draw(taught, config, phase) for phase in taught.phases)
    early, late = _RATES[name]
    stages = (
        _values(config, first),
        _head(config, first, rate=early),
        _fit(config, second, rate=late),
        _head(config, second, rate=late, name="late"),
    )
    return _arm(config, f"block-{name}", taught, stages, save_steps=_saved(config))


def _replay(config: Config, name: str) -> Arm:
    """The attribution stays in the second phase; once that fits, V is let go briefly.

    Up to `fitted_step` attention and values are frozen, after it they take as many
    small steps as stage 1 has, then the head goes on.
    """
    taught = curriculum(name, config.multiplicity).with_replay()
    first, second = (_draw(taught, config, phase) for phase in taught.phases)
    early, late = _RATES[name]
    stages = (
        _values(config, first),
        _head(config, first, rate=early),
        _fit(config, second, rate=late),
        _values(config, second, share=UNFROZEN_RATE),
        _head(config, second, rate=late, name="late"),
    )
    label = f"block-{name}-replay"
    return _arm(config, label, taught, stages, save_steps=_saved(config))


def _saved(config: Config) -> tuple[int, int]:
    return first_phase_step(config), fitted_step(config)


def _arm(
    config: Config,
    name: str,
    taught: Curriculum,
    stages: tuple[Stage, ...],
    *,
    std: float = INIT_STD,
    save_steps: tuple[int, ...] = (),
) -> Arm:
    world = taught.world(config.n_entities)
    return Arm(
        name,
        partial(_build, world.size, config.d_model, std),
        stages,
        metrics(value_features),
        lambda _seed: world.conclusions(),
        record_every=2,
        save_steps=save_steps,
    )


def _build(d_vocab: int, d_model: int, std: float, seed: int) -> LinearBlock:
    source = generator(seed, "analogy", "block", d_vocab)
    return LinearBlock(d_vocab, d_model, n_neurons=N_NEURONS, std=std, generator=source)


def _draw(taught: Curriculum, config: Config, phase: Phase) -> Draw:
    return taught.world(config.n_entities).draw(phase)


def _values(config: Config, draw: Draw, *, share: float = 1.0) -> Stage:
    """Stage 1: attention and values, the head frozen."""
    rate = Alignment(config.n_entities, config.d_model).rate * share
    return Stage(
        "values" if share == 1 else "values again",
        STEPS,
        gradient_descent(rate),
        premise_loss,
        draw,
        trainable=ATTENTION,
    )


def _head(config: Config, draw: Draw, *, rate: float, name: str = "head") -> Stage:
    """Stage 2: the head to a small loss, attention and values frozen."""
    return Stage(
        name,
        _chunks(config),
        gradient_descent(1.0),
        HeadDescent(_mean_rate(config, rate), ITERATIONS),
        draw,
        trainable=HEAD,
        stop_below=FITTED,
    )


def _fit(config: Config, draw: Draw, *, rate: float) -> Stage:
    """The head until every premise of the phase is answered, and no further."""
    return Stage(
        "fit",
        _fit_chunks(config),
        gradient_descent(1.0),
        HeadDescent(_mean_rate(config, rate), FIT_ITERATIONS, value="margin"),
        draw,
        trainable=HEAD,
        stop_below=0.0,
    )


def _mean_rate(config: Config, rate: float) -> float:
    """The rate of the mean neuron that moves the logits as fast at any width.

    A step moves them by rate x scale^2 x |h|^2 / m, and scale^2 |h|^2 grows with the
    square of the width.
    """
    return rate * (512 / config.d_model) ** 2 / N_NEURONS

"""The one-layer block, stage by stage: attention and values first, the head after.

Every phase of a curriculum ends with the head; only the first one trains attention
and values (stage 1), except in the `replay` arms. The paper's claim that attribution
before similarity does not transfer is a claim about these frozen values.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import one_hot

from trained.arm import Arm, Stage, gradient_descent
from trained.seeding import generator

from .config import Config
from .model import ATTENTION, HEAD, LinearBlock
from .task import (
    Curriculum,
    Phase,
    Premises,
    curriculum,
    metrics,
    premise_loss,
    value_features,
)
from .theory import Alignment


def block_arms(config: Config) -> tuple[Arm, ...]:
    """Every arm of the one-layer block."""
    main, result, nulls = config.multiplicity, [], []
    if "joint" in config.curricula:
        result += [_plain(config, "joint", k) for k in config.block_ks]
        nulls += [_plain(config, name, main) for name in ("permuted", "omitted")]
        nulls.append(_large(config))
    if "SA" in config.curricula:
        result.append(_sequence(config, "SA"))
    for name in ("AS_T", "AS_E"):
        if name in config.curricula:
            result += [_sequence(config, name), _replay(config, name)]
    result += [_plain(config, name, main) for name in ("bridge", "no_bridge")]
    others = ("permuted_bridge", "half_bridge", "decoy")
    nulls += [_plain(config, name, main) for name in others]
    few = [replace(arm, max_seeds=config.null_seeds) for arm in nulls]
    return (*result, *few)


def first_phase_step(config: Config) -> int:
    """The step at which an arm of two phases ends its first."""
    return config.values.steps + _chunks(config)


def fitted_step(config: Config) -> int:
    """The step at which an arm of two phases has just fitted its second."""
    return first_phase_step(config) + _fit_chunks(config)


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


def _sequence(config: Config, name: str) -> Arm:
    """Two phases: the second trains the head alone, first until it just fits."""
    taught = curriculum(name, config.multiplicity)
    early, fit, late = _two_phases(config, name, taught)
    saved = [first_phase_step(config), fitted_step(config)]
    saved = saved[:1] if name == "SA" else saved
    return _arm(config, f"block-{name}", taught, (*early, fit, late), saved)


def _replay(config: Config, name: str) -> Arm:
    """The attribution stays in the second phase; once that fits, V is let go briefly.

    Up to `fitted_step` attention and values are frozen, after it they take as many
    small steps as stage 1 has, then the head goes on.
    """
    taught = curriculum(name, config.multiplicity).with_replay()
    early, fit, late = _two_phases(config, name, taught)
    again = _values(config, taught, taught.phases[1], share=config.values.unfrozen)
    stages, saved = (*early, fit, again, late), [fitted_step(config)]
    return _arm(config, f"block-{name}-replay", taught, stages, saved)


def _two_phases(
    config: Config, name: str, taught: Curriculum
) -> tuple[tuple[Stage, Stage], Stage, Stage]:
    """The stages of the first phase; of the second, until it fits and after that."""
    first, second = taught.phases
    rate = config.head.late_rate if name == "AS_T" else config.head.rate
    early = (
        _values(config, taught, first),
        _head(config, taught, first, rate=config.head.first_rate),
    )
    fit = _fit(config, taught, second, rate=rate)
    return early, fit, _head(config, taught, second, rate=rate, name="late")


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
        metrics(value_features),
        lambda _seed: world.conclusions(),
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
        "values" if share == 1 else "values again",
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
        HeadDescent(_mean_rate(config, rate), config.head.check_every),
        taught.world(config.block.n_entities).draw(phase),
        trainable=HEAD,
        stop_below=config.head.loss,
    )


def _fit(config: Config, taught: Curriculum, phase: Phase, *, rate: float) -> Stage:
    """The head until every premise of the phase is answered, and no further."""
    mean_rate = _mean_rate(config, rate)
    return Stage(
        "fit",
        _fit_chunks(config),
        gradient_descent(1.0),
        HeadDescent(mean_rate, config.head.fit_every, value="margin"),
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


@dataclass(frozen=True)
class HeadDescent:
    """Many exact gradient steps on the block's head as one step of the engine.

    With attention and values frozen, stage 2 is softmax regression on fixed features
    H. Its logits obey F <- F - rate scale^2 (H H^T) R with R = weights (softmax(F) -
    onehot), so the iteration needs neither the head nor autograd; the head itself is
    rebuilt at the end from the sum of the R. A loss whose gradient is the head's
    whole displacement: train it with gradient descent at rate 1. Its value is the
    quantity before the steps, so `stop_below` keeps its meaning.
    """

    rate: float
    """Learning rate of the mean neuron: each neuron's rate divided by m."""
    iterations: int
    value: str = "loss"
    """`loss`, or `margin`: the largest lead of a wrong answer, negative once every
    premise is answered."""

    def __call__(self, model: LinearBlock, data: Premises) -> Float[Tensor, ""]:
        """The quantity, with the displacement as its gradient."""
        displacement, value = self._descend(model, data)
        product = (model.head * displacement).sum()
        return value + product - product.detach()

    def _descend(self, model: LinearBlock, data: Premises) -> tuple[Tensor, Tensor]:
        features = model.features(data.facts.tokens)[:, 0].detach()
        logits = model.scale * features @ model.head.detach().mT
        right = one_hot(data.facts.targets, logits.shape[-1]).to(logits)
        weights = data.weights[:, None]
        value = _VALUES[self.value](logits, right, weights)
        gram = self.rate * model.scale**2 * features @ features.mT * data.weights
        total = torch.zeros_like(logits)
        for _ in range(self.iterations):
            excess = logits.softmax(-1).sub_(right)
            total.add_(excess)
            logits.sub_(gram @ excess)
        displacement = self.rate * model.scale * (weights * total).mT @ features
        return displacement, value


def _loss(logits: Tensor, right: Tensor, weights: Tensor) -> Tensor:
    return -(weights * right * logits.log_softmax(-1)).sum()


def _margin(logits: Tensor, right: Tensor, _weights: Tensor) -> Tensor:
    lead = (logits - 1e9 * right).amax(-1) - (logits * right).sum(-1)
    return lead.amax(-1)


_VALUES: dict[str, Any] = {"loss": _loss, "margin": _margin}

"""What the recall study trains, at a configuration.

`full-*` train the whole key-query matrix of the real model on fresh prompts;
`partial-*` train the position scores theta and omega; `samples-*` use a fixed number
of prompts (Figure 3); `triple` has three examples (Figure 2b); `pretrained*` learn the
memory first (Figure 4).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from trained.arm import Arm, Data, Optimiser, Stage, adam, gradient_descent
from trained.seeding import generator

from .config import Config
from .losses import draw_facts, fact_loss, two_step_loss
from .model import RecallModel
from .prompts import Vocabulary, draw_prompts
from .relations import Table
from .scores import (
    PositionScores,
    TokenScores,
    both_steps_loss,
    mean_relation_loss,
    relation_quantities,
)
from .setting import (
    constructed_model,
    embedding_of,
    sample_table,
    small_start,
    table_of,
    triple_table,
)

BATCH = 256
PARTIAL_STEPS = 5000
SAMPLE_STEPS = 4000
TRIPLE_TEMPERATURES = (0.01, 0.06)
"""Of Figure 4 with three examples: the paper's, and one that suits a learned memory."""

POPULATION = 256
"""Prompts that stand for the population where it is not a single prompt type."""


def arms(config: Config) -> tuple[Arm, ...]:
    """Every arm of the study at a configuration."""
    result = [
        _full(f"full-{kind}", _headline(config, kind), config.full_steps)
        for kind in ("affine", "random")
    ]
    result += [_partial(config, kind) for kind in ("affine", "random")]
    result += [
        _samples(config, name, mode, size)
        for name in config.sample_tables
        for mode in config.sample_modes
        for size in config.sample_sizes
    ]
    if config.triple_steps:
        result.append(_full("triple", _triple(config), config.triple_steps, 3))
    if config.pretrained_steps:
        result += _figure4(config)
    return tuple(result)


@dataclass(frozen=True)
class _Setting:
    """What full fine-tuning is done on."""

    table: Callable[[int], Table]
    """seed -> relation table."""
    n_examples: int
    temperature: float

    @property
    def words(self) -> Vocabulary:
        return Vocabulary.of(self.table(0))


def _headline(config: Config, kind: str) -> _Setting:
    table = partial(table_of, config, kind)
    return _Setting(table, config.n_examples, config.temperature)


def _triple(config: Config, temperature: float = 0.01) -> _Setting:
    return _Setting(partial(triple_table, config), 3, temperature)


def _fine_tune(setting: _Setting, steps: int) -> Stage:
    """Adam on the whole key-query matrix, fresh prompts at every step."""

    def data(seed: int, step: int) -> Data:
        source = generator(seed, "recall", "fine-tune", step)
        table = setting.table(seed)
        return draw_prompts(table, setting.n_examples, BATCH, generator=source).steps()

    return Stage(
        name="fine-tune",
        steps=steps,
        optimiser=adam(1e-3),
        loss=partial(
            two_step_loss, words=setting.words, temperature=setting.temperature
        ),
        data=data,
        draw="each step",
        trainable=("*W_KQ",),
    )


def _full(
    name: str, setting: _Setting, steps: int, max_seeds: int | None = None
) -> Arm:
    def build(seed: int) -> RecallModel:
        return constructed_model(setting.table(seed), setting.n_examples, seed)

    stages = (_fine_tune(setting, steps),)
    return Arm(name, build, stages, save_steps=(0,), max_seeds=max_seeds)


def _partial(config: Config, kind: str) -> Arm:
    # With the affine table every prompt has the same pattern counts: one is enough.
    count = 1 if kind == "affine" else POPULATION

    def data(seed: int, _step: int) -> Data:
        source = generator(seed, "recall", "partial", kind)
        table = table_of(config, kind, seed)
        return relation_quantities(
            draw_prompts(table, config.n_examples, count, generator=source)
        )

    stage = _position_stage(config, config.n_subjects, data, PARTIAL_STEPS)
    return Arm(
        f"partial-{kind}",
        lambda _seed: PositionScores(config.n_examples),
        (stage,),
        save_steps=(0,),
    )


def _position_stage(config: Config, n_subjects: int, data: Data, steps: int) -> Stage:
    return Stage(
        name="fine-tune",
        steps=steps,
        optimiser=adam(1e-3),
        loss=partial(
            both_steps_loss, n_subjects=n_subjects, temperature=config.temperature
        ),
        data=data,
        # From exactly zero the pairs are equal and only round-off would part them.
        perturb=config.temperature**3,
    )


def _samples(config: Config, name: str, mode: str, size: int) -> Arm:
    def data(seed: int, _step: int) -> Data:
        source = generator(seed, "recall", "samples", name)
        table = sample_table(config, name, seed)
        prompts = draw_prompts(table, config.n_examples, size, generator=source)
        return relation_quantities(prompts)

    arm_name = f"samples-{name}-{mode}-{size}"
    if mode == "partial":
        n_subjects = sample_table(config, name, 0).shape[1]
        stage = _position_stage(config, n_subjects, data, SAMPLE_STEPS)
        return Arm(arm_name, lambda _seed: PositionScores(config.n_examples), (stage,))
    rule = "gd" if mode == "full-gd" else "adam"

    def build(seed: int) -> TokenScores:
        return TokenScores(
            embedding_of(sample_table(config, name, seed), seed),
            config.n_examples,
            optimiser="gd" if rule == "gd" else "adam",
            generator=generator(seed, "recall", "token scores"),
        )

    rate = gradient_descent(40 * config.temperature**2) if rule == "gd" else adam(1e-3)
    stage = Stage(
        name="fine-tune",
        steps=SAMPLE_STEPS,
        optimiser=rate,
        loss=partial(mean_relation_loss, temperature=config.temperature),
        data=data,
    )
    return Arm(arm_name, build, (stage,))


def _pretrained(
    name: str,
    setting: _Setting,
    config: Config,
    *,
    pretrain_temperature: float = 1.0,
    max_seeds: int,
) -> Arm:
    """Figure 4: learn the memory from facts, then fine-tune the key-query matrix."""

    def build(seed: int) -> RecallModel:
        table = setting.table(seed)
        width = 12 * table.shape[1] ** 2
        source = generator(seed, "recall", "memory")
        size = setting.words.size
        keys, values = 0.05 * torch.randn(2, width, size, generator=source)
        positions = 2 * setting.n_examples + 3
        model = RecallModel(embedding_of(table, seed), positions, keys, values)
        model.W_KQ.data.copy_(small_start(model, seed))
        return model

    def facts(seed: int, step: int) -> Data:
        source = generator(seed, "recall", "facts", step)
        return draw_facts(setting.table(seed), 512, generator=source)

    pretrain = Stage(
        name="pretrain",
        steps=config.pretrained_steps,
        optimiser=Optimiser("adamw", 1e-3, weight_decay=0.1, decay=0.4),
        loss=partial(fact_loss, temperature=pretrain_temperature),
        data=facts,
        draw="each step",
    )
    return Arm(
        name,
        build,
        (pretrain, _fine_tune(setting, config.pretrained_steps)),
        save_steps=(0, config.pretrained_steps),
        max_seeds=max_seeds,
    )


def _figure4(config: Config) -> list[Arm]:
    """The headline, its cold control, and two exploratory arms with three examples.

    The cold arm pretrains at the fine-tuning temperature, which leaves the logits so
    small that fine-tuning acts above its threshold temperature.
    """
    setting = _headline(config, "random")
    return [
        _pretrained("pretrained", setting, config, max_seeds=3),
        _pretrained(
            "pretrained-cold",
            setting,
            config,
            pretrain_temperature=config.temperature,
            max_seeds=1,
        ),
        *(
            _pretrained(
                f"pretrained-triple-{temperature:g}",
                _triple(config, temperature),
                config,
                max_seeds=1,
            )
            for temperature in TRIPLE_TEMPERATURES
        ),
    ]

"""What the symbols study trains: every setting at every learning rate of its grid.

Settings that differ in the scalars only share their strings and initial weights.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

from torch import nn

from trained.arm import Arm, Quantity, Stage, adam, gradient_descent, shuffled
from trained.seeding import generator
from trained.task import Batch, shuffle_targets

from .config import Config
from .model import (
    Perceptron,
    Readout,
    Recurrent,
    numbered,
    sizes,
    start_near_identity,
    transformer,
)
from .sampler import SPLITS, Alphabet, alphabet, assert_unseen, sample
from .scores import alphabet_error, area_of, area_score, error, loss, on_split
from .setting import Setting, batch_size, rates, settings, steps, twinned
from .tasks import task

INCIDENCE = {"mlp": "none", "mlp_incidence": "own", "mlp_foreign": "foreign"}
CHECKPOINTS = 5
"""Scores of an MLP over its training."""


def arms(config: Config) -> tuple[Arm, ...]:
    """What the study trains, and the twins of it that are asked for."""
    found = tuple(
        arm(config, setting, lr)
        for setting in settings(config)
        for lr in rates(config, setting)
    )
    names = {arm_name(s, lr) for s in twinned(config) for lr in rates(config, s)}
    seeds = None if config.twins == "all" else config.null_seeds
    twins = (
        replace(shuffled(one, shuffle_targets), max_seeds=seeds)
        for one in found
        if one.name in names
    )
    return (*found, *twins)


def arm_name(setting: Setting, lr: float) -> str:
    """The name of a setting's arm at a learning rate."""
    return f"{setting.name}-lr{lr:g}"


def alphabet_of(config: Config, setting: Setting, seed: int = 0) -> Alphabet:
    """The tokens of a setting; a seed draws random templates."""
    own = config.training.train_alphabet if setting.role == "relation" else None
    return alphabet(
        task(setting.task, seed),
        setting.n,
        train_alphabet=own,
        n_held_out=config.training.held_out_symbols,
    )


@cache
def strings_of(config: Config, setting: Setting, seed: int) -> dict[str, Batch]:
    """The three splits of a setting's seed; they share no symbol."""
    tokens = alphabet_of(config, setting, seed)
    own, tested = config.training, config.training.n_test
    if setting.role == "psychometric":
        tested = config.psychometric.n_test
    counts = (setting.n, own.n_validation, tested)
    noise = own.label_noise if setting.role == "relation" else 0.0
    found: dict[str, Batch] = {}
    for split, count in zip(SPLITS, counts, strict=True):
        path = ("symbols", setting.task, setting.n, split)
        found[split] = sample(
            *(tokens, split, count),
            label_noise=noise if split == "train" else 0.0,
            generator=generator(seed, *path),
        )
    assert_unseen(tokens, found.values())
    return found


def model_of(config: Config, setting: Setting, seed: int) -> nn.Module:
    """The model of a setting's seed before training."""
    tokens = alphabet_of(config, setting, seed)
    path = (setting.task, setting.n, setting.model, setting.d_model, setting.depth)
    source = generator(seed, "symbols", "initial", *path)
    if setting.model in INCIDENCE:
        given: Any = INCIDENCE[setting.model]
        width = config.model.perceptron
        return Perceptron(tokens, width=width, incidence=given, generator=source)
    if setting.model in ("rnn", "lstm"):
        cell: Any = setting.model
        return Recurrent(tokens, width=setting.d_model, cell=cell, generator=source)
    shape = sizes(
        tokens,
        setting.identity,
        multiplier=multiplier_of(config, setting),
        width=_width(config, setting),
        depth=setting.depth,
        d_mlp=config.model.mlp_ratio * setting.d_model,
    )
    model = transformer(
        shape,
        scale=setting.head_only or 1.0,
        scaled=setting.scaled,
        generator=source,
    )
    if setting.identity in ("aQ", "bQ"):
        # Drawing the matrix moves the generator on; the weights are vanilla's.
        vanilla = model_of(config, replace(setting, identity="none"), seed)
        model.load_state_dict(vanilla.state_dict(), strict=False)
    if setting.start == "mimetic":
        start_near_identity(model, config.model.mimetic_weight, generator=source)
    return model


def multiplier_of(config: Config, setting: Setting) -> float:
    """The factor on a setting's scalars."""
    return {
        "relation": config.multiplier,
        "copy": config.copying.multiplier,
        "recall": config.recall.multiplier,
        "psychometric": config.psychometric.multiplier,
    }[setting.role]


def _width(config: Config, setting: Setting) -> tuple[int, int, int]:
    if setting.role == "copy":
        own = config.copying
        d_head = max(own.d_head, -(-setting.d_model // own.n_heads))
        return setting.d_model, own.n_heads, d_head
    shapes: dict[str, Any] = {
        "relation": config.model,
        "recall": config.recall,
        "psychometric": config.psychometric,
    }
    shape = shapes[setting.role]
    return setting.d_model, shape.n_heads, shape.d_head


def _stop_below(config: Config, setting: Setting) -> float | None:
    if setting.role != "relation" or setting.head_only is not None:
        return None
    mlp, training = setting.model.startswith("mlp"), config.training
    return training.mlp_stop_below if mlp else training.stop_below


def _record_every(config: Config, setting: Setting, total: int) -> int:
    if setting.model.startswith("mlp"):
        return max(1, total // CHECKPOINTS)
    own = {
        "relation": config.training.record_every,
        "copy": config.copying.record_every,
        "recall": config.recall.record_every,
        "psychometric": config.psychometric.record_every,
    }
    return max(own[setting.role], total // 100)


def arm(config: Config, setting: Setting, lr: float) -> Arm:
    """A setting at one learning rate."""
    total = steps(config, setting)
    descent = gradient_descent if setting.optimiser == "sgd" else adam
    size = batch_size(config, setting)
    strings, build = _data(config, setting)
    stage = Stage(
        name="strings",
        steps=total,
        optimiser=descent(lr),
        loss=loss,
        data=lambda seed, _step: strings(seed)["train"],
        batch_size=size if setting.n > size else None,
        stop_below=_stop_below(config, setting),
    )
    return Arm(
        name=arm_name(setting, lr),
        build=build,
        stages=(stage,),
        metrics=_metrics(config, setting),
        held_out=partial(_held_out, strings),
        record_every=_record_every(config, setting, total),
        max_seeds=config.null_seeds if _is_report(setting) else None,
    )


def _is_report(setting: Setting) -> bool:
    """Whether a setting is a null, or shown beside what is judged."""
    alone = setting.role == "recall" and setting.identity in ("a", "b")
    return setting.is_control or alone


Strings = Callable[[int], dict[str, Batch]]


def _data(
    config: Config, setting: Setting
) -> tuple[Strings, Callable[[int], nn.Module]]:
    """Seed -> splits, and seed -> the model that learns them.

    Where only the readout is trained, it knows its strings by their numbers.
    """
    strings = partial(strings_of, config, setting)
    if setting.head_only is None:
        return strings, partial(model_of, config, setting)

    def readout(seed: int) -> nn.Module:
        frozen: Any = model_of(config, setting, seed)
        return Readout(frozen, strings(seed).values())

    return lambda seed: numbered(strings(seed)), readout


def _metrics(config: Config, setting: Setting) -> dict[str, Quantity]:
    """Only what is read: on a CPU they cost as much as a fifth of the training."""
    found: dict[str, Quantity] = {"validation": on_split(loss, "validation")}
    tokens = alphabet_of(config, setting)
    if tokens.task.kind == "real":
        found["test"] = on_split(loss, "test")
    if setting.role != "relation":
        labels = tokens.task.labels_told
        found["test_error"] = on_split(partial(error, labels=labels), "test")
    if tokens.task.kind == "symbolic":
        part = partial(alphabet_error, among=tokens.ids["test"])
        found["test_error_restricted"] = on_split(part, "test")
    if setting.model.startswith("mlp") and setting.role == "relation":
        score = partial(area_score, symbols=tokens.ids["test"])
        found["test_area"] = on_split(area_of, "test")
        found["test_area_score"] = on_split(score, "test")
    return found


def _held_out(strings: Strings, seed: int) -> dict[str, Batch]:
    found = strings(seed)
    return {name: found[name] for name in ("validation", "test")}

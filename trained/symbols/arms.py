"""What the symbols study trains: every setting at every learning rate of its grid.

Settings that differ in the scalars only share their strings and initial weights.
"""

from dataclasses import replace
from functools import cache, partial

from torch import nn

from trained.arm import Arm, Quantity, Stage, adam, shuffled
from trained.seeding import generator
from trained.task import Batch, shuffle_targets

from .config import Config
from .model import (
    Perceptron,
    Recurrent,
    alphabet_error_on,
    error_on,
    loss,
    loss_on,
    sizes,
    start_near_identity,
    transformer,
)
from .sampler import SPLITS, Alphabet, alphabet, assert_unseen, sample
from .setting import Setting, settings, steps
from .tasks import task


def arms(config: Config) -> tuple[Arm, ...]:
    """What the study trains, and the twins of it if they are asked for."""
    found = tuple(
        arm(config, setting, lr)
        for setting in settings(config)
        for lr in rates(config, setting)
    )
    twins = (shuffled(one, shuffle_targets) for one in found if config.twins)
    return (*found, *twins)


def rates(config: Config, setting: Setting) -> tuple[float, ...]:
    """The learning rates of a setting; vanilla and modified have the same."""
    return (config.copying if setting.role == "copy" else config.training).lrs


def arm_name(setting: Setting, lr: float) -> str:
    """The name of a setting's arm at a learning rate."""
    return f"{setting.name}-lr{lr:g}"


def alphabet_of(config: Config, setting: Setting) -> Alphabet:
    """The tokens of a setting."""
    held_out = config.training.held_out_symbols
    return alphabet(task(setting.task), setting.n, n_held_out=held_out)


@cache
def strings_of(config: Config, setting: Setting, seed: int) -> dict[str, Batch]:
    """The three splits of a setting's seed; they share no symbol."""
    tokens = alphabet_of(config, setting)
    counts = (setting.n, config.training.n_validation, config.training.n_test)
    found: dict[str, Batch] = {}
    for split, count in zip(SPLITS, counts, strict=True):
        path = ("symbols", setting.task, setting.n, split)
        found[split] = sample(tokens, split, count, generator=generator(seed, *path))
    assert_unseen(tokens, found.values())
    return found


def model_of(config: Config, setting: Setting, seed: int) -> nn.Module:
    """The model of a setting's seed before training."""
    tokens = alphabet_of(config, setting)
    path = (setting.task, setting.n, setting.model, setting.d_model, setting.depth)
    source = generator(seed, "symbols", "initial", *path)
    if setting.model in ("mlp", "mlp_incidence"):
        incidence, width = setting.model == "mlp_incidence", config.model.perceptron
        return Perceptron(tokens, width=width, incidence=incidence, generator=source)
    if setting.model in ("rnn", "lstm"):
        return Recurrent(
            tokens, width=setting.d_model, cell=setting.model, generator=source
        )
    shape = sizes(
        tokens,
        setting.identity,
        multiplier=config.multiplier,
        width=_width(config, setting),
        depth=setting.depth,
        d_mlp=0 if setting.role == "copy" else config.model.mlp_ratio * setting.d_model,
    )
    model = transformer(shape, scale=setting.head_only or 1.0, generator=source)
    if setting.identity == "orthogonal":
        # Drawing the matrix moves the generator on; the weights are vanilla's.
        vanilla = model_of(config, replace(setting, identity="none"), seed)
        model.load_state_dict(vanilla.state_dict(), strict=False)
    if setting.start == "mimetic":
        start_near_identity(model, config.model.mimetic_weight, generator=source)
    return model


def _width(config: Config, setting: Setting) -> tuple[int, int, int]:
    if setting.role != "copy":
        return setting.d_model, config.model.n_heads, config.model.d_head
    n_heads = config.copying.n_heads
    d_head = max(config.copying.d_head, -(-setting.d_model // n_heads))
    return setting.d_model, n_heads, d_head


def _stop_below(config: Config, setting: Setting) -> float | None:
    if setting.role != "relation":
        return None
    mlp, training = setting.model.startswith("mlp"), config.training
    return training.mlp_stop_below if mlp else training.stop_below


def _record_every(config: Config, setting: Setting) -> int:
    own = {
        "relation": config.training.record_every,
        "copy": config.copying.record_every,
        "recall": config.recall.record_every,
    }
    return own[setting.role]


def arm(config: Config, setting: Setting, lr: float) -> Arm:
    """A setting at one learning rate."""
    total = steps(config, setting)
    return Arm(
        name=arm_name(setting, lr),
        build=partial(model_of, config, setting),
        stages=(_stage(config, setting, lr, total),),
        metrics=_metrics(config, setting),
        held_out=partial(_held_out, config, setting),
        record_every=max(_record_every(config, setting), total // 100),
    )


def _metrics(config: Config, setting: Setting) -> dict[str, Quantity]:
    """Only what is read: on a CPU they cost as much as a fifth of the training."""
    found: dict[str, Quantity] = {"validation": partial(loss_on, split="validation")}
    if setting.role == "relation":
        found["test"] = partial(loss_on, split="test")
    if setting.role != "relation" or setting.model != "transformer":
        found["test_error"] = partial(error_on, split="test")
    if setting.role != "relation":
        among = alphabet_of(config, setting).ids["test"]
        part = partial(alphabet_error_on, split="test", among=among)
        found["test_error_restricted"] = part
    return found


def _held_out(config: Config, setting: Setting, seed: int) -> dict[str, Batch]:
    splits = strings_of(config, setting, seed)
    return {name: splits[name] for name in ("validation", "test")}


def _stage(config: Config, setting: Setting, lr: float, total: int) -> Stage:
    copies = setting.role == "copy"
    batch_size = (config.copying if copies else config.training).batch_size
    return Stage(
        name="strings",
        steps=total,
        optimiser=adam(lr),
        loss=loss,
        data=lambda seed, _step: strings_of(config, setting, seed)["train"],
        batch_size=batch_size if setting.n > batch_size else None,
        trainable=("*",) if setting.head_only is None else ("unembedding", "b_U"),
        stop_below=_stop_below(config, setting),
    )

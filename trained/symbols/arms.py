"""What the symbols study trains: every setting at every learning rate of its grid.

Settings that differ in the scalars only share their strings and initial weights.
"""

from dataclasses import replace
from functools import cache, partial

from torch import nn

from trained.arm import Arm, Quantity, Stage, adam
from trained.seeding import generator

from .baselines import Perceptron, Recurrent
from .config import Config
from .language import language_arms
from .sampler import SPLITS, Alphabet, Strings, alphabet, assert_unseen, sample
from .scores import alphabet_error_on, error_on, loss, loss_on
from .setting import Setting, settings, steps
from .tasks import task
from .transformer import sizes, start_near_identity, transformer

N_VALIDATION = 100
STOP_BELOW = 5e-4
"""Real labels: a seed stops once its training error is below this."""
MLP_STOP_BELOW = 1e-4
"""Lower for MLPs, which are judged only where they fit: a batch is not all strings."""
COPY_HEADS, COPY_D_HEAD = 4, 64
MLP_WIDTH = 128
MLP_RATIO = 2
"""Width of the transformer's MLPs over d_model."""


def arms(config: Config) -> tuple[Arm, ...]:
    """What the study trains."""
    strings = (
        arm(config, setting, lr)
        for setting in settings(config)
        for lr in rates(config, setting)
    )
    return (*strings, *language_arms(config))


def rates(config: Config, setting: Setting) -> tuple[float, ...]:
    """The learning rates of a setting; vanilla and modified have the same."""
    return config.copy_lrs if setting.role == "copy" else config.lrs


def arm_name(setting: Setting, lr: float) -> str:
    """The name of a setting's arm at a learning rate."""
    return f"{setting.name}-lr{lr:g}"


def alphabet_of(config: Config, setting: Setting) -> Alphabet:
    """The tokens of a setting."""
    return alphabet(task(setting.task), setting.n, n_held_out=config.held_out_symbols)


@cache
def strings_of(config: Config, setting: Setting, seed: int) -> dict[str, Strings]:
    """The three splits of a setting's seed; they share no symbol."""
    tokens = alphabet_of(config, setting)
    counts = (setting.n, N_VALIDATION, config.n_test)
    found: dict[str, Strings] = {}
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
        incidence = setting.model == "mlp_incidence"
        return Perceptron(
            tokens, width=MLP_WIDTH, incidence=incidence, generator=source
        )
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
        d_mlp=0 if setting.role == "copy" else MLP_RATIO * setting.d_model,
    )
    model = transformer(shape, scale=setting.head_only or 1.0, generator=source)
    if setting.identity == "orthogonal":
        # Drawing the matrix moves the generator on; the weights are vanilla's.
        vanilla = model_of(config, replace(setting, identity="none"), seed)
        model.load_state_dict(vanilla.state_dict(), strict=False)
    if setting.start == "mimetic":
        start_near_identity(model, generator=source)
    return model


def _width(config: Config, setting: Setting) -> tuple[int, int, int]:
    if setting.role != "copy":
        return setting.d_model, config.n_heads, config.d_head
    # All heads together must reach rank d, or copying fails for another reason.
    d_head = max(COPY_D_HEAD, -(-setting.d_model // COPY_HEADS))
    return setting.d_model, COPY_HEADS, d_head


def _stop_below(setting: Setting) -> float | None:
    if setting.role != "relation":
        return None
    return MLP_STOP_BELOW if setting.model.startswith("mlp") else STOP_BELOW


def arm(config: Config, setting: Setting, lr: float) -> Arm:
    """A setting at one learning rate."""
    total = steps(config, setting)
    return Arm(
        name=arm_name(setting, lr),
        build=partial(model_of, config, setting),
        stages=(_stage(config, setting, lr, total),),
        metrics=_metrics(config, setting),
        held_out=partial(_held_out, config, setting),
        record_every=max(10 if setting.role == "relation" else 25, total // 100),
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


def _held_out(config: Config, setting: Setting, seed: int) -> dict[str, Strings]:
    splits = strings_of(config, setting, seed)
    return {name: splits[name] for name in ("validation", "test")}


def _stage(config: Config, setting: Setting, lr: float, total: int) -> Stage:
    batch_size = config.copy_batch if setting.role == "copy" else config.batch_size
    return Stage(
        name="strings",
        steps=total,
        optimiser=adam(lr),
        loss=loss,
        data=lambda seed, _step: strings_of(config, setting, seed)["train"],
        batch_size=batch_size if setting.n > batch_size else None,
        trainable=("*",) if setting.head_only is None else ("unembedding", "b_U"),
        stop_below=_stop_below(setting),
    )

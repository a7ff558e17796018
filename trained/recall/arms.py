"""What the recall study trains, at a configuration.

`full-*` train the whole key-query matrix of the real model on fresh prompts;
`partial-*` train the position scores theta and omega; `warmup` and `few` are Algorithm
1, gradient descent on these scores from zero, perturbed once; `samples-*` use a fixed
number of prompts (Figure 3); `triple` has three examples (Figure 2b); `pretrained*`
learn the memory first (Figure 4).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

import torch
from torch import Tensor

from trained.arm import (
    Arm,
    Data,
    Optimiser,
    Quantity,
    Shuffle,
    Stage,
    adam,
    gradient_descent,
    shuffled,
)
from trained.seeding import generator
from trained.task import Batch

from .config import Config
from .model import (
    RecallModel,
    constructed_model,
    fact_loss,
    started,
    token_embedding,
    two_step_loss,
)
from .scores import (
    Pace,
    PositionScores,
    TokenScores,
    ball,
    both_steps_loss,
    displace,
    mean_relation_loss,
    relation_quantities,
    strided_loss,
    within_symmetry,
)
from .task import (
    Episodes,
    Table,
    Vocabulary,
    all_bijections,
    draw_episodes,
    draw_facts,
    relation_table,
    shuffle,
    shuffle_counts,
    unseen_episodes,
)

TABLES = ("affine", "random")
"""The headline tables."""

TWINNED: dict[str, Shuffle] = {
    "full-affine": shuffle,
    "full-random": shuffle,
    "triple": shuffle,
    "warmup": shuffle_counts,
}
"""The arms that have a twin on permuted answers, where twins are asked for."""


@dataclass(frozen=True)
class Setting:
    """What the models of an arm are asked about."""

    table: Callable[[int], Table]
    """seed -> relation table."""
    n_examples: int
    temperature: float

    @property
    def words(self) -> Vocabulary:
        """The tokens."""
        return Vocabulary.of(self.table(0))

    def draw(self, count: int, seed: int, *names: str | int) -> Episodes:
        """Episodes of a seed's table; the names tell the draws apart."""
        source = generator(seed, *names)
        return draw_episodes(self.table(seed), self.n_examples, count, generator=source)

    def unseen(self, count: int, seed: int) -> Episodes:
        """Episodes that no arm trains on."""
        return unseen_episodes(self.table(seed), self.n_examples, count, seed)


def settings(config: Config) -> dict[str, Setting]:
    """What each arm is asked about."""
    k, t, n = config.n_examples, config.temperature, config.n_subjects

    rows = config.n_relations
    headlines = {
        kind: Setting(partial(relation_table, kind, n, rows), k, t) for kind in TABLES
    }

    def triple(temperature: float) -> Setting:
        table = partial(relation_table, "random", n, config.triple.relations)
        return Setting(table, 3, temperature)

    found = {
        f"{m}-{kind}": headlines[kind] for m in ("full", "partial") for kind in TABLES
    }
    found["few"] = Setting(partial(_part_of_affine, config), 2, config.few.temperature)
    for size in config.samples.subjects:
        random = Setting(partial(relation_table, "random", size, rows), k, t)
        for mode, count in product(config.samples.modes, config.samples.sizes):
            found[sample_arm(size, mode, count)] = random
    if config.triple.steps:
        found["triple"] = triple(config.triple.temperature)
    if config.pretrained.steps:
        found["pretrained"] = headlines["random"]
        for temperature in config.pretrained.triple_temperatures:
            found[f"pretrained-triple-{temperature:g}"] = triple(temperature)
    return found


def sample_arm(n_subjects: int, mode: str, count: int) -> str:
    """The name of an arm of Figure 3."""
    return f"samples-{n_subjects}-{mode}-{count}"


def _part_of_affine(config: Config, seed: int) -> Table:
    table = relation_table("affine", config.n_subjects, 0, seed)
    return table[: int(len(table) * config.few.share)]


def arms(config: Config) -> tuple[Arm, ...]:
    """Every arm of the study at a configuration."""
    made = []
    for name, setting in settings(config).items():
        kind, *rest = name.split("-")
        if kind == "partial":
            made.append(_partial(config, name, setting))
        elif kind == "few":
            made.append(_few(config, setting))
        elif kind == "samples":
            made.append(_samples(config, name, setting, "-".join(rest[1:-1]), rest[-1]))
        elif kind == "pretrained":
            made.append(_pretrained(config, name, setting))
        else:
            made.append(_full(config, name, setting))
    made.append(_warmup(config))
    twinned = [arm for arm in made if config.twins and arm.name in TWINNED]
    return (*made, *(shuffled(arm, TWINNED[arm.name]) for arm in twinned))


def _held_out(config: Config, setting: Setting, seed: int) -> Batch:
    """What a model of the real kind is tested on: the first step of unseen prompts."""
    return setting.unseen(config.n_test, seed).relation_step()


def _fine_tune(config: Config, setting: Setting, steps: int) -> Stage:
    """Adam on the whole key-query matrix, fresh prompts at every step."""

    def data(seed: int, step: int) -> Data:
        names = ("recall", "fine-tune", step)
        return setting.draw(config.full_batch, seed, *names).steps()

    return Stage(
        name="fine-tune",
        steps=steps,
        optimiser=adam(config.learning_rate),
        loss=partial(
            two_step_loss, words=setting.words, temperature=setting.temperature
        ),
        data=data,
        draw="each step",
        trainable=("*W_KQ",),
    )


def _full(config: Config, name: str, setting: Setting) -> Arm:
    triple = name == "triple"

    def build(seed: int) -> RecallModel:
        table, k = setting.table(seed), setting.n_examples
        return constructed_model(table, k, seed, spread=config.spread)

    steps = config.triple.steps if triple else config.full_steps
    return Arm(
        name,
        build,
        (_fine_tune(config, setting, steps),),
        held_out=partial(_held_out, config, setting),
        max_seeds=config.triple.max_seeds if triple else None,
        stores="trained",
    )


def _partial(config: Config, name: str, setting: Setting) -> Arm:
    kind = name.removeprefix("partial-")
    # With the affine table every prompt has the same pattern counts: one is enough.
    count = 1 if kind == "affine" else config.partial.population

    def data(seed: int, _step: int) -> Data:
        return relation_quantities(setting.draw(count, seed, "recall", "partial", kind))

    stage = _position_stage(config, setting, data, config.partial.steps)
    return Arm(name, lambda _seed: PositionScores(setting.n_examples), (stage,))


def _position_stage(
    config: Config, setting: Setting, data: Callable[[int, int], Data], steps: int
) -> Stage:
    return Stage(
        name="fine-tune",
        steps=steps,
        optimiser=adam(config.learning_rate),
        loss=partial(
            both_steps_loss,
            n_subjects=setting.words.n_subjects,
            temperature=setting.temperature,
        ),
        data=data,
        # From exactly zero the pairs are equal and only round-off would part them.
        perturb=setting.temperature**3,
    )


def _few(config: Config, setting: Setting) -> Arm:
    """Stage 1 of Algorithm 1 in the general case: one large step."""
    t = setting.temperature

    def data(seed: int, _step: int) -> Data:
        return relation_quantities(setting.draw(config.few.prompts, seed, "general"))

    stage = Stage(
        name="first",
        steps=1,
        optimiser=gradient_descent(config.few.rate * t**1.5 * math.log(1 / t)),
        loss=partial(
            both_steps_loss, n_subjects=setting.words.n_subjects, temperature=t
        ),
        data=data,
    )
    build = partial(PositionScores, setting.n_examples, dtype=torch.float64)
    return Arm("few", lambda _seed: build(), (stage,))


def three_subjects() -> Episodes:
    """The prompt of the warm-up; all prompts of the six bijections are alike."""
    source = generator(0, "warm-up")
    return draw_episodes(all_bijections(3), 2, 1, generator=source)


def _warmup(config: Config) -> Arm:
    """Algorithm 1 with three subjects: to the saddle, then perturbed, on from it.

    One model has copies by temperature (`hot` last), kind and draw, so that the many
    small steps are taken once for all of them. Kinds: perturbed at random, and, for the
    null, with the same norm but equally in both pairs. Only the perturbations are
    random. Step 2 has a loss and scores of its own, which nothing here needs.
    """
    warmup = config.warmup
    heats = (*warmup.temperatures, warmup.hot)
    shape = (len(heats), 2, warmup.draws, 1)
    temperatures = torch.tensor(heats, dtype=torch.float64).reshape(-1, 1, 1, 1)
    temperatures = temperatures.expand(shape).reshape(-1, 1)
    mirrored = torch.tensor([False, True]).reshape(1, 2, 1, 1).expand(shape)

    def build(seed: int) -> PositionScores:
        sources = (seed, "warm-up", "perturb")
        moved: list[Tensor] = []
        for t in heats:
            several = [
                ball(t**3, 13, generator=generator(*sources, index))
                for index in range(warmup.draws)
            ]
            moved += [*several, *map(within_symmetry, several)]
        stacked = torch.stack(moved)
        return PositionScores(2, perturbations=stacked, dtype=torch.float64)

    def data(_seed: int, _step: int) -> Data:
        return {"counts": relation_quantities(three_subjects())["counts"]}

    def descend(held: Tensor) -> Quantity:
        pace = Pace(temperatures, warmup.rate * temperatures**2, held.reshape(-1, 1))
        return partial(strided_loss, pace=pace, stride=warmup.stride)

    first = Stage(
        name="first",
        steps=warmup.saddle,
        optimiser=gradient_descent(1.0),
        loss=descend(torch.ones(shape, dtype=torch.bool)),
        data=data,
        trainable=("theta",),
    )
    second = replace(
        first,
        name="second",
        steps=warmup.escape_steps // warmup.stride,
        loss=descend(mirrored),
        prepare=displace,
    )
    return Arm(
        "warmup",
        build,
        (first, second),
        measure=_attention_path,
        held_out=lambda seed: data(seed, 0),
        record_every=1,
        save_steps=(warmup.saddle, *warmup.path),
    )


def _attention_path(model: PositionScores, _data: Data) -> dict[str, Tensor]:
    """The attention of EoS in the first copy, for the course of training."""
    return {f"key{i}": v for i, v in enumerate(model.theta[0].softmax(-1).unbind())}


def _samples(config: Config, name: str, setting: Setting, mode: str, count: str) -> Arm:
    words = setting.words

    def data(seed: int, _step: int) -> Data:
        names = ("recall", "samples", str(words.n_subjects))
        return relation_quantities(setting.draw(int(count), seed, *names))

    if mode == "partial":
        stage = _position_stage(config, setting, data, config.samples.steps)
        return Arm(name, lambda _seed: PositionScores(setting.n_examples), (stage,))

    def build(seed: int) -> TokenScores:
        return TokenScores(
            token_embedding(setting.table(seed), seed),
            setting.n_examples,
            optimiser="gd" if mode == "full-gd" else "adam",
            spread=config.spread,
            generator=generator(seed, "recall", "token scores"),
        )

    rate = config.samples.gd_rate * setting.temperature**2
    descent = gradient_descent(rate)
    stage = Stage(
        name="fine-tune",
        steps=config.samples.steps,
        optimiser=descent if mode == "full-gd" else adam(config.learning_rate),
        loss=partial(mean_relation_loss, temperature=setting.temperature),
        data=data,
    )
    return Arm(name, build, (stage,))


def _pretrained(config: Config, name: str, setting: Setting) -> Arm:
    """Figure 4: learn the memory from facts, then fine-tune the key-query matrix."""
    wanted = config.pretrained

    def build(seed: int) -> RecallModel:
        table = setting.table(seed)
        shape = (2, wanted.width * table.shape[1] ** 2, setting.words.size)
        source = generator(seed, "recall", "memory")
        keys, values = wanted.spread * torch.randn(shape, generator=source)
        positions = 2 * setting.n_examples + 3
        model = RecallModel(token_embedding(table, seed), positions, keys, values)
        return started(model, config.spread, seed)

    def facts(seed: int, step: int) -> Data:
        source = generator(seed, "recall", "facts", step)
        return draw_facts(setting.table(seed), wanted.batch, generator=source)

    pretrain = Stage(
        name="pretrain",
        steps=wanted.steps,
        optimiser=Optimiser(
            "adamw",
            config.learning_rate,
            weight_decay=wanted.weight_decay,
            decay=wanted.decay,
        ),
        loss=partial(fact_loss, temperature=wanted.temperature),
        data=facts,
        draw="each step",
    )
    return Arm(
        name,
        build,
        (pretrain, _fine_tune(config, setting, wanted.steps)),
        held_out=partial(_held_out, config, setting),
        save_steps=(wanted.steps,),
        max_seeds=wanted.max_seeds if name == "pretrained" else 1,
    )

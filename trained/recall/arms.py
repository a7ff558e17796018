"""What the recall study trains, at a configuration.

`full-*` train the whole key-query matrix of the real model on fresh prompts (Figure
2a), `triple` with three examples (Figure 2b); `whole-*` and `gd-*` use a fixed number
of prompts (Figure 3); `fig4*` learn the memory first (Figure 4); `direct*` have three
subjects (Lemma 4). Names that end in -hot, -raw or -shuffled are nulls of the arm that
they begin with. The theory's arms are in `theory_arms`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

import torch

from trained.arm import (
    SHUFFLED,
    Arm,
    Data,
    Optimiser,
    Shuffle,
    Stage,
    adam,
    gradient_descent,
    shuffled,
)
from trained.seeding import generator
from trained.task import Batch, shuffle_targets

from .config import Config, memory_arm
from .model import (
    RecallModel,
    constructed_model,
    direct_loss,
    fact_loss,
    started,
    token_embedding,
    two_step_loss,
)
from .task import (
    Episodes,
    Table,
    Vocabulary,
    all_bijections,
    all_episodes,
    draw_episodes,
    draw_facts,
    relation_table,
    shuffle,
    shuffle_copies,
    shuffle_counts,
    unseen_episodes,
)
from .theory_arms import theory_arms
from .whole import WholeScores, prompt_quantities, shuffle_prompts, whole_loss

TABLES = ("affine", "random")
"""The headline tables."""

HOT, RAW = "-hot", "-raw"
"""What the names of nulls end with: too high a temperature, no pretraining."""

TWINNED: dict[str, Shuffle] = {"full-affine": shuffle, "warmup": shuffle_counts}
"""The arms that have a twin on permuted answers only where twins are asked for."""


@dataclass(frozen=True)
class Setting:
    """What the models of an arm are asked about."""

    table: Callable[[int], Table]
    """seed -> relation table."""
    n_examples: int
    temperature: float
    size: int = 0
    """Prompts of a fixed training set; 0: fresh ones at every step."""
    spread: float = 0.0
    """Standard deviation of the initial key-query matrix."""

    @property
    def words(self) -> Vocabulary:
        """The tokens."""
        return Vocabulary.of(self.table(0))

    def draw(self, count: int, seed: int, *names: str | int) -> Episodes:
        """Episodes of a seed's table; the names tell the draws apart."""
        source = generator(seed, *names)
        return draw_episodes(self.table(seed), self.n_examples, count, generator=source)

    def prompts(self, seed: int) -> Episodes:
        """The fixed training set."""
        return self.draw(self.size, seed, "recall", "samples", self.words.n_subjects)

    def unseen(self, count: int, seed: int) -> Episodes:
        """Episodes outside the fixed training set, if there is one."""
        seen = self.prompts(seed) if self.size else None
        return unseen_episodes(
            self.table(seed), self.n_examples, count, seed, seen=seen
        )


def settings(config: Config) -> dict[str, Setting]:
    """What each arm that has tokens is asked about; nulls share their arm's."""
    k, t, n, s = (
        config.n_examples,
        config.temperature,
        config.n_subjects,
        config.spread,
    )
    rows = config.n_relations
    found = {
        f"full-{kind}": Setting(partial(relation_table, kind, n, rows), k, t, spread=s)
        for kind in TABLES
    }
    found |= {
        name: Setting(lambda _seed: all_bijections(3), 2, t, spread=s)
        for name in ("direct", "direct-two-step", "direct-unfrozen")
    }
    found |= _sample_settings(config)
    random = partial(relation_table, "random", n)
    triple = replace(
        found["full-random"],
        table=partial(random, config.triple.relations),
        n_examples=3,
        temperature=config.triple.temperature,
    )
    if config.triple.steps:
        found["triple"] = triple
    wanted = config.pretrained
    if wanted.steps:
        for reading, width in product(wanted.readings, wanted.widths):
            found[memory_arm(reading, width)] = found["full-random"]
    if wanted.triple_steps:
        for reading in ("caption", "warm"):
            found[f"fig4b-{reading}"] = triple
    return found


def _sample_settings(config: Config) -> dict[str, Setting]:
    """Figure 3; of several readings the temperature and the spread are the first's."""
    samples = config.samples
    heat, spread = samples.readings[0]
    found = {}
    for n in samples.subjects:
        table = partial(relation_table, "random", n, config.n_relations)
        base = Setting(table, config.n_examples, heat, spread=spread)
        for count in (*samples.sizes, *samples.beyond):
            found[f"whole-{n}-{count}"] = replace(base, size=count)
        if "gd" in samples.modes and n == samples.subjects[0]:
            for count in samples.sizes:
                found[f"gd-{n}-{count}"] = replace(base, size=count)
    return found


def arms(config: Config) -> tuple[Arm, ...]:
    """Every arm of the study at a configuration, the long ones last."""
    found: list[Arm] = []
    for name, setting in settings(config).items():
        kind = name.split("-")[0]
        if kind == "direct":
            found.append(_direct(config, name, setting))
        elif kind in ("whole", "gd"):
            found += _samples(config, name, setting)
        elif kind in ("fig4a", "fig4b"):
            found += _pretrained(config, name, setting)
        else:
            found += _full(config, name, setting)
    found = [*theory_arms(config), *found]
    twinned = [arm for arm in found if config.twins and arm.name in TWINNED]
    twins = [shuffled(arm, TWINNED[arm.name]) for arm in twinned]
    twins += [shuffled(arm, shuffle_copies) for arm in found if arm.name == "partial"]
    long = ("triple", "fig4b")
    return tuple(sorted([*found, *twins], key=lambda arm: arm.name.startswith(long)))


def _null(config: Config, arm: Arm, name: str) -> Arm:
    """An arm that is only a null: of fewer seeds."""
    most = min(config.null_seeds, arm.max_seeds or config.null_seeds)
    return replace(arm, name=name, max_seeds=most)


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


def _constructed(setting: Setting, seed: int) -> RecallModel:
    table, k = setting.table(seed), setting.n_examples
    return constructed_model(table, k, seed, spread=setting.spread)


def _full(config: Config, name: str, setting: Setting) -> list[Arm]:
    """Figure 2, and its nulls."""
    triple = name == "triple"
    steps = config.triple.steps if triple else config.full_steps
    real = Arm(
        name,
        partial(_constructed, setting),
        (_fine_tune(config, setting, steps),),
        held_out=partial(_held_out, config, setting),
        max_seeds=config.triple.max_seeds if triple else config.full_seeds,
        stores="trained",
    )
    if name == "full-affine":
        return [real]
    heat = config.triple.hot if triple else config.hot
    hot = replace(
        real, stages=(_fine_tune(config, replace(setting, temperature=heat), steps),)
    )
    twin = shuffled(real, shuffle)
    return [
        real,
        _null(config, hot, name + HOT),
        _null(config, twin, twin.name),
    ]


def _direct(config: Config, name: str, setting: Setting) -> Arm:
    """Three subjects: the answer without a relation, and the same budget with it."""

    def data(seed: int, _step: int) -> Data:
        return all_episodes(setting.table(seed), 2).steps()

    loss = two_step_loss if name == "direct-two-step" else direct_loss
    stage = Stage(
        name="fine-tune",
        steps=config.direct_steps,
        optimiser=adam(config.learning_rate),
        loss=partial(loss, words=setting.words, temperature=setting.temperature),
        data=data,
        trainable=("*",) if name == "direct-unfrozen" else ("*W_KQ",),
    )
    return Arm(name, partial(_constructed, setting), (stage,), stores="trained")


def _samples(config: Config, name: str, setting: Setting) -> list[Arm]:
    """Figure 3 on the whole matrix; all readings at once where they are the paper's."""
    samples, by_descent = config.samples, name.startswith("gd")
    alone = by_descent or setting.size in samples.beyond
    readings = samples.readings[:1] if alone else samples.readings

    def build(seed: int) -> WholeScores:
        embedding = token_embedding(setting.table(seed), seed)
        spreads = tuple(spread for _, spread in readings)
        return WholeScores(embedding, setting.n_examples, spreads=spreads, seed=seed)

    rate = samples.gd_rate * setting.temperature**2
    stage = Stage(
        name="fine-tune",
        steps=samples.steps,
        optimiser=gradient_descent(rate) if by_descent else adam(config.learning_rate),
        loss=partial(
            whole_loss,
            n_subjects=setting.words.n_subjects,
            temperatures=tuple(heat for heat, _ in readings),
        ),
        data=lambda seed, _step: prompt_quantities(setting.prompts(seed)),
    )
    real = Arm(name, build, (stage,))
    if name != permuted_arm(config):
        return [real]
    twin = shuffled(real, shuffle_prompts)
    return [real, _null(config, twin, twin.name)]


def permuted_arm(config: Config) -> str:
    """The one arm of Figure 3 that is also trained on permuted answers."""
    samples = config.samples
    return f"whole-{min(samples.subjects, default=0)}-{max(samples.sizes)}"


def _pretrained(config: Config, name: str, setting: Setting) -> list[Arm]:
    """Figure 4: learn the memory from facts, then fine-tune the key-query matrix."""
    wanted, (figure, reading, *rest) = config.pretrained, name.split("-")
    width = int(rest[0]) if rest else wanted.widths[0]
    heat = setting.temperature if reading == "caption" else wanted.warm
    decay = wanted.weight_decay if reading == "decay" else 0.0
    first = wanted.triple_steps if figure == "fig4b" else wanted.steps
    second = wanted.triple_steps if figure == "fig4b" else wanted.fine_steps

    def build(seed: int) -> RecallModel:
        table = setting.table(seed)
        shape = (2, width * table.shape[1] ** 2, setting.words.size)
        source = generator(seed, "recall", "memory")
        keys, values = wanted.spread * torch.randn(shape, generator=source)
        positions = 2 * setting.n_examples + 3
        model = RecallModel(token_embedding(table, seed), positions, keys, values)
        return started(model, setting.spread, seed)

    def facts(seed: int, step: int) -> Data:
        source = generator(seed, "recall", "facts", step)
        return draw_facts(setting.table(seed), wanted.batch, generator=source)

    pretrain = Stage(
        name="pretrain",
        steps=first,
        optimiser=Optimiser(
            "adamw" if decay else "adam", config.learning_rate, weight_decay=decay
        ),
        loss=partial(fact_loss, temperature=heat),
        data=facts,
        draw="each step",
    )
    fine_tune = _fine_tune(config, setting, second)
    real = Arm(
        name,
        build,
        (pretrain, fine_tune),
        held_out=partial(_held_out, config, setting),
        save_steps=(first,),
        max_seeds=wanted.max_seeds,
    )
    if reading == "decay" or width != wanted.widths[0]:
        return [real]
    raw = replace(real, stages=(fine_tune,), save_steps=())
    spoiled = replace(shuffled(real, _shuffle_facts), save_steps=())
    spoiled = replace(spoiled, stages=(spoiled.stages[0], fine_tune))
    return [
        real,
        _null(config, raw, name + RAW),
        _null(config, spoiled, name + SHUFFLED),
    ]


def _shuffle_facts(data: Data, source: torch.Generator) -> Data:
    """Facts whose third words are permuted: there is nothing to remember."""
    return shuffle_targets(data, source)

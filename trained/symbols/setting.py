"""One compared network as data: its task, its data and its shape, all but the rate.

Free of torch, so that claims can name what they compare.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from .checks import nearest, sized
from .config import Config, Copying, Psychometric, Recall, Scaled, Training
from .tasks import task

Model = Literal["transformer", "mlp", "mlp_incidence", "mlp_foreign", "rnn", "lstm"]
"""`mlp_incidence` is given X X^T; `mlp_foreign` that of another string, a control."""
Identity = Literal["none", "a", "b", "ab", "aQ", "bQ", "a_scores"]
"""Which scalars are trained. Controls: Q is a random orthogonal matrix in the
identity's place; `a_scores` weighs W_K W_Q^T itself."""
SCALED: tuple[Scaled, ...] = ("weights", "scores")
CONTROLS = ("aQ", "bQ", "a_scores", "mlp_foreign")
"""Networks that are nulls only."""
Role = Literal["relation", "copy", "recall", "psychometric"]
"""Which experiment a setting belongs to: real labels, Figures 5, 2 and 3."""
FEW = 64
"""The n at which the paper's architectures differ most (Figure 21)."""
MANY = 1024
"""The n from which vanilla generalises."""
PSYCHOMETRIC: dict[str, Identity] = {
    "match_to_sample": "a",
    "distribution_of_3": "a",
    "raven": "ab",
}


@dataclass(frozen=True)
class Setting:
    """What is trained, once for every learning rate."""

    role: Role
    task: str
    n: int
    d_model: int
    depth: int
    model: Model = "transformer"
    identity: Identity = "none"
    start: Literal["default", "mimetic"] = "default"
    head_only: float | None = None
    """Train the readout only, what is frozen scaled by this; None: train all."""
    scaled: Scaled = "weights"
    optimiser: Literal["adam", "sgd"] = "adam"

    @property
    def name(self) -> str:
        """For example `relation-same_different-n256-d64-l2-a`."""
        digest = hashlib.blake2b(self.task.encode(), digest_size=4).hexdigest()
        known = "written-" + digest if "->" in self.task else self.task
        model = self.identity if self.model == "transformer" else self.model
        parts = [
            f"{self.role}-{known}-n{self.n}-d{self.d_model}-l{self.depth}-{model}",
            "" if self.start == "default" else self.start,
            "" if self.head_only is None else f"head{self.head_only:g}",
            "" if self.scaled == "weights" else self.scaled,
            "" if self.optimiser == "adam" else self.optimiser,
        ]
        return "-".join(part for part in parts if part)

    @property
    def is_control(self) -> bool:
        """Whether it serves as a null only."""
        guesses = self.role == "psychometric" and self.model == "mlp"
        return guesses or self.identity in CONTROLS or self.model in CONTROLS


def relation(
    config: Config, n: int, identity: Identity = "none", name: str = ""
) -> Setting:
    """The transformer on a real-label task; without a name the configuration's."""
    shape = (config.model.d_model, config.model.depth)
    return Setting("relation", name or config.task, n, *shape, identity=identity)


def perceptron(config: Config, name: str, n: int, model: Model = "mlp") -> Setting:
    """A network without attention on a task."""
    return Setting("relation", name, n, config.model.d_model, 3, model=model)


def copying(
    config: Config, d_model: int, n: int, identity: Identity = "none"
) -> Setting:
    """The transformer that is to name the symbol it reads."""
    depth = config.copying.depth
    return Setting("copy", "copy", n, d_model, depth, identity=identity)


def recalling(config: Config, n: int, identity: Identity = "none") -> Setting:
    """The transformer on the configuration's symbolic-label task."""
    own = config.recall
    return Setting("recall", own.task, n, own.d_model, own.depth, identity=identity)


def psychometric(config: Config, name: str, n: int) -> Setting:
    """The transformer, with the scalars that it needs, on a psychometric test."""
    own = config.psychometric
    shape = (own.d_model, own.depth)
    return Setting("psychometric", name, n, *shape, identity=PSYCHOMETRIC[name])


def head_only(config: Config, scale: float, scaled: Scaled = "weights") -> Setting:
    """The transformer whose readout alone is trained."""
    n = config.last_layer.n
    assert n is not None
    one = relation(config, n, name="aba_abb")
    return replace(one, head_only=scale, scaled=scaled)


def mimetic(config: Config) -> Setting:
    """The transformer whose W_K W_Q^T starts near the identity; same/different."""
    return replace(relation(config, FEW, name="same_different"), start="mimetic")


def settings(config: Config) -> list[Setting]:
    """Every network, the dearest first so that processes end together."""
    found = [
        *_relations(config),
        *_variants(config),
        *_perceptrons(config),
        *_copies(config),
        *_recalls(config),
        *_psychometric(config),
    ]
    unique = dict.fromkeys(found)
    return sorted(unique, key=lambda setting: -cost(config, setting))


def _relations(config: Config) -> Iterator[Setting]:
    yield from (relation(config, n) for n in config.n)
    for n in config.identity_n:
        for identity in ("a", "aQ", "a_scores"):
            yield relation(config, n, identity)
    if FEW in config.identity_n:
        yield relation(config, FEW, "b")
    for text in config.both_tasks:
        name, n = sized(text)
        yield from (relation(config, n, i, name) for i in ("none", "ab"))
    for text in config.plain_tasks:
        name, n = sized(text)
        yield relation(config, n, name=name)


def _variants(config: Config) -> Iterator[Setting]:
    if "depth1" in config.variants:
        pair = (relation(config, config.compared_n, i) for i in ("none", "a"))
        yield from (replace(one, depth=1) for one in pair)
    if config.last_layer.n is not None:
        for scale in config.last_layer.scales:
            yield from (head_only(config, scale, part) for part in SCALED)
    if "networks" in config.variants:
        yield mimetic(config)
        yield relation(config, FEW, name="same_different")
        yield from (perceptron(config, config.task, FEW, c) for c in ("rnn", "lstm"))


def _perceptrons(config: Config) -> Iterator[Setting]:
    for name in config.mlp_tasks:
        for n in config.mlp_n:
            plain = perceptron(config, name, n)
            yield from (plain, replace(plain, optimiser="sgd"))
            yield perceptron(config, name, n, "mlp_incidence")
        yield perceptron(config, name, config.mlp_n[0], "mlp_foreign")
    if not task(config.task).regular:
        yield perceptron(config, config.task, nearest(config.n, MANY))


def _copies(config: Config) -> Iterator[Setting]:
    sizes = config.copying
    for d in sizes.d_model:
        yield from (copying(config, d, n) for n in sizes.n)
        yield copying(config, d, sizes.compared_n, "b")
    widest = sizes.d_model[-1]
    yield copying(config, widest, sizes.compared_n, "bQ")
    yield from (copying(config, widest, sizes.span_n, i) for i in ("none", "b"))


def _recalls(config: Config) -> Iterator[Setting]:
    for n in config.recall.n:
        for identity in ("none", "a", "b", "ab"):
            yield recalling(config, n, identity)


def _psychometric(config: Config) -> Iterator[Setting]:
    own = config.psychometric
    for name in PSYCHOMETRIC if own.n else ():
        yield from (psychometric(config, name, n) for n in own.n)
        if task(name).kind == "real":
            # The MLP has a number to say; a symbol that it never saw it cannot name.
            mlp = psychometric(config, name, own.n[-1])
            yield replace(mlp, model="mlp", identity="none", depth=3)


def twinned(config: Config) -> list[Setting]:
    """The networks that are trained once more on permuted answers."""
    every = settings(config)
    if config.twins == "all":
        return [setting for setting in every if not setting.is_control]
    widest, many = config.copying.d_model[-1], config.copying.compared_n
    named = [
        relation(config, nearest(config.n, MANY)),
        relation(config, config.identity_n[-1], "a"),
        relation(config, nearest(config.identity_n, FEW), "a"),
        *(
            perceptron(config, t, config.mlp_n[0], "mlp_incidence")
            for t in config.mlp_tasks
        ),
        copying(config, widest, many, "b"),
        *(recalling(config, n, "ab") for n in config.recall.n),
        *(relation(config, n, "ab", name) for name, n in map(sized, config.both_tasks)),
        *(s for s in every if s.head_only == config.last_layer.scales[-1]),
        *(
            psychometric(config, t, n)
            for t in PSYCHOMETRIC
            for n in config.psychometric.n[-1:]
        ),
    ]
    return [setting for setting in every if setting in named]


def steps(config: Config, setting: Setting) -> int:
    """How many steps a setting is trained."""
    if setting.role == "copy":
        return config.copying.steps
    if setting.role == "psychometric":
        return config.psychometric.steps
    if setting.role == "recall":
        own = config.recall
        return min(own.max_steps, own.epochs * per_epoch(setting.n, own.batch_size))
    training = config.training
    if setting.model.startswith("mlp"):
        sgd = setting.optimiser == "sgd"
        return training.mlp_sgd_steps if sgd else training.mlp_steps
    each = per_epoch(setting.n, training.batch_size)
    if setting.head_only is not None:
        return config.last_layer.epochs * each
    return min(training.max_steps, training.epochs * each)


def per_epoch(n: int, batch_size: int) -> int:
    """Steps of an epoch."""
    return -(-n // batch_size)


def batch_size(config: Config, setting: Setting) -> int:
    """Strings per step, at most."""
    own: dict[Role, Training | Copying | Recall | Psychometric] = {
        "relation": config.training,
        "copy": config.copying,
        "recall": config.recall,
        "psychometric": config.psychometric,
    }
    return own[setting.role].batch_size


def rates(config: Config, setting: Setting) -> tuple[float, ...]:
    """The learning rates of a setting; vanilla and modified have the same."""
    training = config.training
    if setting.model.startswith("mlp"):
        return (training.mlp_sgd_lr if setting.optimiser == "sgd" else training.mlp_lr,)
    if setting.head_only is not None:
        return (config.last_layer.lr,)
    return {
        "relation": training.lrs,
        "copy": config.copying.lrs,
        "recall": config.recall.lrs,
        "psychometric": config.psychometric.lrs,
    }[setting.role]


def cost(config: Config, setting: Setting) -> float:
    """About how long a setting trains, in no unit."""
    rows = min(setting.n, batch_size(config, setting))
    width = setting.d_model**2 * setting.depth if setting.model == "transformer" else 1
    length = task(setting.task).length + 1
    return float(steps(config, setting) * rows * length * width)

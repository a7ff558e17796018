"""One compared network as data: its task, its data and its shape, all but the rate.

Free of torch, so that claims can name what they compare.
"""

import hashlib
from dataclasses import dataclass, replace
from typing import Literal

from .config import Config, Variant
from .tasks import task

Model = Literal["transformer", "mlp", "mlp_incidence", "rnn", "lstm"]
Identity = Literal["none", "a", "b", "ab", "orthogonal"]
"""Which scalars are trained; `orthogonal` weighs with a random orthogonal Q in the
identity's place, a control."""
Role = Literal["relation", "copy", "recall"]
"""Which experiment a setting belongs to: real labels, Figure 5, Figure 2."""


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
    """Train the readout only, the frozen weights scaled by this; None: train all."""

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
        ]
        return "-".join(part for part in parts if part)


def relation(config: Config, n: int, identity: Identity = "none") -> Setting:
    """The transformer on the configuration's real-label task."""
    shape = (config.model.d_model, config.model.depth)
    return Setting("relation", config.task, n, *shape, identity=identity)


def baseline(config: Config, n: int, model: Model = "mlp") -> Setting:
    """A network without attention on the same strings."""
    return Setting("relation", config.task, n, config.model.d_model, 3, model=model)


def copying(d_model: int, n: int, identity: Identity = "none") -> Setting:
    """One layer of attention that is to name the symbol it reads."""
    return Setting("copy", "copy", n, d_model, 1, identity=identity)


def recalling(config: Config, n: int, identity: Identity = "none") -> Setting:
    """The transformer on the configuration's symbolic-label task."""
    shape = config.recall_shape
    return Setting("recall", config.recall.task, n, *shape, identity=identity)


def settings(config: Config) -> list[Setting]:
    """Every network, the dearest first so that processes end together."""
    found = [relation(config, n) for n in config.n]
    found += [relation(config, n, "a") for n in config.identity_n]
    found += [
        baseline(config, n, model)
        for n in config.perceptron_n
        for model in ("mlp", "mlp_incidence")
    ]
    found += [
        copying(d, n, identity)
        for d in config.copying.d_model
        for n in config.copying.n
        for identity in ("none", "b")
    ]
    found += [recalling(config, n, i) for n in config.recall.n for i in ("none", "ab")]
    found += [other for name in config.other_tasks for other in others(config, name)]
    for variant in config.variants:
        found += variants(config)[variant]
    unique = dict.fromkeys(found)
    return sorted(unique, key=lambda setting: -_cost(config, setting))


def others(config: Config, name: str) -> tuple[Setting, Setting]:
    """Vanilla and +aI on another task."""
    vanilla, modified = (relation(config, config.other_n, i) for i in ("none", "a"))
    return replace(vanilla, task=name), replace(modified, task=name)


def variants(config: Config) -> dict[Variant, list[Setting]]:
    """The networks of each variant, most at the n where models are compared."""
    n, most = config.compared_n, config.n[-1]
    vanilla, modified = relation(config, n), relation(config, n, "a")
    return {
        "rotated": [relation(config, few, "orthogonal") for few in config.identity_n],
        "depth1": [replace(vanilla, depth=1), replace(modified, depth=1)],
        "both": [relation(config, n, "b"), relation(config, n, "ab")],
        "mimetic": [replace(vanilla, start="mimetic")],
        "recurrent": [baseline(config, n, cell) for cell in ("rnn", "lstm")],
        "last_layer": [
            replace(relation(config, most), head_only=scale)
            for scale in config.model.head_scales
        ],
    }


def steps(config: Config, setting: Setting) -> int:
    """How many steps a setting is trained."""
    if setting.role == "copy":
        return config.copying.steps
    if setting.role == "recall":
        return config.recall.steps
    training = config.training
    per_epoch = -(-setting.n // training.batch_size)
    return min(training.max_steps, training.epochs * per_epoch)


def _cost(config: Config, setting: Setting) -> float:
    rows = min(setting.n, config.training.batch_size) * (task(setting.task).length + 1)
    width = setting.d_model**2 * setting.depth if setting.model == "transformer" else 1
    return float(steps(config, setting) * rows * width)

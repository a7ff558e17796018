"""The features of the theory's FFN: what each value neuron has learned, and when.

V(g) and V(y) are a value neuron's weights on the action slot and on the value slot, in
units of the clip B. Every class j has one neuron for each value y, the one that
responds most to y together with the actions that send y to j; no two values share one.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import nan
from typing import Literal

import numpy as np
import torch
from einops import einsum, rearrange
from jaxtyping import Bool, Float
from scipy.optimize import linear_sum_assignment
from scipy.stats import spearmanr
from torch import Tensor

from circuits.lab import once
from trained.lego.action import Action, action
from trained.lego.task import table_of
from trained.lego.theory import TheoryModel, feature_ratio
from trained.lego.theory_arms import Course

from .models import LegoModels

When = Literal["early", "end"]

HALF_WAY = 0.5
"""The share of the clip at which a feature counts as learned."""


@dataclass(frozen=True)
class Features:
    """The learned weights of one model, neuron by neuron, in units of the clip B."""

    action: Float[Tensor, "j y g"]
    """V(g) of the neuron of (j, y)."""
    value: Float[Tensor, "j y other"]
    """V(y') of the neuron of (j, y)."""
    fiber: Bool[Tensor, "j y g"]
    """Which actions send y to j."""

    @property
    def own(self) -> Bool[Tensor, "j y other"]:
        """Which y' is y."""
        return torch.eye(self.value.shape[-1]).bool().expand_as(self.value)

    @property
    def halves(self) -> tuple[float, float, float, float]:
        """Mean V(g), V(y), V(g'), V(y'): right halves, then wrong ones."""
        means = [
            self.action[self.fiber],
            self.value[self.own],
            self.action[~self.fiber],
            self.value[~self.own],
        ]
        right_g, right_y, wrong_g, wrong_y = (float(part.mean()) for part in means)
        return right_g, right_y, wrong_g, wrong_y

    @property
    def ratio(self) -> float:
        """Mean V(g) / mean V(y) of the right halves."""
        return self.halves[0] / self.halves[1]

    @property
    def uneven(self) -> float:
        """Mean |V(g) / V(y) - 1| over neurons, where one g sends y to j."""
        ratios = self.action[self.fiber] / self.value[self.own]
        return float((ratios - 1).abs().mean())

    @property
    def mixed(self) -> float:
        """Mean |V(g') + V(y)| and |V(g) + V(y')|: one half right, the other wrong."""
        sums = rearrange(self.action, "j y g -> j y g 1") + self.value[:, :, None]
        right_g = rearrange(self.fiber, "j y g -> j y g 1")
        one_right = right_g ^ self.own[:, :, None]
        return float(sums[one_right.expand_as(sums)].abs().mean())

    @property
    def composite(self) -> float:
        """Mean (V(g) + V(y)) / 2 of the right halves."""
        return (self.halves[0] + self.halves[1]) / 2

    @property
    def wrong(self) -> float:
        """Mean (V(g') + V(y')) / 2 of the wrong halves."""
        return (self.halves[2] + self.halves[3]) / 2


class FeatureLab(LegoModels):
    """Quantities of the theory's FFNs, one value per seed."""

    def ffns(self, group: str, when: When = "end") -> list[TheoryModel]:
        """The models of an action, for their FFN."""
        course = Course(self.config, group)
        chain = group in self.config.theory.groups
        arm = course.arm if chain else course.feature_arm
        return list(self.models(arm.name, course.early if when == "early" else None))

    @once
    def features(
        self, group: str, when: When = "end", *, shift: int = 0
    ) -> list[Features]:
        """The features of every seed; `shift` reads another class's fibers."""
        return [
            features(model, action(group), shift=shift)
            for model in self.ffns(group, when)
        ]

    def feature(self, group: str, what: str, *, shift: int = 0) -> list[float]:
        """`composite`, `mixed`, `wrong`, `ratio` or `uneven`."""
        return [getattr(f, what) for f in self.features(group, shift=shift)]

    def ratio_growth(self, group: str) -> list[float]:
        """How much it grew in the last three quarters of training, over C_alpha."""
        early, limit = self.features(group, "early"), feature_ratio(action(group))
        pairs = zip(self.feature(group, "ratio"), early, strict=True)
        return [(late - before.ratio) / limit for late, before in pairs]

    def relative_ratio(self, group: str, of: str) -> list[float]:
        """V(g) / V(y) of one action in units of another's C_alpha."""
        limit = feature_ratio(action(of))
        return [ratio / limit for ratio in self.feature(group, "ratio")]

    def adam_ratio(self, group: str) -> list[float]:
        """The same in units of its own, trained with Adam."""
        models = self.models(Course(self.config, group).adam_arm.name)
        limit = feature_ratio(action(group))
        return [features(model, action(group)).ratio / limit for model in models]

    def strongest(self, group: str) -> list[float]:
        """Share of the right logit that its strongest neuron gives."""
        return [strongest_share(model, action(group)) for model in self.ffns(group)]

    def order(self, group: str, *, of_next_seed: bool = False) -> list[float]:
        """Spearman's correlation of the greedy order with the time of half the clip.

        Args:
            group: a simply transitive action.
            of_next_seed: take the order from another seed's initial weights.
        """
        act, arm = action(group), Course(self.config, group).feature_arm
        seeds = self.seeds_of(arm.name)
        donors = [*seeds[1:], seeds[0]] if of_next_seed else seeds
        steps = sorted({*arm.save_steps, arm.steps})
        found = []
        for seed, donor in zip(seeds, donors, strict=True):
            initial = Course(self.config, group).build(donor)
            places = torch.tensor(list(greedy_order(initial, act))).T
            levels = torch.stack(
                [composites(self.model(arm.name, seed, n), act)[*places] for n in steps]
            )
            reached = levels >= HALF_WAY
            # What never gets there is last.
            reached = torch.cat([reached, torch.ones_like(reached[:1])])
            times = reached.int().argmax(0)
            ranks, known = torch.arange(len(times)), bool((times != times[0]).any())
            found.append(float(spearmanr(ranks, times).statistic) if known else nan)
        return found


def features(model: TheoryModel, act: Action, *, shift: int = 0) -> Features:
    """The features of a model; `shift` reads another class's fibers (a null)."""
    table = table_of(act)
    classes = torch.arange(table.shape[1])
    fiber = rearrange(table, "g y -> 1 y g") == rearrange(classes, "j -> j 1 1")
    actions, values = halves_of(model)
    by_action = einsum(actions, fiber.float(), "j r g, j y g -> j y r")
    response = by_action / fiber.sum(-1, keepdim=True)
    response = response + rearrange(values, "j r y -> j y r")
    best = torch.stack([_assigned(own) for own in response])
    row = classes[:, None]
    return Features(actions[row, best], values[row, best], fiber.roll(shift, 0))


def _assigned(response: Float[Tensor, "y r"]) -> Tensor:
    """For every value a neuron of its own, such that the sum of responses is largest.

    >>> _assigned(torch.tensor([[3.0, 2.0], [4.0, 0.0]])).tolist()
    [1, 0]
    """
    _, chosen = linear_sum_assignment(response.numpy(), maximize=True)
    return torch.as_tensor(chosen)


def halves_of(
    model: TheoryModel,
) -> tuple[Float[Tensor, "j r g"], Float[Tensor, "j r y"]]:
    """V(g) and V(y) of every class and neuron, in units of B."""
    neurons = model.block.value
    actions = rearrange(neurons.W2.detach().cpu(), "g j r -> j r g") / neurons.clip
    values = rearrange(neurons.W5.detach().cpu(), "y j r -> j r y") / neurons.clip
    return actions, values


def composites(model: TheoryModel, act: Action) -> Float[Tensor, "j y r"]:
    """(V(g) + V(y)) / 2 for the g that sends y to j; of a simply transitive action."""
    actions, values = halves_of(model)
    sends = table_of(act).T.argsort(1).T  # [j, y]: the g with g(y) = j
    classes = torch.arange(len(actions))[:, None]
    by_action = rearrange(actions, "j r g -> j g r")[classes, sends]
    return (by_action + rearrange(values, "j r y -> j y r")) / 2


def greedy_order(model: TheoryModel, act: Action) -> Iterator[tuple[int, int, int]]:
    """The curriculum of Definition B.3: features (j, y, r), the largest V^(0) first.

    A neuron takes one pair of an action and a value, a pair one neuron.
    """
    left = composites(model, act).numpy().copy()
    while np.isfinite(left).any():
        j, y, r = (int(i) for i in np.unravel_index(left.argmax(), left.shape))
        yield j, y, r
        left[j, y, :] = left[j, :, r] = -np.inf


def strongest_share(model: TheoryModel, act: Action) -> float:
    """Mean share of the right logit that its strongest neuron gives, in (0, 1].

    1 if one neuron serves each pair of an action and a value (Theorem B.1).
    """
    neurons, table = model.block.value, table_of(act)
    pairs = (neurons.W2.detach()[:, None] + neurons.W5.detach()) / 2 + neurons.bias
    right = table[..., None, None].expand(*table.shape, 1, neurons.shape[1])
    active = neurons.relu(pairs).cpu().gather(2, right)[:, :, 0]
    return float((active.amax(-1) / active.sum(-1)).mean())

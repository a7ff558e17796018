"""Which features does the theory's FFN learn (eqs. 17 and 18, Theorems B.1 and C.1)?

V(g) and V(y) are a value neuron's weights on the action slot and on the value slot. The
neuron of class j and value y is the one that responds most to y together with the
actions that send y to j. Falsified by halves of the wrong sign, by mixed halves that do
not cancel, or by a ratio V(g) / V(y) away from C_alpha.
"""

from dataclasses import dataclass

import torch
from einops import einsum, rearrange
from jaxtyping import Bool, Float
from torch import Tensor

from circuits.claims import Observed
from trained.lego.reduced import feature_ratio
from trained.lego.sentences import table_of
from trained.lego.theory_arms import Course
from trained.lego.theory_model import TheoryModel, smooth_relu

from .context import Context
from .theory_models import Theory


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
    def signs(self) -> float:
        """The least of V(g), V(y), -V(g'), -V(y'): positive if all signs are right."""
        right_g, right_y, wrong_g, wrong_y = self.halves
        return min(right_g, right_y, -wrong_g, -wrong_y)

    @property
    def mixed(self) -> float:
        """Mean |V(g') + V(y)| and |V(g) + V(y')|: one half right, the other wrong."""
        sums = rearrange(self.action, "j y g -> j y g 1") + self.value[:, :, None]
        right_g = rearrange(self.fiber, "j y g -> j y g 1")
        one_right = right_g ^ self.own[:, :, None]
        return float(sums[one_right.expand_as(sums)].abs().mean())

    @property
    def matched(self) -> float:
        """Mean V(g) + V(y) of the right halves."""
        return self.halves[0] + self.halves[1]


def features(model: TheoryModel, course: Course, *, shift: int = 0) -> Features:
    """The features of a model; `shift` reads another class's fibers (a control)."""
    neurons, table = model.block.value, table_of(course.action)
    classes = torch.arange(table.shape[1])
    fiber = rearrange(table, "g y -> 1 y g") == rearrange(classes, "j -> j 1 1")
    actions = rearrange(neurons.W2.detach(), "g j r -> j r g") / neurons.clip
    values = rearrange(neurons.W5.detach(), "y j r -> j r y") / neurons.clip
    by_action = einsum(actions, fiber.float(), "j r g, j y g -> j y r")
    response = by_action / fiber.sum(-1, keepdim=True)
    response = response + rearrange(values, "j r y -> j y r")
    best = response.argmax(-1)
    row = classes[:, None]
    read = fiber.roll(shift, 0)
    return Features(actions[row, best], values[row, best], read)


def observe(context: Context) -> dict[str, Observed]:
    """The features of every trained FFN."""
    if not context.config.theory_groups:
        return {}
    theory = Theory(context)
    simple, other = theory.course("simple"), theory.course("other")
    found: dict[str, Observed] = {}
    for text in context.config.theory_groups:
        course = theory.courses[text]
        models = theory.ffns(course)
        found[f"lego.features.signs.{course.action.slug.lower()}"] = Observed.of(
            [features(m, course).signs for m in models],
            [features(m, course, shift=1).signs for m in models],
        )
    if simple:
        found |= _cancelling(theory, simple)
    if simple and other:
        found["lego.features.equal"] = Observed.of(
            ratios(theory, simple), ratios(theory, other)
        )
        for course in theory.unbalanced:
            found |= _unbalanced(theory, course, simple)
    return found | _conserved(theory)


def _cancelling(theory: Theory, course: Course) -> dict[str, Observed]:
    models = theory.ffns(course)
    read = [features(model, course) for model in models]
    return {
        "lego.features.mixed": Observed.of(
            [f.mixed for f in read], [f.matched for f in read]
        ),
        "lego.features.single": Observed.of(
            [strongest_share(model, course) for model in models],
            [strongest_share(m, course) for m in theory.ffns(course, "start")],
        ),
    }


def _unbalanced(theory: Theory, course: Course, simple: Course) -> dict[str, Observed]:
    """V(g) / V(y) against C_alpha, at the end and as it grows."""
    name, limit = course.action.slug.lower(), feature_ratio(course.action)
    end, early = ratios(theory, course), ratios(theory, course, "early")
    flat = zip(ratios(theory, simple), ratios(theory, simple, "early"), strict=True)
    return {
        f"lego.features.ratio.{name}": Observed.of(
            [value / limit for value in end],
            [value / limit for value in ratios(theory, simple)],
        ),
        f"lego.features.rising.{name}": Observed.of(
            [late - before for late, before in zip(end, early, strict=True)],
            [late - before for late, before in flat],
        ),
    }


def _conserved(theory: Theory) -> dict[str, Observed]:
    """Sums that gradient descent conserves, and Adam does not."""
    if not theory.config.feature_groups:
        return {}
    course = theory.courses[theory.config.feature_groups[0]]
    return {
        "lego.features.conserved": Observed.of(
            *(
                [drift(*pair) for pair in zip(*theory.only(arm), strict=True)]
                for arm in (course.feature_arm, course.adam_arm)
            )
        )
    }


def ratios(theory: Theory, course: Course, when: str = "end") -> list[float]:
    """V(g) / V(y) of every seed."""
    return [features(model, course).ratio for model in theory.ffns(course, when)]


def drift(before: TheoryModel, after: TheoryModel) -> float:
    """Change of sum_g V(g) - sum_y V(y), the largest over value neurons.

    Every sentence moves its action's and its value's weight alike, so gradient descent
    on any data conserves it, neuron by neuron.
    """
    first, last = (
        model.block.value.W2.double().sum(0) - model.block.value.W5.double().sum(0)
        for model in (before, after)
    )
    return float((last - first).abs().max())


def strongest_share(model: TheoryModel, course: Course) -> float:
    """Mean share of the right logit that its strongest neuron gives, in (0, 1].

    1 if one neuron serves each pair of an action and a value (Theorem B.1).
    """
    neurons, table = model.block.value, table_of(course.action)
    pairs = (neurons.W2.detach()[:, None] + neurons.W5.detach()) / 2 + neurons.bias
    right = table[..., None, None].expand(*table.shape, 1, neurons.shape[1])
    active = smooth_relu(pairs).gather(2, right)[:, :, 0]
    return float((active.amax(-1) / active.sum(-1)).mean())

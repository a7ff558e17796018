"""What the theory's own models and algorithms do: attention over training, features.

V(g) and V(y) are a value neuron's weights on the action slot and on the value slot. The
neuron of class j and value y is the one that responds most to y together with the
actions that send y to j.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from einops import einsum, rearrange
from jaxtyping import Bool, Float
from torch import Tensor

from circuits.lab import once
from trained.lego.action import Action, action
from trained.lego.task import table_of
from trained.lego.theory import TheoryModel, feature_ratio
from trained.lego.theory_arms import Course

from .models import LegoModels, Specimen

WINDOW = 3
"""Records over which a noisy loss is averaged."""

When = Literal["early", "end"]


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
    def matched(self) -> float:
        """Mean V(g) + V(y) of the right halves."""
        return self.halves[0] + self.halves[1]


class TheoryLab(LegoModels):
    """Quantities of the theory's models, one value per seed."""

    def solves(self, several: list[Specimen], length: int) -> list[float]:
        """Share of sentences of a length that are right throughout."""
        count = self.config.test.n_sentences
        return [s.marks(s.sentences(length, count)).all for s in several]

    def gap(self, several: list[Specimen]) -> list[float]:
        """Delta: |attention on the predicate - on the answer|, mean."""
        return [s.gap(self.short(s)) for s in several]

    def doubled(self, group: str) -> list[float]:
        """Share right throughout at 2L after the stage of L = 2, 4, .., the least."""
        rounds = Course(self.config, group).rounds
        stages = {2: "second-step", **{length: f"round-{length}" for length in rounds}}
        found = [
            self.solves(self.theory(group, stage), 2 * length)
            for length, stage in stages.items()
        ]
        return [min(seed) for seed in zip(*found, strict=True)]

    def history(self, group: str, stage: str) -> dict[str, Tensor]:
        """The metrics recorded in a stage, `step` counted from its start.

        An untrained model's are those before the first step of all.
        """
        course = Course(self.config, group)
        if not self.trained:
            first = self.run.metrics(self.arm(course.arm.name).name)
            return {k: v[..., :1] for k, v in first.items()}
        metrics, ends = self.metrics(course.arm.name), course.milestones
        length = next(s.steps for s in course.stages if s.name == stage)
        step = metrics["step"] - (ends[stage] - length)
        inside = (step >= 0) & (step < length)
        found = {k: v[:, inside] for k, v in metrics.items() if k != "step"}
        return {**found, "step": step[inside]}

    def mean_sharpness(self, group: str, stage: str) -> Float[Tensor, "seed record"]:
        """K = e^alpha + e^beta over a stage.

        alpha and beta are the mean diagonals of Q43 and Q44 above the other entries.
        """
        history = self.history(group, stage)
        alpha, beta = (
            history[f"diagonal{block}"] - history[f"rest{block}"]
            for block in ("Q43", "Q44")
        )
        return alpha.exp() + beta.exp()

    def matched_sharpness(self, group: str) -> list[float]:
        """K in Algorithm 1 once the loss is near the action's own floor, or at the end.

        Near: within Algorithm 2's rule.
        """
        loss = smoothed(self.history(group, "attention")["loss"], WINDOW)
        reached = loss <= Course(self.config, group).rule
        reached[:, -1] = True
        first = reached.int().argmax(1, keepdim=True)
        found = self.mean_sharpness(group, "attention").gather(1, first)[:, 0]
        return list(found.tolist())

    def longer_growth(self, group: str, stage: str) -> list[float]:
        """Growth of K in as many steps at L = 2 as each seed took in a round."""
        course = Course(self.config, group)
        names = [s.name for s in course.stages]
        most = course.stages[names.index(stage)].steps
        stopped = self.run.record(self.arm(course.arm.name).name)["stopped_at"]
        taken = [row[names.index(stage)] for row in stopped]
        step = self.history(group, "longer")["step"]
        found = []
        for seed, steps in zip(
            self.mean_sharpness(group, "longer"), taken, strict=True
        ):
            enough = step >= (most if steps < 0 else steps)
            enough[-1] = True
            found.append(float(seed[enough.int().argmax()] / seed[0]))
        return found

    gentle = "gentle"
    """The stage whose phases are read."""

    def second_only(self) -> "TheoryLab":
        """A null: phases of training on the second step alone."""
        return self.derived("second", lambda: self.other(gentle="gentle-second"))

    def lead(self, group: str) -> Float[Tensor, "seed record"]:
        """Mean diagonal of Q43 minus that of Q44 over training without caps."""
        history = self.history(group, self.gentle)
        return history["diagonalQ43"] - history["diagonalQ44"]

    def peak_lead(self, group: str) -> list[float]:
        """The largest lead of Q43."""
        return list(self.lead(group).amax(1).tolist())

    def left_lead(self, group: str) -> list[float]:
        """What is left of it at the end, as a share."""
        lead = self.lead(group)
        return list((lead[:, -1] / lead.amax(1)).tolist())

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

    def mixed(self, group: str, *, shift: int = 0) -> list[float]:
        """Halves of which one is right, the other wrong: how far from cancelling."""
        return [f.mixed for f in self.features(group, shift=shift)]

    def matched(self, group: str, *, shift: int = 0) -> list[float]:
        """V(g) + V(y) of right halves."""
        return [f.matched for f in self.features(group, shift=shift)]

    def ratio(self, group: str) -> list[float]:
        """V(g) / V(y) of right halves."""
        return [f.ratio for f in self.features(group)]

    def uneven(self, group: str) -> list[float]:
        """How far a neuron's V(g) / V(y) is from 1, for a simply transitive action."""
        return [f.uneven for f in self.features(group)]

    def ratio_growth(self, group: str) -> list[float]:
        """How much it grew in the last three quarters of training, over C_alpha."""
        early, limit = self.features(group, "early"), feature_ratio(action(group))
        pairs = zip(self.ratio(group), early, strict=True)
        return [(late - before.ratio) / limit for late, before in pairs]

    def relative_ratio(self, group: str, of: str) -> list[float]:
        """V(g) / V(y) of one action in units of another's C_alpha."""
        return [ratio / feature_ratio(action(of)) for ratio in self.ratio(group)]

    def adam_ratio(self, group: str) -> list[float]:
        """The same in units of its own, trained with Adam."""
        models = self.models(Course(self.config, group).adam_arm.name)
        limit = feature_ratio(action(group))
        return [features(model, action(group)).ratio / limit for model in models]

    def strongest(self, group: str) -> list[float]:
        """Share of the right logit that its strongest neuron gives."""
        return [strongest_share(model, action(group)) for model in self.ffns(group)]


def smoothed(loss: Float[Tensor, "seed record"], window: int) -> Tensor:
    """The training loss, each record averaged with the ones just before it."""
    early = loss[:, :1].expand(-1, window - 1)
    return torch.cat([early, loss], 1).unfold(1, window, 1).mean(-1)


def features(model: TheoryModel, act: Action, *, shift: int = 0) -> Features:
    """The features of a model; `shift` reads another class's fibers (a null)."""
    neurons, table = model.block.value, table_of(act)
    classes = torch.arange(table.shape[1])
    fiber = rearrange(table, "g y -> 1 y g") == rearrange(classes, "j -> j 1 1")
    actions = rearrange(neurons.W2.detach().cpu(), "g j r -> j r g") / neurons.clip
    values = rearrange(neurons.W5.detach().cpu(), "y j r -> j r y") / neurons.clip
    by_action = einsum(actions, fiber.float(), "j r g, j y g -> j y r")
    response = by_action / fiber.sum(-1, keepdim=True)
    response = response + rearrange(values, "j r y -> j y r")
    best = response.argmax(-1)
    row = classes[:, None]
    return Features(actions[row, best], values[row, best], fiber.roll(shift, 0))


def strongest_share(model: TheoryModel, act: Action) -> float:
    """Mean share of the right logit that its strongest neuron gives, in (0, 1].

    1 if one neuron serves each pair of an action and a value (Theorem B.1).
    """
    neurons, table = model.block.value, table_of(act)
    pairs = (neurons.W2.detach()[:, None] + neurons.W5.detach()) / 2 + neurons.bias
    right = table[..., None, None].expand(*table.shape, 1, neurons.shape[1])
    active = neurons.relu(pairs).cpu().gather(2, right)[:, :, 0]
    return float((active.amax(-1) / active.sum(-1)).mean())

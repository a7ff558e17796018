"""What the theory's own models and algorithms do: attention over training, rounds."""

from dataclasses import replace
from itertools import compress

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.interventions.weights import edited
from probes.attention import attention_mass
from trained.lego.action import action
from trained.lego.stages import LONGER, SECOND_STEP, round_name
from trained.lego.theory_arms import FEATURES, Course, Kind

from .features import FeatureLab
from .models import Specimen, targets


class TheoryLab(FeatureLab):
    """Quantities of the theory's models, one value per seed."""

    def solves(self, several: list[Specimen], length: int) -> list[float]:
        """Share of sentences of a length that are right throughout."""
        count = self.config.test.n_sentences
        return [s.marks(s.sentences(length, count)).all for s in several]

    def gap(self, several: list[Specimen]) -> list[float]:
        """Delta: |attention on the predicate - on the answer|, mean."""
        return [s.gap(self.short(s)) for s in several]

    def algorithms_end(self, group: str) -> list[Specimen]:
        """The models that the action's own algorithm has trained at L = 2."""
        simple = action(group).is_simply_transitive
        return self.theory(group, "attention" if simple else SECOND_STEP)

    def solves_two(self, group: str) -> list[float]:
        """Share of sentences of length 2 that are right throughout."""
        return self._two(self.algorithms_end(group))

    def _two(self, several: list[Specimen]) -> list[float]:
        count = max(self.config.test.n_short, self.config.test.n_sentences)
        return [s.marks(s.sentences(2, count)).all for s in several]

    def with_features_of(self, kind: str) -> "TheoryLab":
        """A null: trained Q over another FFN, `initial` or trained on `shuffled`."""
        return self.derived(f"ffn {kind}", lambda: self.other(ffn=kind))

    ffn = ""
    """Whose FFN the models have; theirs by default."""

    def theory(self, group: str, stage: str) -> list[Specimen]:
        """A group's theory models at the end of a stage."""
        course = Course(self.config, group)
        found = self._specimens(group, course.name, course.milestones[stage])
        return [self._swapped(s, course) for s in found] if self.ffn else found

    def _swapped(self, specimen: Specimen, course: Course) -> Specimen:
        if self.ffn == "initial":
            donor = course.build(specimen.seed)
        else:
            donor = self.model(f"{course.feature_arm.name}-shuffled", specimen.seed)
        weights = dict(donor.named_parameters())
        # Only these are trained (Assumption B.1).
        changes = {n: (lambda _old, n=n: weights[n].detach().clone()) for n in FEATURES}
        return replace(specimen, model=edited(specimen.model, changes))

    def course(
        self, group: str, *, clip: float | None = None, kind: Kind = ""
    ) -> Course:
        """A course of Algorithm 2; the main one for the config's own clip."""
        own = None if clip == self.config.theory.clip else clip
        return Course(self.config, group, clip=own, kind=kind)

    def stages(self, course: Course) -> dict[int, list[Specimen]]:
        """Length -> the models after its stage of Algorithm 2."""
        names = {2: SECOND_STEP, **{n: round_name(n) for n in course.rounds}}
        ends = course.milestones
        return {
            n: self._specimens(course.text, course.name, ends[name])
            for n, name in names.items()
        }

    def doubled(self, group: str, *, kind: Kind = "") -> list[float]:
        """Share right throughout at 2L after the stage of L = 2, 4, .., the least."""
        stages = self.stages(self.course(group, kind=kind))
        found = [self.solves(several, 2 * n) for n, several in stages.items()]
        return [min(seed) for seed in zip(*found, strict=True)]

    def last_stage(self, course: Course) -> list[Specimen]:
        """The models after the last round."""
        last = round_name(course.rounds[-1])
        return self._specimens(course.text, course.name, course.milestones[last])

    def ruled(self, group: str, clip: float | None = None) -> list[float]:
        """Share of the stages of Algorithm 2 that ended as the loss met the rule."""
        course = self.course(group, clip=clip)
        first = [s.name for s in course.stages].index(SECOND_STEP)
        ends = [s.name != LONGER for s in course.stages[first:]]
        rows = self.run.record(self.arm(course.name).name)["stopped_at"]
        found = [list(compress(row[first:], ends)) for row in rows]
        return [sum(step >= 0 for step in row) / len(row) for row in found]

    def worst_mass(
        self, group: str, clip: float | None = None, *, kind: Kind = ""
    ) -> list[float]:
        """Mass on both targets at the worst step of the worst stage, at its length."""
        stages = self.stages(self.course(group, clip=clip, kind=kind))
        found = [
            [self._worst_mass(s, length) for s in several]
            for length, several in stages.items()
        ]
        return [min(seed) for seed in zip(*found, strict=True)]

    def _worst_mass(self, specimen: Specimen, length: int) -> float:
        sentences = specimen.sentences(length, self.config.test.n_short)
        mass = attention_mass(specimen.rows(sentences), targets(sentences))
        return float(mass.mean(0).min())

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

    def longer_growth(self, group: str, stage: str) -> list[float]:
        """Growth of K in as many steps at L = 2 as each seed took in a round."""
        course = Course(self.config, group)
        names = [s.name for s in course.stages]
        most = course.stages[names.index(stage)].steps
        stopped = self.run.record(self.arm(course.arm.name).name)["stopped_at"]
        taken = [row[names.index(stage)] for row in stopped]
        step = self.history(group, LONGER)["step"]
        found = []
        for seed, steps in zip(self.mean_sharpness(group, LONGER), taken, strict=True):
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

    def early_lead(self, group: str) -> list[float]:
        """The largest lead of Q43 before Q44 has half its end value."""
        own = self.history(group, self.gentle)["diagonalQ44"]
        early = own < own[:, -1:] / 2
        lead = self.lead(group).masked_fill(~early, -torch.inf).amax(1)
        return list(torch.where(early.any(1), lead, 0.0).tolist())

    def left_lead(self, group: str) -> list[float]:
        """What is left of it at the end, as a share; undefined without a lead."""
        lead = self.lead(group)
        peak = lead.amax(1)
        return list(torch.where(peak > 0, lead[:, -1] / peak, torch.nan).tolist())

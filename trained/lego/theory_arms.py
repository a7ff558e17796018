"""Algorithms 1 and 2 of the paper as the stages of one arm per group action.

Stage 1 fits W on one-step chains under uniform attention. Algorithm 1 then trains Q on
both steps of L = 2. Algorithm 2, for actions that are not simply transitive, shares
stage 1, so it goes on in the same arm with Q set back to zero: the second step of
L = 2 until the loss rule holds, then for L = 4, 8, .. the second step of sentences
that a frozen copy of the model has answered greedily, each until the rule holds again.
A control between the two goes on at L = 2 instead and is then undone.

All training is plain gradient descent. The paper's rate is 1/poly(d) and not given;
ours is large and per variable or pair, since each row of W or Q sees only its share,
with caps on single steps so that large early gradients do no harm.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from math import ceil, log2
from typing import Literal

from trained.arm import Arm, Stage, adam, gradient_descent, shuffled
from trained.seeding import generator

from .action import Action, action
from .config import Config, Theory, first_of_kind
from .stages import HALVED, LONGER, LOOSE, RULE, SECOND_STEP, round_name
from .task import (
    Sentences,
    Vocabulary,
    draw_sentences,
    shuffle,
    table_of,
)
from .theory import TheoryModel, loss_floor
from .theory_losses import (
    cap_entries,
    cap_step,
    every_pair,
    every_variable,
    freeze_copy,
    mean_entries,
    pair_loss,
    reset,
    return_to_copy,
    self_labelled_loss,
    value_loss,
    variable_loss,
)

SECOND = slice(1, 2)
FEWEST, DEAR = 10, 10
"""Least variables of a model of the grid; values beyond which its FFN is dear."""
ATTENTION = ("blocks.0.attn.*",)
FEATURES = ("blocks.0.value.W2", "blocks.0.value.W5")
"""Slots 1, 3 and 4 of W_5 stay at their initial values (Assumption B.1)."""

PROOF = 6.02 * 1.005
"""Lemma F.16 (b): a stage ends at a loss of d^-(C_B - this)."""

Kind = Literal["", "halved", "blind"]
"""Algorithm 2 alone, with half the cap on a step of Q, or with an annotator whose Q is
zero in its only round."""


@dataclass(frozen=True)
class Course:
    """How the theory model of one action is trained.

    Attributes:
        config: the study's.
        text: the action.
        d: tokens in all, for a model of the grid; None: as many as the main model has.
        clip: another C_B, for Algorithm 2 alone.
        kind: see `Kind`.
    """

    config: Config
    text: str
    d: int | None = None
    clip: float | None = None
    kind: Kind = ""

    @property
    def action(self) -> Action:
        """The action."""
        return action(self.text)

    @property
    def theory(self) -> Theory:
        """The sizes of this model."""
        own = self.config.theory
        return replace(own, clip=own.clip if self.clip is None else self.clip)

    @property
    def n_variables(self) -> int:
        """|X|; what d leaves beside actions, values and the blank."""
        if self.d is None:
            return self.config.theory.n_variables
        return self.d - self.action.n_actions - self.action.n_values - 1

    @property
    def words(self) -> Vocabulary:
        """The vocabulary."""
        return Vocabulary.of(self.action, self.n_variables)

    @property
    def rounds(self) -> tuple[int, ...]:
        """The lengths of the self-training rounds, 4, 8, ..; none if not needed.

        A model of the grid goes on until L >= |X| / 2 (Corollary 5.1).
        """
        if self.action.is_simply_transitive:
            return ()
        count = self.config.theory.attention.rounds
        if self.d is not None:
            count = max(0, ceil(log2(self.n_variables / 2)) - 1)
        count = min(count, 1) if self.kind == "blind" else count
        return tuple(2**k for k in range(2, 2 + count))

    @property
    def name(self) -> str:
        """The arm's."""
        parts = ["theory", self.action.slug]
        parts += [] if self.d is None else [f"d{self.d}"]
        parts += [] if self.clip is None else [f"clip{self.clip:g}"]
        return "-".join([*parts, self.kind] if self.kind else parts)

    @property
    def is_main(self) -> bool:
        """Whether it is the model of both algorithms at the main size."""
        return self.d is None and self.clip is None and not self.kind

    def build(self, seed: int) -> TheoryModel:
        """The model before training."""
        source = generator(seed, "lego", "theory", self.text)
        return TheoryModel(self.words, self.theory, generator=source)

    @property
    def early(self) -> int:
        """A quarter of the features' training."""
        return self.config.theory.features.value_steps // 4

    @property
    def rule(self) -> float:
        """The loss at which a stage ends, d^-E1.

        Near the least that the main clip allows, or that of Lemma F.16 if lower.
        """
        d, own = self.words.size, self.config.theory
        proof = d ** (PROOF - self.theory.clip)
        return own.attention.rule * min(loss_floor(d, own.clip), proof)

    @property
    def milestones(self) -> dict[str, int]:
        """The step at which each stage has ended."""
        ends = accumulate(stage.steps for stage in self.stages)
        return dict(zip((stage.name for stage in self.stages), ends, strict=True))

    @property
    def arm(self) -> Arm:
        """All stages; weights are kept where attention has been trained."""
        ends = [
            step
            for name, step in self.milestones.items()
            if name not in ("value", "variable", "gentle", "gentle-second")
        ]
        return Arm(
            name=self.name,
            build=self.build,
            stages=self.stages,
            measure=mean_entries,
            held_out=lambda seed: self.sentences(1, "held out", 2, seed, 0),
            record_every=self.config.theory.record_every if self.is_main else 100,
            save_steps=(self.early, self.weak, *ends) if self.is_main else tuple(ends),
            # A round's annotator changes though no stage trains it.
            stores="everything" if self.rounds else "trained",
            max_seeds=self.config.theory.seeds or None,
        )

    @property
    def weak(self) -> int:
        """A step of the main model at which attention is far from sharp."""
        own = self.config.theory
        before = own.features.value_steps + own.features.variable_steps
        return before + own.attention.weak_steps

    @property
    def feature_arm(self) -> Arm:
        """Only the value's features, kept often enough to see which come first."""
        arm = self._only("features", self._value)
        pause = max(1, arm.steps // self.config.theory.features.kept)
        steps = {self.early, *range(0, arm.steps, pause)}
        return replace(arm, save_steps=tuple(sorted(steps)))

    @property
    def adam_arm(self) -> Arm:
        """The features trained with Adam, for which no theorem holds."""
        rate = self.config.theory.features.adam_rate
        free = replace(self._value, optimiser=adam(rate), edit_gradients=None)
        return self._only("adam", replace(free, steps=free.steps // 4))

    def _only(self, kind: str, stage: Stage) -> Arm:
        return Arm(
            name=f"theory-{kind}-{self.action.slug}",
            build=self.build,
            stages=(stage,),
            record_every=max(1, stage.steps // 10),
            stores="trained",
            max_seeds=self.config.theory.seeds or None,
        )

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Stage 1, Algorithm 1's attention, then what the kind of action asks for."""
        own = self.config.theory.attention
        found = [self._value, self._variable]
        if self.clip is not None or self.kind:
            return (*found, *self._algorithm2)
        if self.d is not None:
            return (*found, *self._until_the_rule, *self._algorithm2)
        found.append(self._attention("attention", own.steps))
        simple = self.action.is_simply_transitive
        return (*found, *(self._gentle if simple else self._algorithm2))

    @property
    def _until_the_rule(self) -> list[Stage]:
        """Algorithm 1 to a loss that knows no d, on to the rule; with half the cap."""
        own = self.config.theory.attention
        stage = self._attention(RULE, own.rule_steps)
        loose = replace(stage, name=LOOSE, stop_below=own.loose)
        rule = replace(stage, stop_below=self.rule)
        if self.text not in _compared(self.config.theory):
            return [loose, rule]
        again = self._attention(HALVED, 2 * own.rule_steps, share=0.5)
        return [loose, rule, replace(again, prepare=reset, stop_below=self.rule)]

    @property
    def _gentle(self) -> list[Stage]:
        """Algorithm 1 without caps, so that phases show; then on step 2 only."""
        own = self.config.theory.attention
        capped = self._attention("gentle", own.gentle_steps)
        rate = own.gentle * capped.optimiser.lr
        slow = replace(capped, optimiser=gradient_descent(rate), prepare=reset)
        both = replace(slow, edit_gradients=None)
        second = partial(value_loss, steps=SECOND)
        return [both, replace(both, name="gentle-second", loss=second)]

    @property
    def _algorithm2(self) -> list[Stage]:
        """Stage 1.2, the control that stays at L = 2, and the self-training rounds."""
        if self.action.is_simply_transitive:
            return []
        rule, own = self.rule, self.config.theory.attention
        share = 0.5 if self.kind == "halved" else 1.0
        second, slow = partial(value_loss, steps=SECOND), round(1 / share)
        first = self._attention(SECOND_STEP, slow * own.rule_steps, share=share)
        found = [replace(first, loss=second, prepare=reset, stop_below=rule)]
        longer = self._attention(LONGER, len(self.rounds) * own.longer_steps)
        if self.clip is None and not self.kind:
            found.append(replace(longer, loss=second, prepare=freeze_copy))
        for length in self.rounds:
            name, steps = round_name(length), slow * own.round_steps
            stage = self._attention(name, steps, length, share=share)
            prepare = return_to_copy if found[-1].name == LONGER else freeze_copy
            labelled = replace(stage, loss=self_labelled_loss, stop_below=rule)
            # Without a copy the annotator's tables are zero, as they were built.
            blind = self.kind == "blind"
            found.append(replace(labelled, prepare=None if blind else prepare))
        return found

    @property
    def _variable(self) -> Stage:
        own = self.config.theory.features
        rate = own.variable_rate * self.n_variables
        return Stage(
            name="variable",
            steps=own.variable_steps,
            optimiser=gradient_descent(rate),
            loss=variable_loss,
            data=partial(self._draw, every_variable, "variable"),
            draw="each step",
            trainable=("blocks.0.variable.*",),
            edit_gradients=partial(cap_entries, largest=own.variable_cap / rate),
        )

    @property
    def _value(self) -> Stage:
        own = self.config.theory.features
        # A higher clip is reached at a lower loss, whose gradient is smaller.
        higher = self.words.size ** (self.theory.clip - self.config.theory.clip)
        rate = own.value_rate * self.action.n_actions * self.action.n_values * higher
        return Stage(
            name="value",
            steps=own.value_steps if self.is_main else own.grid_steps,
            optimiser=gradient_descent(rate),
            loss=pair_loss,
            # The expectation is over variables too, whose weights stay as they were.
            data=partial(self._draw, every_pair, "value"),
            draw="each step",
            trainable=FEATURES,
            edit_gradients=partial(cap_step, largest=own.value_cap / rate),
        )

    def _attention(
        self, name: str, steps: int, length: int = 2, *, share: float = 1.0
    ) -> Stage:
        """Descent of Q, no step of an entry above `share` of the cap."""
        own = self.config.theory.attention
        rate = own.rate * self.n_variables
        count = max(own.batch, own.per_variable * self.n_variables)
        count = min(count, max(1, own.most_clauses // length))
        return Stage(
            name=name,
            steps=steps,
            optimiser=gradient_descent(rate),
            loss=value_loss,
            data=partial(self.sentences, count, name, length),
            draw="each step",
            trainable=ATTENTION,
            edit_gradients=partial(cap_entries, largest=share * own.cap / rate),
        )

    def sentences(
        self, count: int, name: str, length: int, seed: int, step: int
    ) -> Sentences:
        """Sentences for a stage's step."""
        draw = partial(draw_sentences, count=count, length=length)
        return self._draw(draw, name, seed, step)

    def _draw(
        self, draw: Callable[..., Sentences], name: str, seed: int, step: int
    ) -> Sentences:
        return draw(
            table_of(self.action),
            n_variables=self.n_variables,
            generator=generator(seed, "lego", "theory", self.text, name, step),
        )


def grid(config: Config, text: str) -> tuple[int, ...]:
    """The d of the grid that leave an action enough variables and are not too dear."""
    own, dear = config.theory, action(text).n_values > DEAR
    sizes = (Course(config, text, d).n_variables for d in own.grid)
    fit = [d for d, size in zip(own.grid, sizes, strict=True) if size >= FEWEST]
    return tuple(d for d in fit if not dear or d <= own.grid_large)


def _compared(theory: Theory) -> tuple[str | None, ...]:
    """The two actions of the grid whose verdicts must survive half the cap."""
    return tuple(first_of_kind(theory.grid_groups, simply=s) for s in (True, False))


def theory_arms(config: Config) -> tuple[Arm, ...]:
    """What the theory's claims are measured on; the dearest, of large d, last."""
    theory = config.theory
    if not theory.groups:
        return ()
    courses = [Course(config, text) for text in theory.groups]
    other = first_of_kind(theory.groups, simply=False)
    if other:
        courses += [Course(config, other, clip=clip) for clip in theory.clips]
        courses += [Course(config, other, kind=kind) for kind in ("halved", "blind")]
    scaled = first_of_kind(theory.grid_groups, simply=False)
    if scaled and grid(config, scaled):
        courses.append(Course(config, scaled, grid(config, scaled)[0], kind="halved"))
    courses += [
        Course(config, text, d)
        for d in theory.grid
        for text in theory.grid_groups
        if d in grid(config, text)
    ]
    features = [Course(config, text) for text in theory.feature_groups]
    simple = first_of_kind(theory.groups, simply=True)
    kinds = dict.fromkeys(text for text in (simple, other) if text)
    alone = {text: Course(config, text).feature_arm for text in kinds}
    found = [arm for text, arm in alone.items() if text == simple]
    found += [shuffled(arm, shuffle) for arm in alone.values()]
    found += [course.feature_arm for course in features]
    found += [course.adam_arm for course in features[:1]]
    return (*found, *(course.arm for course in courses))

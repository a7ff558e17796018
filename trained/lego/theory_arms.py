"""Algorithms 1 and 2 of the paper as the stages of one arm per group action.

Stage 1 fits W on one-step chains under uniform attention. Algorithm 1 then trains Q on
both steps of L = 2. Algorithm 2, for actions that are not simply transitive, shares
stage 1, so it goes on in the same arm with Q set back to zero: the second step of
L = 2 until the loss rule holds, then for L = 4, 8, .. the second step of sentences
that a frozen copy of the model has answered greedily, each until the rule holds again.
A control between the two goes on at L = 2 instead and is then undone.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate

from torch import Tensor

from trained.arm import Arm, Stage, adam, gradient_descent
from trained.seeding import generator

from .action import Action, action
from .config import Config
from .reduced import ReducedModel, reduced_loss
from .sentences import Sentences, Vocabulary, draw_sentences, table_of
from .theory_model import TheoryModel, loss_floor
from .theory_training import (
    cap_entries,
    cap_step,
    every_pair,
    every_variable,
    pair_loss,
    self_labelled_loss,
    value_loss,
    variable_loss,
)

VARIABLE_STEPS, VARIABLE_RATE, VARIABLE_CAP = 100, 170.0, 0.2
"""Rates are per variable, pair or query: each row of W or Q sees only its share."""
VALUE_RATE, VALUE_CAP = 200.0, 1.0
ATTENTION_RATE, ATTENTION_CAP = 30.0, 0.05
REDUCED_BATCH = 64
"""Two numbers need fewer sentences than two tables."""
RULE = 1.15
"""Algorithm 2 ends a stage once the loss is below this multiple of the clip's floor:
d^-E1 with an E1 just below the largest that the clip allows."""
RULE_STEPS, ROUND_STEPS = 600, 200
"""Most steps of Algorithm 2 at L = 2, and of each later round."""
GENTLE, GENTLE_STEPS = 0.05, 100
"""Share of the rate at which no step is capped, so that phases can be seen."""
ADAM_RATE = 0.02

SECOND = slice(1, 2)
ATTENTION = ("blocks.0.attn.*",)
FEATURES = ("blocks.0.value.W2", "blocks.0.value.W5")
"""Slots 1, 3 and 4 of W_5 stay at their initial values (Assumption B.1)."""


@dataclass(frozen=True)
class Course:
    """How the theory model of one action is trained."""

    config: Config
    text: str

    @property
    def action(self) -> Action:
        """The action."""
        return action(self.text)

    @property
    def words(self) -> Vocabulary:
        """The vocabulary."""
        return Vocabulary.of(self.action, self.config.theory_variables)

    @property
    def rounds(self) -> tuple[int, ...]:
        """The lengths of the self-training rounds, 4, 8, ..; none if not needed."""
        if self.action.is_simply_transitive:
            return ()
        return tuple(2**k for k in range(2, 2 + self.config.theory_rounds))

    def build(self, seed: int) -> TheoryModel:
        """The model before training."""
        source = generator(seed, "lego", "theory", self.text)
        return TheoryModel(self.words, generator=source)

    @property
    def milestones(self) -> dict[str, int]:
        """The step at which each stage has ended."""
        ends = accumulate(stage.steps for stage in self.stages)
        return dict(zip((stage.name for stage in self.stages), ends, strict=True))

    @property
    def arm(self) -> Arm:
        """Both algorithms."""
        ends = self.milestones
        return Arm(
            name=f"theory-{self.action.slug}",
            build=self.build,
            stages=self.stages,
            measure=mean_entries,
            held_out=lambda seed: self.sentences(1, "held out", 2, seed, 0),
            record_every=10,
            save_steps=(0, self.config.theory_value_steps // 4, *ends.values()),
        )

    def reduced_name(self, ratio: float | None = None) -> str:
        """The arm of the reduced model, with its own C or another."""
        name = f"theory-reduced-{self.action.slug}"
        return name if ratio is None else f"{name}-balanced"

    @property
    def feature_arm(self) -> Arm:
        """Only the value's features."""
        return self._only("features", self._value)

    @property
    def adam_arm(self) -> Arm:
        """The features trained with Adam, which conserves nothing."""
        free = replace(self._value, optimiser=adam(ADAM_RATE), edit_gradients=None)
        return self._only("adam", replace(free, steps=free.steps // 4))

    def _only(self, kind: str, stage: Stage) -> Arm:
        return Arm(
            name=f"theory-{kind}-{self.action.slug}",
            build=self.build,
            stages=(stage,),
            record_every=max(1, stage.steps // 10),
            save_steps=(0, stage.steps // 4),
        )

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Stage 1, Algorithm 1's attention, then what the kind of action asks for."""
        attention = self._attention("attention", self.config.theory_steps)
        found = [self._value, self._variable, attention]
        if self.action.is_simply_transitive:
            gentle = self._attention("gentle", GENTLE_STEPS)
            rate = GENTLE * gentle.optimiser.lr
            slow = replace(gentle, optimiser=gradient_descent(rate), prepare=_reset)
            return (*found, replace(slow, edit_gradients=None))
        return (*found, *self._algorithm2)

    @property
    def _algorithm2(self) -> list[Stage]:
        """Stage 1.2, the control that stays at L = 2, and the self-training rounds."""
        rule = RULE * loss_floor(self.words.size)
        second = partial(value_loss, steps=SECOND)
        first = self._attention("second-step", RULE_STEPS)
        longer = self._attention("longer", ROUND_STEPS)
        found = [
            replace(first, loss=second, prepare=_reset, stop_below=rule),
            replace(longer, loss=second, prepare=_freeze_copy),
        ]
        for length in self.rounds:
            own = self._attention(f"round-{length}", ROUND_STEPS, length)
            prepare = _return_to_copy if length == self.rounds[0] else _freeze_copy
            labelled = replace(own, loss=self_labelled_loss, prepare=prepare)
            found.append(replace(labelled, stop_below=rule))
        return found

    @property
    def _variable(self) -> Stage:
        rate = VARIABLE_RATE * self.config.theory_variables
        return Stage(
            name="variable",
            steps=VARIABLE_STEPS,
            optimiser=gradient_descent(rate),
            loss=variable_loss,
            data=partial(self._draw, every_variable, "variable"),
            draw="each step",
            trainable=("blocks.0.variable.*",),
            edit_gradients=partial(cap_entries, largest=VARIABLE_CAP / rate),
        )

    @property
    def _value(self) -> Stage:
        rate = VALUE_RATE * self.action.n_actions * self.action.n_values
        return Stage(
            name="value",
            steps=self.config.theory_value_steps,
            optimiser=gradient_descent(rate),
            loss=pair_loss,
            data=lambda seed, _step: self._draw(every_pair, "value", seed, 0),
            trainable=FEATURES,
            edit_gradients=partial(cap_step, largest=VALUE_CAP / rate),
        )

    def _attention(self, name: str, steps: int, length: int = 2) -> Stage:
        rate = ATTENTION_RATE * self.config.theory_variables
        return Stage(
            name=name,
            steps=steps,
            optimiser=gradient_descent(rate),
            loss=value_loss,
            data=partial(self.sentences, self.config.theory_batch, name, length),
            draw="each step",
            trainable=ATTENTION,
            edit_gradients=partial(cap_entries, largest=ATTENTION_CAP / rate),
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
            n_variables=self.config.theory_variables,
            generator=generator(seed, "lego", "theory", self.text, name, step),
        )


def theory_arms(config: Config) -> tuple[Arm, ...]:
    """What the theory's claims are measured on; the dearest first."""
    if not config.theory_groups:
        return ()
    chains = [Course(config, text).arm for text in reversed(config.theory_groups)]
    features = [Course(config, text) for text in config.feature_groups]
    found = [*chains, *(course.feature_arm for course in features)]
    found += [course.adam_arm for course in features[:1]]
    return (*found, *reduced_arms(config))


def reduced_arms(config: Config) -> list[Arm]:
    """The reduced models; those whose features are unbalanced also with C = 1."""
    found = []
    for text in config.theory_groups:
        found.append(_reduced_arm(Course(config, text), None))
        if not action(text).is_simply_transitive:
            found.append(_reduced_arm(Course(config, text), 1.0))
    return found


def _reduced_arm(course: Course, ratio: float | None) -> Arm:
    data = partial(course.sentences, REDUCED_BATCH, "reduced", 2)
    stage = Stage(
        name="attention",
        steps=course.config.theory_steps,
        optimiser=gradient_descent(ATTENTION_RATE),
        loss=reduced_loss,
        data=data,
        draw="each step",
        edit_gradients=partial(cap_entries, largest=ATTENTION_CAP / ATTENTION_RATE),
    )
    return Arm(
        name=course.reduced_name(ratio),
        build=lambda _seed: ReducedModel(course.action, course.words.size, ratio),
        stages=(stage,),
        measure=lambda model, _data: {"alpha": model.alpha, "beta": model.beta},
        held_out=partial(data, step=0),
        record_every=5,
    )


def mean_entries(model: TheoryModel, _data: Sentences) -> dict[str, Tensor]:
    """The mean diagonal entry and the mean other entry of both blocks."""
    found: dict[str, Tensor] = {}
    for block in _BLOCKS:
        entries = getattr(model.tables, block)[0]
        diagonal, size = entries.diagonal(), len(entries)
        rest = (entries.sum() - diagonal.sum()) / (size * (size - 1))
        found |= {f"diagonal{block}": diagonal.mean(), f"rest{block}": rest}
    return found


_BLOCKS = ("Q43", "Q44")


def _reset(parameters: dict[str, Tensor]) -> None:
    """Q back to zero."""
    for block in _BLOCKS:
        parameters[f"blocks.0.attn.key_query.{block}"].zero_()


def _freeze_copy(parameters: dict[str, Tensor]) -> None:
    """The annotator becomes the current model."""
    for block in _BLOCKS:
        current = parameters[f"blocks.0.attn.key_query.{block}"]
        parameters[f"annotator.{block}"].copy_(current)


def _return_to_copy(parameters: dict[str, Tensor]) -> None:
    """The current model becomes the annotator."""
    for block in _BLOCKS:
        frozen = parameters[f"annotator.{block}"]
        parameters[f"blocks.0.attn.key_query.{block}"].copy_(frozen)

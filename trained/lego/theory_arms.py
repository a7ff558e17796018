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
from math import log

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from trained.arm import Arm, Stage, adam, gradient_descent
from trained.seeding import generator

from .action import Action, action
from .config import Config
from .task import Sentences, Vocabulary, draw_sentences, rollout, table_of
from .theory import TheoryModel, loss_floor

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
        return Vocabulary.of(self.action, self.config.theory.n_variables)

    @property
    def rounds(self) -> tuple[int, ...]:
        """The lengths of the self-training rounds, 4, 8, ..; none if not needed."""
        if self.action.is_simply_transitive:
            return ()
        return tuple(2**k for k in range(2, 2 + self.config.theory.attention.rounds))

    def build(self, seed: int) -> TheoryModel:
        """The model before training."""
        source = generator(seed, "lego", "theory", self.text)
        return TheoryModel(self.words, self.config.theory, generator=source)

    @property
    def early(self) -> int:
        """A quarter of the features' training."""
        return self.config.theory.features.value_steps // 4

    @property
    def rule(self) -> float:
        """The loss at which a stage of Algorithm 2 ends."""
        theory = self.config.theory
        return theory.attention.rule * loss_floor(self.words.size, theory.clip)

    @property
    def milestones(self) -> dict[str, int]:
        """The step at which each stage has ended."""
        ends = accumulate(stage.steps for stage in self.stages)
        return dict(zip((stage.name for stage in self.stages), ends, strict=True))

    @property
    def arm(self) -> Arm:
        """Both algorithms."""
        rounds = (f"round-{length}" for length in self.rounds)
        kept = ("attention", "second-step", "longer", *rounds)
        ends = [step for name, step in self.milestones.items() if name in kept]
        return Arm(
            name=f"theory-{self.action.slug}",
            build=self.build,
            stages=self.stages,
            measure=mean_entries,
            held_out=lambda seed: self.sentences(1, "held out", 2, seed, 0),
            record_every=10,
            save_steps=(self.early, *ends),
        )

    @property
    def feature_arm(self) -> Arm:
        """Only the value's features."""
        return self._only("features", self._value)

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
            save_steps=(stage.steps // 4,),
        )

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Stage 1, Algorithm 1's attention, then what the kind of action asks for."""
        own = self.config.theory.attention
        attention = self._attention("attention", own.steps)
        found = [self._value, self._variable, attention]
        if self.action.is_simply_transitive:
            return (*found, *self._gentle)
        return (*found, *self._algorithm2)

    @property
    def _gentle(self) -> list[Stage]:
        """Algorithm 1 without caps, so that phases show; then on step 2 only."""
        own = self.config.theory.attention
        capped = self._attention("gentle", own.gentle_steps)
        rate = own.gentle * capped.optimiser.lr
        slow = replace(capped, optimiser=gradient_descent(rate), prepare=_reset)
        both = replace(slow, edit_gradients=None)
        second = partial(value_loss, steps=SECOND)
        return [both, replace(both, name="gentle-second", loss=second)]

    @property
    def _algorithm2(self) -> list[Stage]:
        """Stage 1.2, the control that stays at L = 2, and the self-training rounds."""
        rule, own = self.rule, self.config.theory.attention
        second = partial(value_loss, steps=SECOND)
        first = self._attention("second-step", own.rule_steps)
        longer = self._attention("longer", own.round_steps)
        found = [
            replace(first, loss=second, prepare=_reset, stop_below=rule),
            replace(longer, loss=second, prepare=_freeze_copy),
        ]
        for length in self.rounds:
            stage = self._attention(f"round-{length}", own.round_steps, length)
            prepare = _return_to_copy if length == self.rounds[0] else _freeze_copy
            labelled = replace(stage, loss=self_labelled_loss, prepare=prepare)
            found.append(replace(labelled, stop_below=rule))
        return found

    @property
    def _variable(self) -> Stage:
        own = self.config.theory.features
        rate = own.variable_rate * self.config.theory.n_variables
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
        rate = own.value_rate * self.action.n_actions * self.action.n_values
        return Stage(
            name="value",
            steps=own.value_steps,
            optimiser=gradient_descent(rate),
            loss=pair_loss,
            data=lambda seed, _step: self._draw(every_pair, "value", seed, 0),
            trainable=FEATURES,
            edit_gradients=partial(cap_step, largest=own.value_cap / rate),
        )

    def _attention(self, name: str, steps: int, length: int = 2) -> Stage:
        own = self.config.theory.attention
        rate = own.rate * self.config.theory.n_variables
        return Stage(
            name=name,
            steps=steps,
            optimiser=gradient_descent(rate),
            loss=value_loss,
            data=partial(self.sentences, own.batch, name, length),
            draw="each step",
            trainable=ATTENTION,
            edit_gradients=partial(cap_entries, largest=own.cap / rate),
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
            n_variables=self.config.theory.n_variables,
            generator=generator(seed, "lego", "theory", self.text, name, step),
        )


def theory_arms(config: Config) -> tuple[Arm, ...]:
    """What the theory's claims are measured on; the dearest first."""
    theory = config.theory
    if not theory.groups:
        return ()
    chains = [Course(config, text).arm for text in reversed(theory.groups)]
    features = [Course(config, text) for text in theory.feature_groups]
    found = [*chains, *(course.feature_arm for course in features)]
    return (*found, *(course.adam_arm for course in features[:1]))


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


def every_pair(
    table: Int[Tensor, "g y"], *, n_variables: int, generator: Generator
) -> Sentences:
    """One-step sentences with every pair of an action and a value, random variables."""
    drawn = draw_sentences(
        table, table.numel(), 1, n_variables=n_variables, generator=generator
    )
    g, y = torch.meshgrid(*(torch.arange(n) for n in table.shape), indexing="ij")
    values = torch.stack([y.flatten(), table.flatten()], dim=1)
    return drawn._replace(actions=g.reshape(-1, 1), values=values)


def every_variable(
    table: Int[Tensor, "g y"], *, n_variables: int, generator: Generator
) -> Sentences:
    """One-step sentences that lead to every variable once, the rest random."""
    drawn = draw_sentences(
        table, n_variables, 1, n_variables=n_variables, generator=generator
    )
    last = torch.arange(n_variables)
    distance = torch.randint(1, n_variables, (n_variables,), generator=generator)
    first = (last + distance) % n_variables
    return drawn._replace(variables=torch.stack([first, last], dim=1))


def slot_loss(
    logits: Float[Tensor, "batch query n_classes"], target: Tensor, d: int
) -> Float[Tensor, ""]:
    """Cross-entropy over all d classes; those without a logit here have logit 0."""
    rest = torch.full_like(logits[..., 0], log(d - logits.shape[-1]))
    total = torch.logaddexp(logits.logsumexp(-1), rest)
    return (total - logits.gather(-1, target[..., None])[..., 0]).mean()


def variable_loss(model: TheoryModel, sentences: Sentences) -> Float[Tensor, ""]:
    """Loss_4 of all steps."""
    words = model.vocabulary
    logits = model.variable_logits(sentences.tokens(words))
    return slot_loss(logits, sentences.variables[..., 1:], words.size)


def value_loss(
    model: TheoryModel, sentences: Sentences, *, steps: slice = slice(None)
) -> Float[Tensor, ""]:
    """Loss_5, the mean over some steps (all by default) of one length."""
    words = model.vocabulary
    logits = model.value_logits(sentences.tokens(words), queries=steps)
    return slot_loss(logits, sentences.values[..., 1:][..., steps], words.size)


def pair_loss(model: TheoryModel, sentences: Sentences) -> Float[Tensor, ""]:
    """`value_loss` of `every_pair` under uniform attention, written out.

    Neurons receive (V(g) + V(y) + what the variables bring) / 2: no lookups to train
    through, so it costs a fifth.
    """
    neurons, (x0, x1) = model.block.value, sentences.variables.unbind(-1)
    variables = neurons.W1[x1] + neurons.W3[x0] + neurons.W4[x0]
    pairs = (neurons.W2[:, None] + neurons.W5).flatten(0, 1)
    logits = neurons.logits((pairs + variables) / 2)[:, None]
    return slot_loss(logits, sentences.values[..., 1:], model.vocabulary.size)


def self_labelled_loss(model: TheoryModel, sentences: Sentences) -> Float[Tensor, ""]:
    """Loss_5^{L,2} where the frozen copy wrote answers 1 and 2 (Definition 5.2)."""
    words, length = model.vocabulary, sentences.length
    annotator = partial(model.forward, key_query=model.annotator)
    first = rollout(annotator, sentences, words, steps=1)
    clauses = [sentences.predicates(words), first.answers(words)]
    seen = words.packed(torch.cat(clauses, dim=-2))
    read = partial(model.value_logits, seen, n_predicates=length, queries=slice(1, 2))
    label = read(key_query=model.annotator).argmax(-1)
    return slot_loss(read(), label, words.size)


def cap_step(gradients: dict[str, Tensor], *, largest: float) -> None:
    """Scale a seed's whole gradient so that no entry exceeds `largest`."""
    peaks = [g.flatten(1).abs().amax(1) for g in gradients.values()]
    factor = (largest / torch.stack(peaks).amax(0).clamp_min(1e-30)).clamp_max(1.0)
    for gradient in gradients.values():
        gradient.mul_(factor.reshape(-1, *[1] * (gradient.ndim - 1)))


def cap_entries(gradients: dict[str, Tensor], *, largest: float) -> None:
    """Clip every entry of the gradient."""
    for gradient in gradients.values():
        gradient.clamp_(-largest, largest)

"""What the lego study trains, the folded model's arms in full.

For every group one FFN and the attentions on top of it. The FFN is learned first, at
length 1 with uniform attention; then it is frozen and only the key-query tables are
trained. Everything a branch is compared with shares its FFN.
"""

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from trained.arm import Arm, Data, Draw, Optimiser, Quantity, Stage, adam, shuffled
from trained.seeding import generator

from .action import Action, action
from .config import Config
from .model import UNIFORM, Branch, Branches, FoldedModel
from .standard_arms import standard_arms
from .task import (
    Sentences,
    Vocabulary,
    clause_losses,
    draw_sentences,
    rollout,
    shuffle,
    table_of,
)
from .theory_arms import Course, theory_arms

MAIN, BASE, LONGER = "main", "base", "longer"
JUMP, JUMP_ON = "jump", "jump-on"
"""Branches: the trajectory whose budgets are kept; where self-training starts; equally
many more steps at the first length; one round at once to twice the last length."""
SAME = "same"
"""Rounds on own labels that stay at the first length."""
CORRUPT = "corrupt"
"""A first round whose labels come from uniform attention."""
MASKS = ("without", "with", "any")
"""Branches trained only on steps without a distractor, with one, on as many of any."""


def round_name(length: int) -> str:
    """The branch of a self-training round."""
    return f"self{length}"


def jump_length(config: Config) -> int | None:
    """Twice the last round's length, if there are enough variables."""
    length = 2 * max(config.self_training.lengths, default=0)
    return length if 0 < length < config.n_variables else None


def arms(config: Config) -> tuple[Arm, ...]:
    """What the study trains: the paper's experiment, its theory, and ours last.

    So a part of a run decides what the paper would miss most.
    """
    groups = sorted(config.groups, key=lambda g: -action(g).n_actions)
    found = [self_arm(config, g) for g in groups if g == config.self_group]
    found += [group_arm(config, g) for g in (*groups, *config.extra_groups)]
    theory = theory_arms(config)
    main = {Course(config, text).name for text in config.theory.groups}
    twins = [shuffled(a, shuffle) for a in theory if config.twins and a.name in main]
    return (*standard_arms(config), *theory, *twins, *found)


def group_arm(config: Config, group: str) -> Arm:
    """One group's FFN, its attention at several budgets, and other attentions."""
    plan, own = _Plan(config, action(group)), config.folded
    plan.add(Branch(MAIN), own.budgets[-1])
    if group in config.groups:
        for mask in MASKS if own.masked_steps else ():
            plan.add_masked(mask)
    saved = tuple(saved_step(config, budget) for budget in own.budgets)
    return replace(plan.arm(action(group).slug, MAIN), save_steps=saved)


def self_arm(config: Config, group: str) -> Arm:
    """One group's FFN and an attention that trains itself, with its controls."""
    plan, own = _Plan(config, action(group)), config.self_training
    rule = own.base_excess * config.folded.ffn_loss
    plan.add(Branch(BASE), own.base_steps, stop_below=rule)
    line: tuple[str, ...] = (BASE,)
    for length in own.lengths:
        plan.add_round(Branch(round_name(length), line), length, line[-1])
        line = (*line, round_name(length))
    rounds = len(own.lengths)
    plan.add_longer(Branch(LONGER, (BASE,)), rounds)
    plan.add_round(Branch(SAME, (BASE,)), config.train_length, BASE, rounds)
    plan.add_round(Branch(CORRUPT, (BASE,)), own.lengths[0], UNIFORM)
    jump = jump_length(config)
    if jump is not None:
        plan.add_round(Branch(JUMP, (BASE,)), jump, BASE)
        plan.add_round(Branch(JUMP_ON, (BASE, JUMP)), jump, BASE, rounds - 1)
    return plan.arm(self_name(group), BASE)


def self_name(group: str) -> str:
    """The arm that trains itself."""
    return f"{action(group).slug}-self"


def saved_step(config: Config, budget: int) -> int:
    """The step of an arm at which the main branch has been trained for a budget."""
    return config.folded.ffn_steps + budget


class Weighted(NamedTuple):
    """Sentences of which only some steps count."""

    sentences: Sentences
    weight: Float[Tensor, "*seed batch step"]


class _Plan:
    """Collects the branches of an arm and the stages that train them."""

    def __init__(self, config: Config, act: Action) -> None:
        self.config, self.folded, self.action = config, config.folded, act
        self.table = table_of(act)
        self.branches: list[Branch] = []
        self.stages: list[Stage] = [self._warm_up()]

    def arm(self, name: str, watched: str) -> Arm:
        """The arm, its metrics measured on one of the branches."""
        config = self.config
        branches = tuple(self.branches)
        vocabulary = Vocabulary.of(self.action, config.n_variables)

        def build(seed: int) -> Branches:
            source = generator(seed, "lego", "initial", self.action.slug)
            model = FoldedModel(
                vocabulary,
                n_heads=config.n_heads,
                d_mlp=config.folded.d_mlp,
                generator=source,
            )
            return Branches(model, branches)

        return Arm(
            name=name,
            build=build,
            stages=tuple(self.stages),
            measure=partial(watch, branch=watched),
            held_out=lambda seed: self._sentences(
                config.folded.n_record, config.train_length, seed, "record"
            ),
            record_every=config.folded.record_every,
        )

    def add(self, branch: Branch, steps: int, stop_below: float | None = None) -> None:
        """A branch trained at the first length on true answers."""
        # All that start from nothing see the same sentences.
        stage = self._true(branch.name, steps, "attention")
        self._append(branch, replace(stage, stop_below=stop_below))

    def add_longer(self, branch: Branch, rounds: int) -> None:
        """A branch that goes on at the first length, for as long as some rounds."""
        stage = self._true(branch.name, self.config.self_training.steps, branch.name)
        self._append(branch, *_restarted(stage, rounds))

    def _true(self, name: str, steps: int, path: str) -> Stage:
        return self._stage(
            name,
            steps,
            partial(next_clause_loss, branch=name),
            lambda seed, step: self._sentences(
                self.folded.batch, self.config.train_length, seed, path, step
            ),
        )

    def add_masked(self, mask: str) -> None:
        """A branch that learns from some of the steps only."""
        loss = partial(weighted_loss, branch=mask)
        data = partial(self._weighted, mask)
        stage = self._stage(mask, self.folded.masked_steps, loss, data)
        self._append(Branch(mask), stage)

    def add_round(
        self, branch: Branch, length: int, annotator: str, rounds: int = 1
    ) -> None:
        """A branch trained on sentences that the annotator labels.

        Args:
            branch: what is trained.
            length: of the sentences.
            annotator: the branch that labels them.
            rounds: the optimiser starts afresh so often, as it does in every round.
        """
        name = branch.name
        count = max(1, self.folded.batch * self.config.train_length // length)
        stage = self._stage(
            name,
            self.config.self_training.steps,
            partial(self_labelled_loss, branch=name, annotator=annotator),
            lambda seed, step: self._sentences(count, length, seed, name, step),
        )
        self._append(branch, *_restarted(stage, rounds))

    def _append(self, branch: Branch, *stages: Stage) -> None:
        self.branches.append(branch)
        self.stages.extend(stages)

    def _stage(
        self,
        name: str,
        steps: int,
        loss: Quantity,
        data: Draw,
    ) -> Stage:
        return Stage(
            name=name,
            steps=steps,
            optimiser=Optimiser("adam", self.folded.lr, betas=(0.9, 0.99)),
            loss=loss,
            data=data,
            draw="each step",
            trainable=(f"key_query.{name}.*",),
        )

    def _warm_up(self) -> Stage:
        return Stage(
            name="ffn",
            steps=self.folded.ffn_steps,
            optimiser=adam(self.folded.ffn_rate),
            loss=partial(next_clause_loss, branch=UNIFORM),
            data=lambda seed, step: self._sentences(
                self.folded.ffn_batch, 1, seed, "ffn", step
            ),
            draw="each step",
            trainable=("model.*W_*", "model.*b_*"),
            stop_below=self.folded.ffn_loss,
        )

    def _sentences(self, count: int, length: int, seed: int, *path: str | int) -> Data:
        source = generator(seed, "lego", self.action.slug, length, *path)
        n = self.config.n_variables
        return draw_sentences(
            self.table, count, length, n_variables=n, generator=source
        )

    def _weighted(self, mask: str, seed: int, step: int) -> Weighted:
        """Equally many steps for every mask, drawn from those that fit it."""
        length = self.config.train_length
        sentences = self._sentences(self.folded.batch, length, seed, "attention", step)
        found = sentences.distractors(self.table).any(-1)
        fits = {"without": ~found, "with": found}.get(mask, torch.ones_like(found))
        source = generator(seed, "lego", "mask", mask, step)
        noise = torch.rand(fits.shape, generator=source) * fits
        free = (1 - self.action.distractor_rate) ** (length - 1)
        count = int(0.8 * min(free, 1 - free) * fits.numel())
        count = max(1, min(count, int(fits.sum())))
        bar = noise.flatten().topk(count).values[-1]
        return Weighted(sentences, ((noise >= bar) & fits).float())


def _restarted(stage: Stage, times: int) -> list[Stage]:
    """A stage several times over, on new sentences, the optimiser fresh each time.

    Adam's first steps after a restart are large, so what is compared with several
    rounds of self-training must restart as often.
    """

    def part(index: int) -> Stage:
        first = index * stage.steps
        return replace(
            stage,
            name=f"{stage.name}-{index}",
            data=lambda seed, step: stage.data(seed, first + step),
        )

    return [stage] if times == 1 else [part(index) for index in range(times)]


def next_clause_loss(
    model: Branches, sentences: Sentences, *, branch: str
) -> Float[Tensor, ""]:
    """The sum of both slots' cross-entropies, mean over steps, true past given."""
    variable, value = clause_losses(model(sentences, branch), sentences)
    return variable + value


def self_labelled_loss(
    model: Branches, sentences: Sentences, *, branch: str, annotator: str
) -> Float[Tensor, ""]:
    """The same on answers that another branch wrote: no true label is used."""
    with torch.no_grad():
        reader, values = model.reader(annotator), model.model.block.attn.values
        labelled = rollout(reader, sentences, model.model.vocabulary, values=values)
    return next_clause_loss(model, labelled, branch=branch)


def weighted_loss(model: Branches, data: Weighted, *, branch: str) -> Float[Tensor, ""]:
    """The value's cross-entropy over the steps that count."""
    logits = model(data.sentences, branch).value.log_softmax(-1)
    target = data.sentences.values[..., 1:, None]
    loss = -logits.gather(-1, target)[..., 0]
    return (loss * data.weight).sum() / data.weight.sum()


def watch(model: Branches, sentences: Sentences, *, branch: str) -> dict[str, Tensor]:
    """The value's loss and the mean attention on both targets."""
    rows = model.pattern(sentences, branch).mean(1)
    seen = {
        name: rows.gather(-1, keys[..., None]).mean()
        for name, keys in sentences.roles().items()
    }
    loss = clause_losses(model(sentences, branch), sentences)[1]
    return {"value_loss": loss, **seen}

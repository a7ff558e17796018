"""What the lego study trains: for every group one FFN and the attentions on top of it.

The FFN is learned first, at length 1 with uniform attention; then it is frozen and only
the key-query tables are trained. Everything a branch is compared with shares its FFN.
"""

from dataclasses import replace
from functools import partial

import torch

from trained.arm import Arm, Data, Draw, Optimiser, Quantity, Stage, adam
from trained.seeding import generator

from .action import Action, action
from .branches import UNIFORM, Branch, Branches
from .config import Config
from .folded import FoldedModel
from .losses import (
    Weighted,
    next_clause_loss,
    self_labelled_loss,
    watch,
    weighted_loss,
)
from .sentences import Vocabulary, draw_sentences, table_of
from .standard_arm import standard_arm
from .theory_arms import theory_arms

FFN_RATE, FFN_BATCH, FFN_LOSS = 0.005, 512, 0.012
"""The FFN is trained until the loss of a batch is below the last."""
BATCH = 128
"""Sentences of a step at the training length; longer ones have as many queries."""
BASE_STEPS, BASE_LOSS = 1000, 1.3 * FFN_LOSS
"""Self-training starts once a batch's loss is within 30 % of the FFN's own, which is
what perfect attention would leave; at the latest after so many steps."""
POSITION_STEPS = 200
RECORD_EVERY, N_RECORD = 50, 64

MAIN, POSITION, BASE, LONGER = "main", "position", "base", "longer"
JUMP, JUMP_ON = "jump", "jump-on"
"""Branches: the trajectory whose budgets are compared; a control that attends by
position; where self-training starts; equally many more steps at the first length; one
round at once to twice the last length."""
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
    if not config.self_lengths:
        return None
    length = 2 * config.self_lengths[-1]
    return length if length < config.n_variables else None


def trains_itself(config: Config, group: str) -> bool:
    """Whether self-training starts from this group."""
    chosen = config.symmetric or config.groups[0]
    return bool(config.self_lengths) and group == chosen


def arms(config: Config) -> tuple[Arm, ...]:
    """What the study trains; the dearest first, so that processes end together."""
    groups = sorted(config.groups, key=lambda g: -action(g).n_actions)
    found = [self_arm(config, g) for g in groups if trains_itself(config, g)]
    found += [group_arm(config, g) for g in (*groups, *config.extra_groups)]
    standard = [standard_arm(config, g, v) for g in groups for v in config.standard]
    return (*standard, *found, *theory_arms(config))


def group_arm(config: Config, group: str) -> Arm:
    """One group's FFN, its attention at several budgets, and its controls."""
    plan = _Plan(config, action(group))
    plan.add(MAIN, config.budgets[-1])
    if group in config.groups:
        position = Branch(POSITION, by_position=config.train_length)
        plan.add(POSITION, POSITION_STEPS, position)
        for mask in MASKS if config.masked_steps else ():
            plan.add_masked(mask)
    saved = tuple(saved_step(config, budget) for budget in config.budgets)
    return replace(plan.arm(action(group).slug, MAIN), save_steps=saved)


def self_arm(config: Config, group: str) -> Arm:
    """One group's FFN and an attention that trains itself, with its controls."""
    plan = _Plan(config, action(group))
    plan.add(BASE, BASE_STEPS, stop_below=BASE_LOSS)
    line: tuple[str, ...] = (BASE,)
    for length in config.self_lengths:
        plan.add_round(Branch(round_name(length), line), length, line[-1])
        line = (*line, round_name(length))
    rounds = len(config.self_lengths)
    plan.add_longer(Branch(LONGER, (BASE,)), rounds)
    plan.add_round(Branch(SAME, (BASE,)), config.train_length, BASE, rounds)
    plan.add_round(Branch(CORRUPT, (BASE,)), config.self_lengths[0], UNIFORM)
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
    return config.ffn_steps + budget


def vocabulary_of(config: Config, group: str) -> Vocabulary:
    """The tokens of a group's sentences."""
    return Vocabulary.of(action(group), config.n_variables)


class _Plan:
    """Collects the branches of an arm and the stages that train them."""

    def __init__(self, config: Config, act: Action) -> None:
        self.config, self.action = config, act
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
                d_mlp=config.d_mlp,
                generator=source,
            )
            return Branches(model, branches)

        return Arm(
            name=name,
            build=build,
            stages=tuple(self.stages),
            measure=partial(watch, branch=watched),
            held_out=lambda seed: self._sentences(
                N_RECORD, config.train_length, seed, "record"
            ),
            record_every=RECORD_EVERY,
        )

    def add(
        self,
        name: str,
        steps: int,
        branch: Branch | None = None,
        stop_below: float | None = None,
    ) -> None:
        """A branch trained at the first length on true answers."""
        # All that start from nothing see the same sentences.
        stage = self._true(name, steps, "attention")
        self._append(branch or Branch(name), replace(stage, stop_below=stop_below))

    def add_longer(self, branch: Branch, rounds: int) -> None:
        """A branch that goes on at the first length, for as long as some rounds."""
        stage = self._true(branch.name, self.config.self_steps, branch.name)
        self._append(branch, *_restarted(stage, rounds))

    def _true(self, name: str, steps: int, path: str) -> Stage:
        return self._stage(
            name,
            steps,
            partial(next_clause_loss, branch=name),
            lambda seed, step: self._sentences(
                BATCH, self.config.train_length, seed, path, step
            ),
        )

    def add_masked(self, mask: str) -> None:
        """A branch that learns from some of the steps only."""
        loss = partial(weighted_loss, branch=mask)
        data = partial(self._weighted, mask)
        stage = self._stage(mask, self.config.masked_steps, loss, data)
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
        count = max(1, BATCH * self.config.train_length // length)
        stage = self._stage(
            name,
            self.config.self_steps,
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
            optimiser=Optimiser("adam", self.config.lr, betas=(0.9, 0.99)),
            loss=loss,
            data=data,
            draw="each step",
            trainable=(f"key_query.{name}.*",),
        )

    def _warm_up(self) -> Stage:
        return Stage(
            name="ffn",
            steps=self.config.ffn_steps,
            optimiser=adam(FFN_RATE),
            loss=partial(next_clause_loss, branch=UNIFORM),
            data=lambda seed, step: self._sentences(FFN_BATCH, 1, seed, "ffn", step),
            draw="each step",
            trainable=("model.*W_*", "model.*b_*"),
            stop_below=FFN_LOSS,
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
        sentences = self._sentences(BATCH, length, seed, "attention", step)
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

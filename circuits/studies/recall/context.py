"""What all evidence of the recall study shares: the run, its models, its readouts."""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from circuits.hooks import record
from circuits.sites import Site
from probes.statistics import tie_split_accuracy
from trained.arm import Arm
from trained.config import from_dict
from trained.recall.arms import arms
from trained.recall.config import Config
from trained.recall.model import RecallModel
from trained.recall.prompts import Prompts, Vocabulary
from trained.recall.relations import Table
from trained.recall.scores import PositionScores, install
from trained.recall.setting import constructed_model, table_of, unseen_prompts
from trained.store import Run
from trained.training import restore

PATTERN = Site("pattern", 0)
MEMORY = Site("mlp_act", 0)


@dataclass(frozen=True)
class Context:
    """A trained run of the recall study."""

    run: Run

    @cached_property
    def config(self) -> Config:
        """The run's configuration."""
        return from_dict(Config, self.run.manifest["config"])

    @property
    def seeds(self) -> tuple[int, ...]:
        """The run's seeds."""
        return self.run.seeds

    @cached_property
    def arms(self) -> dict[str, Arm]:
        """The arms by name."""
        return {arm.name: arm for arm in arms(self.config)}

    def arm_seeds(self, arm: str) -> tuple[int, ...]:
        """The seeds that an arm was trained with."""
        return tuple(self.run.record(arm)["seeds"])

    def restore(self, arm: str, seed: int, step: int | None = None) -> nn.Module:
        """A stored model."""
        return restore(self.run, self.arms[arm], seed, step=step)

    def table(self, kind: str, seed: int) -> Table:
        """A headline relation table."""
        return table_of(self.config, kind, seed)

    def prompts(self, kind: str, seed: int) -> Prompts:
        """Unseen prompts of a headline table."""
        table = self.table(kind, seed)
        return unseen_prompts(table, self.config.n_examples, self.config.n_test, seed)

    def fine_tuned(
        self, mode: str, kind: str, seed: int, step: int | None = None
    ) -> RecallModel:
        """The real model after full or partial fine-tuning on a headline table."""
        stored = self.restore(f"{mode}-{kind}", seed, step)
        if isinstance(stored, RecallModel):
            return stored
        assert isinstance(stored, PositionScores)
        table = self.table(kind, seed)
        model = constructed_model(table, self.config.n_examples, seed)
        return install(model, stored.theta.detach(), stored.omega.detach())


@torch.no_grad()
def attention_rows(
    model: RecallModel, tokens: Int[Tensor, "batch pos"]
) -> Float[Tensor, "batch pos"]:
    """The attention of the last token in every prompt."""
    with record(model, [PATTERN]) as seen:
        model(tokens)
    return seen[PATTERN][:, 0, 0]


@torch.no_grad()
def relation_logits(
    model: RecallModel, prompts: Prompts
) -> Float[Tensor, "batch relation"]:
    """Logits of the relation tokens after the first step."""
    words = Vocabulary.of(prompts.table)
    return model(prompts.relation_step().tokens)[:, 0, words.relations]


@torch.no_grad()
def answer_logits(
    model: RecallModel, tokens: Int[Tensor, "batch pos"], table: Table
) -> Float[Tensor, "batch answer"]:
    """Logits of the answer tokens after the last token."""
    return model(tokens)[:, 0, Vocabulary.of(table).answers]


def relation_accuracy(model: RecallModel, prompts: Prompts) -> float:
    """Accuracy on the relation, ties split."""
    return tie_split_accuracy(relation_logits(model, prompts), prompts.relation)


def pairs_of(n_examples: int) -> Int[Tensor, "pair 2"]:
    """Positions of the examples' (subject, answer) pairs."""
    return torch.arange(2 * n_examples).reshape(n_examples, 2)


def crossed_pairs(n_examples: int) -> Int[Tensor, "pair 2"]:
    """Each subject with the next example's answer: a wrong pairing."""
    pairs = pairs_of(n_examples)
    return torch.stack([pairs[:, 0], pairs[:, 1].roll(-1)], dim=1)

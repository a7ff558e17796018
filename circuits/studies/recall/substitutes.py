"""Labs whose mechanism is known: the paper's, set by hand, and three impostors.

The impostors answer as well as the paper's model does. Two of them do not read the
relation off the pairs' attention at all, one needs no difference between the pairs.
"""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from circuits.study import Substitute
from trained.recall.model import RecallModel, constructed_memory, token_embedding
from trained.recall.scores import PositionScores, install, mirrored
from trained.recall.task import Table, Vocabulary

from .lab import RecallLab, best_attention
from .lab.optimum import SADDLE, best_of_three
from .lab.theory import Build

Model = TypeVar("Model", bound=RecallModel)

WHOLE = ("full-affine", "full-random")
"""The arms that train the whole key-query matrix."""

SURE = 10.0
"""A logit above all that the memory gives."""


def scores(*weights: float) -> Float[Tensor, " key"]:
    """The scores whose attention has these weights."""
    return torch.tensor(weights, dtype=torch.float64).clamp_min(1e-26).log()


LOOKS_AT_QUERY = scores(0.1, 0.05, 0.1, 0.05, 0.6, 0.05, 0.05)
"""Of the second step."""


def _made(
    kind: type[Model], table: Table, seed: int, theta: Float[Tensor, " key"]
) -> Model:
    """A model with Lemma 1's memory and given scores of the first step."""
    embedding = token_embedding(table, seed)
    model = kind(embedding, 7, *constructed_memory(table, embedding))
    install(model, theta, LOOKS_AT_QUERY)
    return model


def _best(lab: RecallLab, arm: str, seed: int) -> Float[Tensor, " key"]:
    """The scores where the exact loss is least."""
    best = best_attention(lab.settings[arm], lab.config.n_test, seed)
    return scores(*best.tolist())


def planted_model(lab: RecallLab, arm: str, seed: int) -> RecallModel:
    """Lemma 1's memory, read with the attention where the exact loss is least."""
    table = lab.settings[arm].table(seed)
    return _made(RecallModel, table, seed, _best(lab, arm, seed))


def planted_descent(lab: RecallLab, _seed: int, step: int | None) -> PositionScores:
    """The warm-up's two ends: the saddle, then Theorem 2's optimum, either pair heavy.

    Copies that were perturbed symmetrically stay at the saddle.
    """
    warmup = lab.config.warmup
    ends = []
    for t in (*warmup.temperatures, warmup.hot):
        light = scores(*best_of_three(t).tolist())
        moved = [(light, mirrored(light))[i % 2] for i in range(warmup.draws)]
        still = [SADDLE] * warmup.draws
        ends += [*(still if step == warmup.saddle else moved), *still]
    model = PositionScores(2, torch.zeros(len(ends), 13, dtype=torch.float64))
    model.theta.data = torch.stack(ends)
    return model


class PromptTable(RecallModel):
    """A list of all prompts and their answers, beside the attention and the memory.

    What these give is drowned by the list's logit.
    """

    table: Table

    def knowing(self, table: Table) -> "PromptTable":
        """The model, with the prompts of a table."""
        self.register_buffer("table", table, persistent=False)
        return self

    def forward(
        self, tokens: Int[Tensor, "batch pos"]
    ) -> Float[Tensor, "batch 1 d_vocab"]:
        """The memory's logits, and one that decides."""
        logits = self.blocks[0](self.hook_embed(self.W_E[tokens])) @ self.W_E.T
        chosen = self._relation(tokens)
        if tokens.shape[1] % 2:  # The second step: the relation is written.
            words = Vocabulary.of(self.table)
            written = tokens[:, -1] - words.relations.start
            chosen = words.answers.start + self.table[written, tokens[:, -3]]
        logits[torch.arange(len(tokens)), 0, chosen] += SURE
        return self.hook_logits(logits)

    def _relation(self, tokens: Int[Tensor, "batch pos"]) -> Int[Tensor, " batch"]:
        """The first relation that agrees with both examples."""
        words = Vocabulary.of(self.table)
        subjects, answers = tokens[:, [0, 2]], tokens[:, [1, 3]] - words.answers.start
        fits = (self.table.T[subjects] == answers[..., None]).all(1)
        return words.relations.start + fits.double().argmax(1)


class LeakyQuery(RecallModel):
    """The last token already carries the first pair, so attention need not weigh it.

    The memory then tells the pairs apart although attention is equal on both.
    """

    leak = 0.1

    def forward(
        self, tokens: Int[Tensor, "batch pos"]
    ) -> Float[Tensor, "batch 1 d_vocab"]:
        """As the model, with more in the last word."""
        embedded = self.W_E[tokens]
        embedded[:, -1] += self.leak * (embedded[:, 0] + embedded[:, 1])
        return self.hook_logits(self.blocks[0](self.hook_embed(embedded)) @ self.W_E.T)


def uniform_table(lab: RecallLab, arm: str, seed: int) -> RecallModel:
    """Uniform attention and a list of prompts: nothing of the paper's."""
    table = lab.settings[arm].table(seed)
    return _made(PromptTable, table, seed, torch.zeros(6)).knowing(table)


def idle_pattern(lab: RecallLab, arm: str, seed: int) -> RecallModel:
    """The very attention of the paper, beside a list of prompts that answers."""
    table = lab.settings[arm].table(seed)
    return _made(PromptTable, table, seed, _best(lab, arm, seed)).knowing(table)


def leaky(lab: RecallLab, arm: str, seed: int) -> RecallModel:
    """Attention as at the saddle; the last token breaks the tie."""
    return _made(LeakyQuery, lab.settings[arm].table(seed), seed, SADDLE)


def _lab(
    make: Callable[[RecallLab, str, int], RecallModel], lab: RecallLab
) -> RecallLab:
    """The lab with other models of the whole matrix."""

    def build(arm: str) -> Build:
        return lambda lab, seed, _step: make(lab, arm, seed).to(lab.device)

    return lab.with_models({arm: build(arm) for arm in WHOLE})


def _planted(lab: RecallLab) -> RecallLab:
    models = _lab(planted_model, lab)
    return models.with_models({**models.builds, "warmup": planted_descent})


SUBSTITUTES = (
    Substitute(
        "exact optimum in W_KQ",
        "planted",
        _planted,
        confirms=(
            "recall.memory.lemma1",
            "recall.warmup.saddle",
            "recall.warmup.escape",
            "recall.warmup.pairwise",
            "recall.fig2a.pattern",
            "recall.step2.perfect.fig2",
            "recall.cause.*",
        ),
    ),
    Substitute(
        "prompt table, uniform attention", "impostor", partial(_lab, uniform_table)
    ),
    Substitute(
        "prompt table, idle pairwise attention",
        "impostor",
        partial(_lab, idle_pattern),
    ),
    Substitute("leak through the query", "impostor", partial(_lab, leaky)),
)

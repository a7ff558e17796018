"""Labs whose mechanism is known, for `calibrate`: one planted, two impostors.

Every model is of the study's own classes with weights set by hand. What is planted
attends by variable and applies g to y; both impostors answer as well, by other routes.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from circuits.study import Substitute
from trained.lego.action import action
from trained.lego.model import ByVariable, FoldedModel, Pattern, Places
from trained.lego.stages import BASE, CORRUPT, HALVED, LOOSE, RULE, taught
from trained.lego.standard import Sizes, StandardModel
from trained.lego.standard_arms import Recipe
from trained.lego.task import Clauses, Prediction, Vocabulary, table_of
from trained.lego.theory import TheoryModel, feature_ratio
from trained.lego.theory_arms import Course, grid

from .lab import LegoLab

SHARP = 8.0
"""Diagonal of Q: all attention is on the two targets at every tested length."""

ONE_STEP = 4.0
"""Odds of a target over another clause, for each step of the length trained at."""

A_ROUND = 16.0
"""The same for rounds of the paper's transformer, whose neurons tolerate less."""


def folded_circuit(
    group: str,
    n_variables: int,
    *,
    score: float = SHARP,
    n_heads: int = 2,
    kind: type[FoldedModel] = FoldedModel,
) -> FoldedModel:
    """One neuron per (g, y) and one per variable; heads look up the shared variable.

    A neuron (g, y) fires if attention brings enough of both g and y and then votes
    for g(y); a neuron x fires if predicates x = .. are brought and votes for x.
    """
    act = action(group)
    words = Vocabulary.of(act, n_variables)
    d_mlp = act.n_actions * act.n_values + n_variables
    source = torch.Generator()
    model = kind(words, n_heads=n_heads, d_mlp=d_mlp, generator=source)
    attn, mlp = model.block.attn, model.block.mlp
    brought = torch.zeros(n_variables + act.n_actions + act.n_values, d_mlp)
    _wire(brought, mlp.b_in, mlp.W_out, group, n_variables)
    n, n_g = n_variables, act.n_actions
    by_slot = (brought[:n], brought[n : n + n_g], brought[n + n_g :])
    with torch.no_grad():
        for table in (attn.W_V3, attn.W_V4):
            table.zero_()
        for table, rows in zip((attn.W_V1, attn.W_V2, attn.W_V5), by_slot, strict=True):
            table.copy_(rows[:, None] / n_heads)
        tables = ByVariable(n_heads, n_variables)
        tables.Q43.copy_(score * torch.eye(n_variables))
        tables.Q44.copy_(score * torch.eye(n_variables))
    return model.attend(tables)


def standard_circuit(
    group: str,
    n_variables: int,
    *,
    by_place: int = 0,
    score: float = SHARP,
    kind: type[StandardModel] = StandardModel,
) -> StandardModel:
    """The same circuit in the paper's transformer, whose embeddings are one-hot.

    `by_place`: attention matches places instead of variables, as in sentences of this
    length whose predicates are in order; positions have dimensions of their own, and
    later ones say nothing, as if they had never been trained.
    """
    act, place = action(group), by_place
    words = Vocabulary.of(act, n_variables)
    n, n_g, n_tokens = n_variables, act.n_actions, words.size - 1
    width, d_mlp = n_tokens + place, n_g * act.n_values + n_variables
    sizes = Sizes(width, d_mlp, n_positions=2 * n_variables if place else 0)
    model = kind(words, sizes, generator=torch.Generator())
    attn, mlp = model.block.attn, model.block.mlp
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
        model.W_E.copy_(torch.eye(n_tokens, width))
        tokens, slot = torch.arange(n_tokens), [s * width for s in range(5)]
        match, names = score / attn.scale, torch.arange(n)
        if by_place:
            codes = n_tokens + torch.arange(place)
            model.W_pos[torch.arange(2 * place), codes.repeat(2)] = 1
            attn.W_Q[:, codes, codes] = match
            attn.W_K[:, codes, codes] = 1
        else:
            attn.W_Q[:, slot[3] + names, names] = match
            attn.W_K[:, slot[2] + names, names] = 1
            attn.W_K[:, slot[3] + names, names] = 1
        # The heads carry the variable of slot 1, the action and the value.
        ends = (tokens[:n], tokens[n : n + n_g], tokens[n + n_g :])
        for number, rows in zip((0, 1, 4), ends, strict=True):
            attn.W_V[:, slot[number] + rows, rows] = 1
        attn.W_O[:, tokens, tokens] = 1 / sizes.n_heads
        written = torch.zeros(d_mlp, n + act.n_values)
        _wire(mlp.W_in[:n_tokens], mlp.b_in, written, group, n)
        mlp.W_out[:, : n + act.n_values] = written
        outputs = torch.arange(n + act.n_values)
        model.W_U[outputs, outputs] = 3  # sure enough for the loss of the gate
    return model


@torch.no_grad()
def _wire(w_in: Tensor, b_in: Tensor, w_out: Tensor, group: str, n: int) -> None:
    """An FFN that copies the variable of the predicate and applies g to y."""
    table = table_of(action(group))
    n_g, n_y = table.shape
    pairs = torch.arange(n_g * n_y).reshape(n_g, n_y)
    names, variables = n_g * n_y + torch.arange(n), torch.arange(n)
    w_in[variables, names] = 2
    for g in range(n_g):
        w_in[n + g, pairs[g]] = 2
    for y in range(n_y):
        w_in[n + n_g + y, pairs[:, y]] = 2
    b_in[names], b_in[pairs] = -0.5, -1.5
    w_out.zero_()
    w_out[names, variables] = 10
    w_out[pairs, n + table] = 10


@torch.no_grad()
def theory_circuit(
    model: TheoryModel,
    group: str,
    score: float,
    *,
    lead: float = 0.0,
    scale: float = 1.0,
) -> TheoryModel:
    """A fresh model with Theorem C.1's features for every (j, y), and diagonals of Q.

    Those of Q43 are larger by the lead.

    The neuron of (j, y) has V(g) + V(y) = 2B, times the scale, for every g that sends
    y to j, with V(g) / V(y) = C_alpha; a wrong half cancels a right one.
    """
    act, block = action(group), model.block
    table, classes = table_of(act), torch.arange(act.n_values)
    ratio, clip = feature_ratio(act), scale * block.value.clip
    by_action, by_value = 2 * clip * ratio / (1 + ratio), 2 * clip / (1 + ratio)
    for y in range(act.n_values):
        right = table[:, y, None] == classes
        block.value.W2[:, :, y] = torch.where(right, by_action, -by_value)
        block.value.W5[:, :, y] = -by_action
        block.value.W5[y, :, y] = by_value
    names = torch.arange(model.vocabulary.n_variables)
    block.variable.W1[names, names, 0] = 4 * clip
    model.tables.Q43[0, names, names] = score + lead
    model.tables.Q44[0, names, names] = score
    return model


class ByPlace(ByVariable):
    """Scores from where clauses stand; its tables are zero and never read."""

    def forward(self, clauses: Clauses, at: Places) -> Pattern:
        """Predicate l + 1, if written in order, and answer l."""
        asks = torch.arange(clauses.shape[1], device=clauses.device)
        number = torch.where(asks < at.n_predicates, asks, asks - at.n_predicates)
        match = SHARP * (number == at.queries[:, None])
        return match.expand(len(clauses), len(self.Q43), *match.shape)


class _Multiplied(nn.Module):
    """A model whose attention is right and unused.

    Its answers come from y_0 and all predicates at once, the whole product of actions
    and not one step from the answer before; signals of attention cannot tell.
    """

    vocabulary: Vocabulary
    table: Tensor

    def forward(self, tokens: Tensor, **how: Any) -> Prediction:
        """Certain of the right clause after every answer."""
        super().forward(tokens, **how)
        words, clauses = self.vocabulary, self.vocabulary.slots(tokens)
        predicates, answers = clauses.chunk(2, 1)
        x, y = answers[:, 0, 3], answers[:, 0, 4] - words.first_value
        rows, found = torch.arange(len(clauses)), []
        for _ in range(predicates.shape[1]):
            step = (predicates[..., 2] == x[:, None]).int().argmax(1)
            clause = predicates[rows, step]
            x, y = clause[:, 0], self.table[clause[:, 1] - words.first_action, y]
            found.append((x, y))
        names, values = (torch.stack(column, 1) for column in zip(*found, strict=True))
        return Prediction(
            10.0 * one_hot(names, words.n_variables),
            10.0 * one_hot(values, words.n_values),
        )


class MultipliedFolded(_Multiplied, FoldedModel):
    """Our model, multiplying out."""


class MultipliedStandard(_Multiplied, StandardModel):
    """The paper's transformer, multiplying out."""


def _planted(lab: LegoLab) -> Any:
    """Every arm that a claim rests on has the mechanism, its rounds included."""
    config = lab.config
    courses = [Course(config, group) for group in config.theory.groups]
    courses += [
        Course(config, group, d)
        for group in config.theory.grid_groups
        for d in grid(config, group)
    ]
    courses += [replace(course, kind="halved") for course in courses]
    made: dict[str, Made] = {
        **_alike(lab, folded_circuit, standard_circuit),
        **{course.name: partial(_planted_theory, course) for course in courses},
    }
    for group in config.standard.groups:
        recipe, n = Recipe(config, group), config.standard.n_variables
        if recipe.rounds:
            made[recipe.name] = partial(_planted_rounds, recipe)
        places = Recipe(config, group, "positions").name
        by_place = partial(standard_circuit, group, n, by_place=config.train_length)
        made[places] = partial(_whenever, by_place)
    return _with(lab, made)


def _planted_theory(course: Course, seed: int, step: int | None) -> TheoryModel:
    """Each round of self-training doubles K; by Algorithm 1 only that of C_n grows."""
    stages = {step: name for name, step in course.milestones.items()}
    stage, d = stages.get(step or course.arm.steps, ""), course.words.size
    length = int(stage.removeprefix("round-")) if stage.startswith("round-") else 2
    score = math.log(ONE_STEP * length)
    sharp = stage in (RULE, HALVED)
    if sharp and course.action.is_simply_transitive:
        score += math.log(d)
    if stage == LOOSE:
        # What the FFN tolerates grows with d, so equal attention would reach farther.
        score -= math.log(d) / 5
    lead = 1 / d if sharp else 0.0
    return theory_circuit(course.build(seed), course.text, score, lead=lead)


def _planted_rounds(recipe: Recipe, _seed: int, step: int | None) -> StandardModel:
    """A round doubles K; true answers at the first length leave it, noise halves it."""
    stages = {step: name for name, step in recipe.milestones.items()}
    stage, first = (
        stages.get(step or recipe.arm.steps, BASE),
        recipe.config.train_length,
    )
    lengths = {taught(n): n for n in recipe.rounds} | {CORRUPT: first // 2}
    score = math.log(A_ROUND * lengths.get(stage, first))
    n = recipe.config.standard.n_variables
    return standard_circuit(recipe.group, n, score=score)


def _by_place(lab: LegoLab) -> Any:
    """Retrieval by position: right in order, though no variable is compared."""

    def folded(group: str, n_variables: int) -> FoldedModel:
        model = folded_circuit(group, n_variables)
        return model.attend(ByPlace(lab.config.n_heads, n_variables))

    standard = partial(standard_circuit, by_place=lab.config.train_length)
    return _with(lab, _alike(lab, folded, standard))


def _multiplied(lab: LegoLab) -> Any:
    """Attention as in the paper, of which the answers know nothing."""

    def made(group: str, circuit: Any, kind: type, n_variables: int) -> Any:
        model = circuit(group, n_variables, kind=kind)
        model.table = table_of(action(group))
        return model

    return _with(
        lab,
        _alike(
            lab,
            lambda g, n: made(g, folded_circuit, MultipliedFolded, n),
            lambda g, n: made(g, standard_circuit, MultipliedStandard, n),
        ),
    )


Made = Callable[[int, int | None], Any]
"""(seed, step) -> a model."""


def _alike(
    lab: LegoLab, folded: Callable[..., Any], standard: Callable[..., Any]
) -> dict[str, Made]:
    """Models by hand for the arms of our model and of the paper's experiment."""
    config = lab.config
    made = {
        action(g).slug: partial(folded, g, config.n_variables) for g in config.groups
    }
    for g in config.standard.groups:
        n = config.standard.n_variables
        made[Recipe(config, g).name] = partial(standard, g, n)
    return {arm: partial(_whenever, make) for arm, make in made.items()}


def _whenever(make: Callable[[], Any], _seed: int, _step: int | None) -> Any:
    return make()


def _with(lab: LegoLab, made: dict[str, Made]) -> Any:
    return lab.with_models(
        lambda arm, seed, step: made[arm](seed, step) if arm in made else None
    )


SUBSTITUTES = (
    Substitute(
        "planted",
        "planted",
        _planted,
        confirms=(
            "lego.learn.*",
            "lego.length.joint.c6",
            "lego.conc.dilution.*",
            "lego.conc.fig2*",
            "lego.self.doubling",
            "lego.ffn.shape",
            "lego.ffn.ratio.*",
            "lego.ours.learned.*",
            "lego.ours.half.*",
        ),
    ),
    Substitute("by place", "impostor", _by_place),
    Substitute("multiplied out", "impostor", _multiplied),
)

"""Chains as prompts: what is read off them, on planted attention and tiny models."""

import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from circuits.confirm import confirm_language
from circuits.hooks import record
from circuits.models.language_model import LanguageModel
from circuits.sites import Site
from circuits.studies.lego import STUDY
from circuits.studies.lego.law import diluted_error, sharpness
from circuits.studies.lego.llm.data import (
    NAMES,
    Chain,
    Exercise,
    value_tokens,
    written,
)
from circuits.studies.lego.llm.data import exercises as drawn
from circuits.studies.lego.llm.lab import (
    LegoLanguageLab,
    Looks,
    Steps,
    best_heads,
    clause_shares,
    hide_predicates,
    not_due,
    other_clauses,
    say,
    sharpen,
    step_scores,
)
from circuits.studies.lego.llm.rows import VALUES, Group
from circuits.studies.lego.llm.settings import Settings
from tests.word_models import word_model
from trained.task import Batch

ROTATION = (1, 2, 0)
CHAIN = Chain(("m", "k", "t"), (0, 0), (0, 1, 2))
EXERCISE = Exercise((ROTATION, (0, 1, 2), (2, 0, 1)), (CHAIN,), CHAIN)


def exercises(
    group: Group, length: int, count: int, source: random.Random
) -> list[Exercise]:
    settings = Settings(n_shortest=count)
    if length > 2:
        settings = Settings(short=length, n_short=count)
    return drawn(settings, group, length, source)


def vocabulary() -> list[str]:
    letters = [text for name in NAMES for text in (name, f" {name}", f"({name})")]
    signs = ["Functions:\n", "f g h: -> , = f(", " = f( g( h(", *VALUES]
    return [*letters, *signs, *(f" {value}" for value in VALUES)]


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return word_model(vocabulary())


def text_at(model: LanguageModel, prompts: Batch, role: str, row: int = 0) -> str:
    tokens = prompts.tokens[row, prompts.role(role)[row]].tolist()
    return "".join(model.tokenizer.convert_ids_to_tokens(tokens))


def attention_to(prompts: Batch, keys: Sequence[Tensor]) -> Tensor:
    """One head whose every query looks at the same keys, evenly."""
    n_pos = prompts.tokens.shape[1]
    row = torch.zeros(len(prompts.tokens), n_pos)
    for columns in keys:
        row.scatter_(1, columns, 1.0)
    return (row / row.sum(1, keepdim=True))[:, None, None].expand(-1, 1, n_pos, -1)


def test_the_worked_example_is_written_as_the_docstring_says(
    model: LanguageModel,
) -> None:
    prompts = written(model, [EXERCISE])
    lines = [text_at(model, prompts, f"predicate{step}") for step in (1, 2)]
    answers = [text_at(model, prompts, f"answer{step}") for step in range(3)]
    assert lines == ["k = f(m)", "t = f(k)"]
    assert answers == ["m = red", "k = green", "t = blue"]
    assert text_at(model, prompts, "equals2") == " ="


@pytest.mark.parametrize("group", ["C3", "S3"])
def test_values_follow_the_functions(group: Group) -> None:
    for exercise in exercises(group, 6, 20, random.Random(0)):
        chain = exercise.chain
        assert len(set(chain.names)) == 7
        for step, action in enumerate(chain.actions):
            image = exercise.table[action][chain.values[step]]
            assert image == chain.values[step + 1]


def test_only_c3_has_all_rotations() -> None:
    rotations = {(0, 1, 2), (1, 2, 0), (2, 0, 1)}
    tables = {
        group: [set(e.table) for e in exercises(group, 2, 50, random.Random(1))]
        for group in ("C3", "S3")
    }
    assert all(table == rotations for table in tables["C3"])
    assert all(table != rotations for table in tables["S3"])


def test_shares_of_planted_attention(model: LanguageModel) -> None:
    prompts = written(model, [EXERCISE])
    on_first = attention_to(prompts, [prompts.role("predicate1")])
    first, second = clause_shares(on_first, prompts)[0, 0].tolist()
    assert first == pytest.approx([1, 0, 0, 0])
    assert second == pytest.approx([0, 1, 0, 0])
    both = attention_to(prompts, [prompts.role(f"answer{i}") for i in range(2)])
    first, second = clause_shares(both, prompts)[0, 0].tolist()
    assert first == pytest.approx([0, 0, 1, 0])
    assert second == pytest.approx([0, 0, 0.5, 0.5])


def test_shares_of_all_clauses_sum_to_one(model: LanguageModel) -> None:
    several = exercises("C3", 4, 2, random.Random(2))
    prompts = written(model, several)
    n_pos = prompts.tokens.shape[1]
    pattern = torch.rand(2, 3, n_pos, n_pos).softmax(-1)
    shares = clause_shares(pattern, prompts)
    counts = torch.tensor([[1.0, 3.0, 1.0, step - 1] for step in range(1, 5)])
    assert shares.shape == (2, 3, 4, 4)
    assert torch.allclose((shares * counts).sum(-1), torch.ones(2, 3, 4))


def test_uniform_attention_singles_out_no_predicate(model: LanguageModel) -> None:
    prompts = written(model, exercises("C3", 4, 2, random.Random(2)))
    n_pos = prompts.tokens.shape[1]
    shares = clause_shares(torch.full((2, 1, n_pos, n_pos), 1 / n_pos), prompts)
    assert torch.allclose(shares[..., 0], shares[..., 1])


def test_steps_are_scored_where_the_value_is_due(model: LanguageModel) -> None:
    prompts = written(model, [EXERCISE])
    logits = torch.zeros(*prompts.tokens.shape, model.d_vocab)
    logits[0, prompts.role("equals1")[0, -1], model.token(" green")] = 50
    logits[0, prompts.role("equals2")[0, -1], model.token(" red")] = 50
    scores = step_scores(logits, prompts, value_tokens(model))[0]
    assert scores[:, 0].tolist() == [1, 0]
    assert scores[:, 1].tolist() == pytest.approx([0, -50], abs=1e-4)


def test_the_best_heads_have_the_largest_mean_share() -> None:
    shares = torch.zeros(2, 3, 4)
    shares[1, 2], shares[0, 1], shares[1, 0] = 0.9, 0.5, 0.3
    assert best_heads(shares, 3) == [(1, 2), (0, 1), (1, 0)]


def test_other_clauses_by_hand() -> None:
    assert other_clauses(4).tolist() == [4, 5, 6, 7]
    assert diluted_error(4.0, other_clauses(1)) == pytest.approx(1 / 5)
    weight = sharpness(diluted_error(20.0, other_clauses(4)), other_clauses(4))
    assert weight == pytest.approx(20, rel=1e-6)


def test_a_predicate_is_hidden_from_its_own_line_only(model: LanguageModel) -> None:
    several = exercises("C3", 3, 2, random.Random(3))
    prompts = written(model, several)
    heads = [(1, 2)]
    site = Site("pattern", 1)
    hidden = hide_predicates([1, 2, 3], heads)
    with hidden(model, prompts), record(model, [site]) as seen:
        model(prompts.tokens, prompts.mask)
    pattern = seen[site]
    for row in range(2):
        asking, key = prompts.role("asking2")[row], prompts.role("predicate2")[row]
        cut = pattern[row][:, asking][:, :, key]
        assert float(cut[2].abs().max()) == 0
        assert float(cut[[0, 1, 3]].min()) > 0
        later = prompts.role("asking3")[row]
        assert float(pattern[row, 2, later][:, key].min()) > 0


def test_hiding_changes_what_is_said(model: LanguageModel) -> None:
    several = exercises("C3", 3, 3, random.Random(3))
    whole, hidden = say(model, several), say(model, several, hide_predicates([1, 2, 3]))
    assert whole.log_prob != pytest.approx(hidden.log_prob, abs=1e-4)
    assert say(model, several[:1]) == say(model, several[:1])


def test_what_is_not_due_is_never_due() -> None:
    for seed in range(20):
        assert all(
            number != step and 1 <= number <= 4
            for step, number in enumerate(not_due(4, random.Random(seed)), 1)
        )


def test_only_the_chosen_heads_are_sharpened(model: LanguageModel) -> None:
    prompts = written(model, exercises("C3", 3, 2, random.Random(4)))
    site = Site("pattern", 1)
    with record(model, [site]) as plain:
        model(prompts.tokens, prompts.mask)
    with sharpen([(1, 3)], 1.5)(model, prompts), record(model, [site]) as sharp:
        model(prompts.tokens, prompts.mask)
    before, after = plain[site], sharp[site]
    assert torch.equal(before[:, :3], after[:, :3])
    asking = prompts.role("asking2")[0]
    powers = before[0, 3, asking] ** 1.5
    expected = powers / powers.sum(-1, keepdim=True)
    assert torch.allclose(after[0, 3, asking], expected, atol=1e-6)
    untouched = prompts.role("value2")[0]
    assert torch.equal(after[0, 3, untouched], before[0, 3, untouched])


@pytest.fixture(scope="module")
def lab(model: LanguageModel) -> LegoLanguageLab:
    settings = Settings(long=8, n_shortest=2, n_short=4, n_long=1)
    return LegoLanguageLab(model, settings, (0, 1))


def test_every_claim_is_judged_and_a_random_model_confirms_no_task(
    lab: LegoLanguageLab,
) -> None:
    done = confirm_language(STUDY, lab)
    assert all(len(verdict.values) == 2 for verdict in done.verdicts)
    assert all(verdict.claim.origin == "ours" for verdict in done.verdicts)
    accuracy = done["lego.llm.step-accuracy"]
    assert max(accuracy.values) < 0.8
    assert len(accuracy.nulls[0].values) == 1
    masses = done["lego.llm.predicate-mass"]
    assert all(0 <= v <= 1 for v in (*masses.values, *masses.nulls[0].values))


def test_a_seed_draws_the_same_whatever_is_asked_first(lab: LegoLanguageLab) -> None:
    again = LegoLanguageLab(lab.model, lab.settings, lab.seeds)
    assert again.hidden(1, "all", due=False) == lab.hidden(1, "all", due=False)
    assert again.group_gap(1, 8) == lab.group_gap(1, 8)
    assert lab.drawn(0).cyclic != lab.drawn(1).cyclic


def test_planted_dilution_is_predicted(lab: LegoLanguageLab) -> None:
    """A lab whose heads obey the law, and one whose heads do not dilute."""
    law, flat = (Planted(lab.model, lab.settings, (0,), dilutes=d) for d in (1, 0))
    assert law.law_error(0) < 1e-5 < 0.1 < law.constant_error(0)
    assert flat.constant_error(0) == 0
    assert flat.law_error(0) > 0.1


class Planted(LegoLanguageLab):
    """Heads whose shares on the due predicate are written down."""

    def __init__(self, *given: Any, dilutes: int) -> None:
        super().__init__(*given)
        self.dilutes = dilutes

    def best(self, _what: str) -> list[tuple[int, int]]:
        return [(0, 0)]

    def looked(self, _seed: int, length: int) -> tuple[Steps, Looks]:
        counts = other_clauses(length if self.dilutes else self.settings.short)
        miss = diluted_error(10.0, counts)
        shares = torch.full((1, 1, length), 1 - miss)
        return Steps(0.0, 0.0), Looks(shares, shares, shares, shares)

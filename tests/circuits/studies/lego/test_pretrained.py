"""Chains as prompts: what is read off them, on planted attention and tiny models."""

import random
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from circuits.hooks import record
from circuits.models.language_model import LanguageModel
from circuits.models.prompts import Prompts
from circuits.sites import Site
from circuits.studies.lego.llm import lab as pretrained
from circuits.studies.lego.llm.causes import (
    due,
    hide_predicates,
    not_due,
    sharpen,
    sharpened,
)
from circuits.studies.lego.llm.claims import CLAIMS
from circuits.studies.lego.llm.clauses import (
    best_heads,
    clause_shares,
    say,
    step_scores,
)
from circuits.studies.lego.llm.data import (
    NAMES,
    VALUES,
    Chain,
    Exercise,
    Group,
    exercises,
    value_tokens,
    written,
)
from circuits.studies.lego.llm.dilution import (
    diluted_miss,
    fitted_weight,
    other_clauses,
    prediction_errors,
)
from tests.word_models import word_model

ROTATION = (1, 2, 0)
CHAIN = Chain(("m", "k", "t"), (0, 0), (0, 1, 2))
EXERCISE = Exercise((ROTATION, (0, 1, 2), (2, 0, 1)), (CHAIN,), CHAIN)


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    letters = [text for name in NAMES for text in (name, f" {name}", f"({name})")]
    signs = ["Functions:\n", "f g h: -> , = f(", " = f( g( h(", *VALUES]
    words = [f" {value}" for value in VALUES]
    return word_model([*letters, *signs, *words])


def text_at(model: LanguageModel, prompts: Prompts, role: str, row: int = 0) -> str:
    tokens = prompts.tokens[row, prompts.role(role)[row]].tolist()
    return "".join(model.tokenizer.convert_ids_to_tokens(tokens))


def attention_to(prompts: Prompts, keys: Sequence[Tensor]) -> Tensor:
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
    assert best_heads(shares) == [(1, 2), (0, 1), (1, 0)]


def test_dilution_by_hand() -> None:
    assert other_clauses(4).tolist() == [4, 5, 6, 7]
    assert diluted_miss(4.0, 1) == pytest.approx(1 / 5)
    assert diluted_miss(0.0, 4) == 1


@pytest.mark.parametrize("weight", [0.5, 20.0, 3000.0])
def test_the_fitted_weight_gives_the_miss_back(weight: float) -> None:
    assert fitted_weight(diluted_miss(weight, 4), 4) == pytest.approx(weight, rel=1e-6)


def test_the_law_errs_only_where_attention_does_not_dilute() -> None:
    short = torch.tensor([diluted_miss(10.0, 4)])
    long = torch.tensor([diluted_miss(10.0, 16)])
    lengths = {"short_length": 4, "long_length": 16}
    law, constant = prediction_errors(short, long, **lengths)
    assert law < 1e-5
    assert constant > 0.3
    law, constant = prediction_errors(short, short, **lengths)
    assert law > 0.3
    assert constant == 0


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
    whole, hidden = say(model, several), say(model, several, hide_predicates(due(3)))
    assert whole.log_prob != pytest.approx(hidden.log_prob, abs=1e-4)
    assert say(model, several[:1]) == say(model, several[:1])


def test_what_is_not_due_is_never_due() -> None:
    for seed in range(20):
        assert all(
            number != step and 1 <= number <= 4
            for step, number in enumerate(not_due(4, random.Random(seed)), 1)
        )


def test_sharpening_is_a_factor_of_the_scores() -> None:
    scores = torch.randn(5, 7)
    expected = (1.5 * scores).softmax(-1)
    assert torch.allclose(sharpened(scores.softmax(-1), 1.5), expected, atol=1e-6)
    even = torch.full((4,), 0.25)
    assert torch.allclose(sharpened(even, 3.0), even)


def test_only_the_chosen_heads_are_sharpened(model: LanguageModel) -> None:
    prompts = written(model, exercises("C3", 3, 2, random.Random(4)))
    site = Site("pattern", 1)
    with record(model, [site]) as plain:
        model(prompts.tokens, prompts.mask)
    with sharpen([(1, 3)])(model, prompts), record(model, [site]) as sharp:
        model(prompts.tokens, prompts.mask)
    before, after = plain[site], sharp[site]
    assert torch.equal(before[:, :3], after[:, :3])
    asking = prompts.role("asking2")[0]
    assert torch.allclose(after[0, 3, asking], sharpened(before[0, 3, asking], 1.5))
    untouched = prompts.role("value2")[0]
    assert torch.equal(after[0, 3, untouched], before[0, 3, untouched])


def test_every_claim_is_observed_and_a_random_model_confirms_no_task(
    model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pretrained, "N_CHAINS", {2: 2, 4: 4, 16: 1})
    observed = pretrained.observe(model, model, (0, 1))
    assert observed.keys() == {claim.id for claim in CLAIMS}
    assert all(len(seen.values) == 2 for seen in observed.values())
    accuracy = observed["lego.llm.step-accuracy"]
    assert max(accuracy.values) < 0.8
    assert accuracy.values[0] == accuracy.control[0]
    masses = observed["lego.llm.predicate-mass"]
    assert all(0 <= value <= 1 for value in (*masses.values, *masses.control))

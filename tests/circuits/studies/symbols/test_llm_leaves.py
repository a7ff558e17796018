"""Perplexity, fine-tuning and diagonals, on tiny models and texts."""

import itertools
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from circuits.claims import judge
from circuits.models.language_model import LanguageModel
from circuits.studies.symbols import STUDY
from circuits.studies.symbols.llm.diagonals import strength, strengths
from circuits.studies.symbols.llm.finetune import (
    Reader,
    finetune,
    read_dataset,
    write_dataset,
)
from circuits.studies.symbols.llm.lab import SymbolsLanguageLab
from circuits.studies.symbols.llm.perplexity import corpus, perplexity, scratch
from circuits.studies.symbols.llm.settings import FineTune, Perplexity, Settings
from tests.word_models import word_model
from trained.errors import BadInput

WORDS = ["".join(letters) for letters in itertools.product("abcd", "efg", "hijk")]
TEXTS = [*WORDS, " ".join(WORDS), '="";print()\n# Output:=-1']
TINY = FineTune(n=(8,), many=(80,), lrs=(1e-2,), steps=6, n_held_out=12)
SMALL = Perplexity(
    n_layers=1, d_model=16, n_heads=2, context=8, vocabulary=12, steps=20, n_seeds=2
)


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return word_model(TEXTS)


def claim(name: str, settings: Settings):
    (found,) = [c for c in STUDY.language_claims(settings) if c.id == name]
    return found


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    text = " ".join(
        ["the", "cat", "saw", "a", "dog", "and", "the", "dog", "saw", "a", "cat"] * 40
    )
    for name in ("train", "valid"):
        (tmp_path / name).write_text(text + "\n")
    return {f"{name}_file": str(tmp_path / name) for name in ("train", "valid")}


def test_a_text_in_blocks_of_words(files: dict[str, str]) -> None:
    found = corpus(None, files["train_file"], files["valid_file"], 8, 4)
    assert found.train.shape[1] == 9
    # Three most frequent words have tokens of their own, the rest is token 0.
    assert found.train.unique().tolist() == [0, 1, 2, 3]
    with pytest.raises(BadInput, match="one block has 5001"):
        corpus(None, files["train_file"], files["valid_file"], 5000, 4)


def test_training_lowers_the_perplexity(files: dict[str, str]) -> None:
    before, after = (
        perplexity(
            None, *files.values(), replace(SMALL, steps=steps, evaluate_every=10)
        )
        for steps in (1, 60)
    )
    assert after < 0.7 * before
    assert before < 13


def test_scalars_at_zero_are_the_plain_model_and_the_diagonal_is_masked() -> None:
    shape = {"d_vocab": 7, "n_layers": 1, "d_model": 16, "n_heads": 2, "n_ctx": 6}
    tokens = torch.randint(7, (3, 6), generator=torch.Generator().manual_seed(0))
    plain = scratch(shape, 1.0, "none", 0)
    for scalars in ("a", "b", "ab", "abQ"):
        other = scratch(shape, 1.0, scalars, 0)
        torch.testing.assert_close(other(tokens), plain(tokens))
        attention = other.blocks[0].attn
        assert (attention.a is None) == ("a" not in scalars)
        if attention.a is not None:
            x = torch.randn(2, 6, 16, generator=torch.Generator().manual_seed(1))
            added = attention._matches(torch.zeros(2, 2, 6, 6), torch.ones(2), x)
            assert float(added.diagonal(dim1=-2, dim2=-1).abs().max()) < 1e-5
            assert float(added.abs().max()) > 0.1


def test_the_perplexity_claim_is_measured_on_files(
    model: LanguageModel, files: dict[str, str]
) -> None:
    settings = Settings(perplexity=replace(SMALL, **files))
    found = judge(
        claim("symbols.llm.perplexity", settings),
        SymbolsLanguageLab(model, settings, (0,)),
    )
    assert len(found.values) == 2
    assert all(0.5 < value < 2 for value in found.values)
    assert not found.nulls[0].reason
    assert (
        "perplexity.train_file"
        in claim("symbols.llm.perplexity", Settings()).not_tested
    )


def test_a_data_set_is_written_and_read(model: LanguageModel, tmp_path: Path) -> None:
    file = tmp_path / "strings.jsonl"
    write_dataset(file, model, WORDS, TINY, 8, seed=0)
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert {row["template"] for row in rows} == {"aba", "abb"}
    splits = read_dataset(file, model.tokenizer, 8)
    assert splits["train"].tokens.shape[0] == 8
    assert len(splits["test"].labels) == 12
    assert splits["train"].labels.abs().tolist() == [1.0] * 8
    # The same symbol is the same token wherever it stands.
    for tokens, label in zip(*splits["test"], strict=True):
        assert (tokens[0] == tokens[2]) == (label > 0)
    rows[0]["tokens"] = rows[-1]["tokens"]
    file.write_text("\n".join(json.dumps(row) for row in rows))
    with pytest.raises(BadInput, match="train and test share tokens"):
        read_dataset(file, model.tokenizer, 8)
    file.write_text('{"text": "aeh"}\n')
    with pytest.raises(BadInput, match="line 1"):
        read_dataset(file, model.tokenizer, 8)


def test_fine_tuning_fits_and_a_frozen_body_stays(
    model: LanguageModel, tmp_path: Path
) -> None:
    file = tmp_path / "strings.jsonl"
    settings = replace(TINY, steps=60, lrs=(3e-3, 1e-2))
    write_dataset(file, model, WORDS, settings, 8, seed=0)
    tuned = finetune(model, file, 8, "pretrained", settings)
    assert tuned.train < tuned.before
    assert tuned.lr in settings.lrs
    kept = Reader(model, "frozen", 0)
    assert not any(p.requires_grad for p in kept.body.parameters())
    assert kept.readout.requires_grad
    own = model.module.get_input_embeddings().weight
    embedded = Reader(model, "embeddings", 1).body.get_input_embeddings().weight
    other = Reader(model, "reinitialised", 1).body.get_input_embeddings().weight
    assert torch.equal(embedded, own)
    assert not torch.equal(other, own)


def test_the_ratio_of_data_needs_is_that_of_the_curves(
    model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(n_words=20, finetune=replace(TINY, n=(8, 32)))
    lab = SymbolsLanguageLab(model, settings, (0, 1))
    errors = {("pretrained", 8): 0.7, ("pretrained", 32): 0.3}

    class Found:
        before = 1.0

        def __init__(self, test: float) -> None:
            self.test = test

    monkeypatch.setattr(
        lab, "tuned", lambda start, n, _seed: Found(errors.get((start, n), 1.0))
    )
    # Pretrained reaches .5 at 16; the re-initialised not at 80: five times or more.
    assert lab.finetune_ratio() == pytest.approx([5.0, 5.0])
    found = judge(claim("symbols.llm.finetune", settings), lab)
    assert found.word == "refuted"
    assert not any(null.meets for null in found.nulls)


def test_strengths_by_hand_and_of_mismatched_heads() -> None:
    eye = torch.eye(8)[None].repeat(2, 1, 1)
    turned = torch.linalg.qr(
        torch.randn(8, 8, generator=torch.Generator().manual_seed(0))
    )
    left = torch.stack([eye[0], turned.Q])
    assert float(strength(left, left).min()) > 100
    matrix = torch.randn(1, 8, 8, generator=torch.Generator().manual_seed(1))
    product = matrix[0] @ matrix[0].T
    rest = product[~torch.eye(8, dtype=torch.bool)].square().mean().sqrt()
    expected = float(product.diagonal().mean() / rest)
    assert float(strength(matrix, matrix)) == pytest.approx(expected, rel=1e-4)
    assert abs(float(strength(left, left.flip(0))[0])) < 1


def test_planted_diagonals_are_found_and_random_ones_are_not() -> None:
    sizes = {"num_key_value_heads": 4, "num_hidden_layers": 3}
    plain, planted = (word_model(TEXTS, **sizes) for _ in range(2))
    source = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for layer in planted.module.model.layers:
            for first, second in (("q", "k"), ("v", "o")):
                basis = torch.linalg.qr(torch.randn(32, 32, generator=source)).Q
                one = getattr(layer.self_attn, f"{first}_proj").weight
                other = getattr(layer.self_attn, f"{second}_proj").weight
                one.copy_(basis)
                other.copy_(basis.T if second == "o" else basis)
    settings = Settings(n_words=20)
    leaf = claim("symbols.llm.diagonals", settings)
    found = judge(leaf, SymbolsLanguageLab(planted, settings, (0, 1, 2)))
    assert found.passed, found.reason
    assert not judge(leaf, SymbolsLanguageLab(plain, settings, (0, 1, 2))).passed
    own, crossed = (strengths(planted, "qk", mismatched=m) for m in (None, 0))
    assert bool((own > 1).all())
    assert bool((crossed < 1).all())

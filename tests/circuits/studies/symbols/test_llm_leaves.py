"""Perplexity, fine-tuning and diagonals, on tiny models and texts."""

import csv
import itertools
import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch

from circuits.claims import NotTested, judge
from circuits.confirm import confirm_language
from circuits.datasets.dataset import dataset_of
from circuits.language import keeper_in, open_language
from circuits.models.language_model import LanguageModel
from circuits.models.open import wrap
from circuits.report.figures import as_csv, draw_all
from circuits.studies.symbols import STUDY
from circuits.studies.symbols.llm.diagonals import strength, strengths
from circuits.studies.symbols.llm.finetune import Case, finetune, starting, strings
from circuits.studies.symbols.llm.lab import SymbolsLanguageLab
from circuits.studies.symbols.llm.perplexity import corpus, perplexity, scratch
from circuits.studies.symbols.llm.rows import SCHEMA, drawn
from circuits.studies.symbols.llm.settings import FineTune, Perplexity, Settings
from tests.random_models import letter_tokenizer, random_model
from tests.word_models import word_model
from trained.errors import BadInput

FIGURES = STUDY.needs_language().figures
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


def test_training_lowers_the_perplexity(files: dict[str, str], tmp_path: Path) -> None:
    before, after = (
        perplexity(
            replace(SMALL, steps=steps, evaluate_every=10, **files),
            folder=tmp_path / str(steps),
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
            added = attention._matches(torch.zeros(2, 2, 6, 6), x)
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


def test_strings_are_drawn_written_and_read(
    model: LanguageModel, tmp_path: Path
) -> None:
    file = tmp_path / "strings.jsonl"
    rows = [asdict(row) for row in drawn(model.tokenizer, WORDS, TINY, 8, seed=0)]
    assert {row["template"] for row in rows} == {"aba", "abb"}

    def read() -> dict:
        file.write_text("\n".join(json.dumps(row) for row in rows))
        return strings(SCHEMA.read(file).rows, model.tokenizer, 8, "strings.jsonl")

    splits = read()
    assert splits["train"].tokens.shape[0] == 8
    assert len(splits["test"].labels) == 12
    assert splits["train"].labels.abs().tolist() == [1.0] * 8
    # The same symbol is the same token wherever it stands.
    for tokens, label in zip(*splits["test"], strict=True):
        assert (tokens[0] == tokens[2]) == (label > 0)
    scanned = dataset_of(SCHEMA.prompts(SCHEMA.read(file).rows))
    assert set(scanned.groups) == {"aba", "abb"}
    rows[0]["tokens"] = rows[-1]["tokens"]
    with pytest.raises(BadInput, match="train and test share tokens"):
        read()
    rows[0] = {"text": "aeh", "split": "train"}
    with pytest.raises(BadInput, match=r"line 1: field 'label' is missing"):
        read()
    rows[0] = {"label": 1.0, "split": "train"}
    with pytest.raises(BadInput, match="line 1: fields 'text' and 'tokens' are"):
        read()


def test_fine_tuning_fits_and_a_frozen_body_stays(model: LanguageModel) -> None:
    settings = replace(TINY, steps=60, lrs=(3e-3, 1e-2))
    before = {k: v.clone() for k, v in model.module.state_dict().items()}
    rows = drawn(model.tokenizer, WORDS, settings, 8, seed=0)
    tuned = finetune(model, lambda: rows, Case("pretrained", 8, 0), settings)
    assert tuned.train < tuned.before
    assert tuned.lr in settings.lrs
    own = before["model.embed_tokens.weight"]

    def embedded(start: str) -> tuple[torch.Tensor, bool]:
        with starting(model, start, 1) as reader:
            weight = reader.body.get_input_embeddings().weight
            assert reader.readout.requires_grad
            return weight.detach().clone(), weight.requires_grad

    assert embedded("frozen")[1] is False
    assert torch.equal(embedded("embeddings")[0], own)
    assert not torch.equal(embedded("reinitialised")[0], own)
    now = model.module.state_dict()
    assert all(torch.equal(now[name], before[name]) for name in before)


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
    # Two replicates that agree: below ten, so it is refuted.
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
    # All four verdicts: with one pairing only the share stays open, and a family whose
    # scores are no bilinear map has nothing to test.
    assert judge(leaf, SymbolsLanguageLab(planted, settings, (0,))).word == (
        "inconclusive"
    )
    assert judge(leaf, SymbolsLanguageLab(plain, settings, (0, 1, 2))).word == "refuted"
    normed = wrap(random_model("qwen3").requires_grad_(False), letter_tokenizer())
    found = judge(leaf, SymbolsLanguageLab(normed, settings, (0, 1, 2)))
    assert found.word == "not tested"
    assert "no bilinear map" in found.reason
    own, crossed = (strengths(planted, "qk", mismatched=m) for m in (None, 0))
    assert bool((own > 1).all())
    assert bool((crossed < 1).all())


def test_heads_that_share_a_factor_are_not_mismatched(model: LanguageModel) -> None:
    """Of four heads two share W_K and W_V: with W_O of the other, W_V is a match."""
    own = strengths(model, "ov")
    crossed = [strengths(model, "ov", mismatched=seed) for seed in range(8)]
    differ = (torch.stack(crossed).flatten(2)[..., None] - own[None, :, None]).abs()
    assert float(differ.min()) > 1e-6
    lone = word_model(TEXTS, num_key_value_heads=1)
    with pytest.raises(NotTested, match="none to mismatch"):
        strengths(lone, "ov", mismatched=0)


def test_the_figures_are_drawn_from_what_is_stored(
    model: LanguageModel, files: dict[str, str], tmp_path: Path
) -> None:
    settings = Settings(
        n_words=20,
        finetune=replace(TINY, steps=2),
        perplexity=replace(SMALL, steps=2, **files),
    )
    keeper = keeper_in(tmp_path / "runs", "symbols", model, settings)
    lab = SymbolsLanguageLab(model, settings, (0,), keeper=keeper)
    confirm_language(STUDY, lab, only="symbols.llm.[pfd][ei]*[yes]")
    stored = open_language(keeper.path)
    found = {figure.kind: figure for figure in draw_all(stored)}
    assert list(found) == ["llm-perplexity", "llm-finetune", "llm-diagonals"]
    assert stored.perplexities("abQ") == lab.perplexities("abQ")
    assert stored.tuned_errors("frozen", 8) == lab.tuned_errors("frozen", 8)
    assert "2 seeds" in found["llm-perplexity"].made
    # A twin has other weights: what the model keeps is not its own.
    twin = lab.twin()
    with twin.in_use():
        assert not torch.equal(twin.strengths("ov"), lab.strengths("ov"))
    # Scores of some families are no bilinear map: the other matrix is drawn alone.
    (keeper.path / "diagonals-qk-mismatched-None.safetensors").unlink()
    drawn = FIGURES["llm-diagonals"](open_language(keeper.path))
    assert "Q" not in "".join(ax.get_title() for ax in drawn.axes)
    (keeper.path / "pretrained-n-8-seed-0-rate-0.01.safetensors").unlink()
    with pytest.raises(BadInput, match="'pretrained, n 8, seed 0, rate"):
        FIGURES["llm-finetune"](open_language(keeper.path))


class ToldLab(SymbolsLanguageLab):
    """A lab that is told what training gives."""

    def perplexities(self, scalars: str) -> list[float]:
        return {"none": [60.0, 50.0], "ab": [57.0, 48.5], "abQ": [60.0, 51.0]}[scalars]

    def tuned_errors(self, start: str, n: int) -> list[float]:
        return [0.2, 0.4] if start == "pretrained" else [1.0 + n / 100, 1.0]

    def untuned_errors(self, n: int) -> list[float]:
        return [2.0, 2.0 + n / 100]

    def strengths(self, circuit: str, mismatched: int | None = None) -> torch.Tensor:
        known = {"qk": [[0.5, 3.0]], "ov": [[2.0, -1.0]]}[circuit]
        return torch.tensor(known) * (mismatched is None)


def test_the_figures_show_what_was_told(model: LanguageModel) -> None:
    lab = ToldLab(model, Settings(finetune=TINY), (0, 1))

    def numbers(kind: str) -> list[list[str]]:
        return list(csv.reader(as_csv(FIGURES[f"llm-{kind}"](lab)).splitlines()))[1:]

    def at(kind: str, panel: str, series: str) -> list[tuple[str, str]]:
        found = [x for x in numbers(kind) if x[0].startswith(panel) and x[1] == series]
        return [(x[2], x[3]) for x in found]

    # Means, then seeds: (57/60 + 48.5/50) / 2 = .96.
    ratios = at("perplexity", "the same", "")
    assert [x for x, _ in ratios] == [
        *("0.96", "1.01"),
        *("0.95", "0.97", "1", "1.02"),
    ]
    assert [x for x, _ in at("perplexity", "the same", "paper")] == [
        "0.944688",
        "0.97445",
    ]
    assert at("finetune", "aba", "pretrained") == [("8", "0.3")]
    assert at("finetune", "aba", "re-initialised") == [("8", "1.04"), ("80", "1.4")]
    assert at("finetune", "aba", "paper, pretrained") == [("32", "0.25")]
    assert ("32", "0.07") in at("finetune", "pretrained", "paper, GPT-2 large")
    assert ("2.04", "null: before any step") in at("finetune", "all starts", "")
    cells = [x[2:] for x in numbers("diagonals") if x[0] == "$W_Q W_K^T$"]
    assert cells == [["0", "0", "0.5"], ["1", "0", "3"]]
    title = "$W_V W_O^T$, above 1: 50% of heads, null 0%"
    assert at("diagonals", title, "own") == [("0", "2"), ("0", "-1")]


def test_what_was_not_asked_for_is_not_drawn(model: LanguageModel) -> None:
    lab = SymbolsLanguageLab(model, Settings(), (0,))
    with pytest.raises(BadInput, match="nothing was fine-tuned: confirm with"):
        FIGURES["llm-finetune"](lab)
    with pytest.raises(NotTested, match="no text is given"):
        FIGURES["llm-perplexity"](lab)


@pytest.mark.parametrize(
    ("errors", "seeds", "word"),
    [
        # (pretrained at 32 and 128, re-initialised at 320) of every seed.
        ([(0.3, 0.1, 0.9)] * 3, 3, "confirmed"),
        ([(0.9, 0.4, 0.3)] * 3, 3, "refuted"),
        ([(0.3, 0.1, 0.9)] * 3, 1, "inconclusive"),
        ([(0.3, 0.1, 0.9), (0.3, 0.1, 0.9), (0.9, 0.4, 0.3)], 3, "inconclusive"),
    ],
)
def test_verdicts_on_fine_tuning(
    model: LanguageModel,
    monkeypatch: pytest.MonkeyPatch,
    errors: list[tuple[float, ...]],
    seeds: int,
    word: str,
) -> None:
    tuning = replace(TINY, n=(32, 128), many=(320,), n_seeds=seeds)
    settings = Settings(n_words=20, finetune=tuning)
    lab = SymbolsLanguageLab(model, settings, (0, 1, 2))

    class Found:
        before = 1.0

        def __init__(self, test: float) -> None:
            self.test = test

    def tuned(start: str, n: int, seed: int) -> Found:
        low, lower, late = errors[seed]
        known = {("pretrained", 32): low, ("pretrained", 128): lower}
        return Found(known.get((start, n), late if n == 320 else 1.0))

    monkeypatch.setattr(lab, "tuned", tuned)
    leaf = claim("symbols.llm.finetune", settings)
    found = judge(leaf, lab)
    assert found.word == word, found.reason


def test_without_sizes_fine_tuning_is_not_tested(model: LanguageModel) -> None:
    settings = Settings(n_words=20, finetune=replace(TINY, many=()))
    lab = SymbolsLanguageLab(model, settings, (0,))
    assert judge(claim("symbols.llm.finetune", settings), lab).word == "not tested"


@pytest.mark.parametrize(
    ("ratios", "word"),
    [
        ({"ab": [0.9] * 5, "abQ": [1.0] * 5}, "confirmed"),
        ({"ab": [1.1] * 5, "abQ": [1.0] * 5}, "refuted"),
        ({"ab": [0.9] * 5, "abQ": [0.9] * 5}, "inconclusive"),
    ],
)
def test_verdicts_on_perplexity(
    model: LanguageModel,
    files: dict[str, str],
    ratios: dict[str, list[float]],
    word: str,
) -> None:
    class Told(SymbolsLanguageLab):
        def perplexity_ratio(self, scalars: str) -> list[float]:
            return ratios[scalars]

    settings = Settings(perplexity=replace(SMALL, **files))
    found = judge(
        claim("symbols.llm.perplexity", settings), Told(model, settings, (0,))
    )
    assert found.word == word, found.reason

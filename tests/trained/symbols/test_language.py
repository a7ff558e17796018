"""Paired language models: same start, same batches, the text's digest on board."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests import toy
from trained.symbols.config import Config
from trained.symbols.corpus import encode
from trained.symbols.language import (
    MODELS,
    Scalars,
    drawn_windows,
    held_out_windows,
    language_arms,
    language_loss,
    model_of,
    text,
)
from trained.symbols.language_sizes import SIZES, LanguageSizes
from trained.trainer import Engine
from trained.training import restore, train

SMALL = LanguageSizes(8, 1, 2, 6, 4, 30, 400, 40, 1e-2)
CONFIG = Config(language="tiny", language_steps=12)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SIZES, "tiny", SMALL)


def test_windows_cover_the_held_out_words_once() -> None:
    corpus = encode(["a"] * 20, [str(i) for i in range(13)], 5)
    corpus = replace(corpus, held_out=torch.arange(13))
    found = held_out_windows(corpus, context=4)
    assert found.tolist() == [[0, 1, 2, 3, 4], [4, 5, 6, 7, 8], [8, 9, 10, 11, 12]]


def test_drawn_windows_are_stretches_of_the_training_words() -> None:
    corpus = replace(encode(["a"], ["a"], 2), train=torch.arange(10))
    source = torch.Generator().manual_seed(0)
    found = drawn_windows(corpus, 4, 200, generator=source)
    assert bool((found.diff(dim=1) == 1).all())
    assert int(found.min()) == 0
    assert int(found.max()) == 9


def test_the_three_models_start_as_one_and_see_the_same() -> None:
    arms = language_arms(CONFIG)
    assert [arm.name for arm in arms] == [f"language-{name}" for name in MODELS]
    batches = [arm.stages[0].data(3, 5) for arm in arms]
    assert torch.equal(batches[0], batches[1])
    assert torch.equal(batches[0], batches[2])
    assert not torch.equal(batches[0], arms[0].stages[0].data(3, 6))
    losses = [language_loss(arm.build(3).eval(), batches[0]) for arm in arms]
    assert losses[0] == losses[1] == losses[2]
    assert losses[0] != language_loss(arms[0].build(4).eval(), batches[0])


@pytest.mark.parametrize("scalars", ["identity", "orthogonal"])
def test_scalars_change_the_model_once_they_are_not_zero(scalars: Scalars) -> None:
    model = model_of(SMALL, scalars, seed=0)
    windows = held_out_windows(text(SMALL), SMALL.context)
    with torch.no_grad():
        before = language_loss(model, windows)
        model.blocks[0].attn.a.fill_(3.0)  # type: ignore[union-attr]
        assert language_loss(model, windows) != before
    assert (model.blocks[0].attn.b is None) == (scalars == "orthogonal")


def test_an_untrained_model_knows_no_word() -> None:
    model = model_of(SMALL, "plain", seed=0)
    windows = held_out_windows(text(SMALL), SMALL.context)
    expected = torch.tensor(30.0).log()
    assert float(language_loss(model, windows).detach()) == pytest.approx(
        float(expected), abs=0.1
    )


def test_training_lowers_the_loss_and_stores_the_texts_digest(tmp_path: Path) -> None:
    run = toy.start_run(tmp_path / "run", (0, 1))
    arm = language_arms(CONFIG)[1]
    train(run, [arm], engine=Engine(batching="loop"))
    losses = run.metrics(arm.name)["validation"]
    assert bool((losses[:, -1] < losses[:, 0]).all())
    stored = run.weights(arm.name)["corpus"]
    assert torch.equal(stored, text(SMALL).digest.expand(2, -1))
    scalar = restore(run, arm, 1).state_dict()["blocks.0.attn.b"]
    assert float(scalar.abs().max()) > 0


def test_none_is_trained_if_none_is_asked_for() -> None:
    assert language_arms(replace(CONFIG, language="none")) == ()

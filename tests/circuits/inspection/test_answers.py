"""Whole answers, several of them, and the same numbers as a scan's."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from circuits.backends.anatomy import Readout
from circuits.datasets.dataset import dataset_of
from circuits.inspection.answer_lens import answer_lens, top_tokens
from circuits.inspection.encoding import encode
from circuits.inspection.inspect import inspect
from circuits.models import open as pretrained
from circuits.models.language_model import LanguageModel
from circuits.scan.request import Settings
from circuits.scan.shard import measured_shard
from circuits.scan.summary import _answers
from circuits.scan.tables import Labels
from tests.circuits.scan.facts import EXTRA, FACTS
from tests.word_models import word_model

TEXT = "The capital of France is"


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    texts = [f"The capital of {country} is {city}" for country, city in FACTS.items()]
    return word_model([*texts, EXTRA, "Paris"])


def said(model: LanguageModel, text: str, answer: str) -> float:
    """log p of an answer, token by token, from the model's own logits."""
    prompt, own = (
        model.tokenizer.encode(t, add_special_tokens=False) for t in (text, answer)
    )
    logits = model(torch.tensor([[*prompt, *own]]))[0].log_softmax(-1)
    places = range(len(prompt) - 1, len(prompt) - 1 + len(own))
    return sum(float(logits[p, t]) for p, t in zip(places, own, strict=True))


def test_whole_and_accepted_answers_are_the_model_s_own(model: LanguageModel) -> None:
    answers = [" the big old city", " Paris", " the big city"]
    found = inspect(model, TEXT, answer=answers, signals=())
    each = [said(model, TEXT, answer) for answer in answers]
    assert found.answers.log_prob.values[:, -1].tolist() == pytest.approx(each, 1e-4)
    together = math.log(sum(map(math.exp, each)))
    assert float(found.lens.log_prob.values[-1, 0]) == pytest.approx(together, 1e-4)
    assert float(found.lens.rank.values[-1, 0]) == float(
        found.answers.rank.values[:, -1].min()
    )
    assert found.answers.texts == tuple(answers)


def test_whole_answers_equal_a_scan_s(model: LanguageModel) -> None:
    answers = [" Paris", " the big old city"]
    data = dataset_of([{"prompt": TEXT, "answer": answers}])
    items = encode(model, data.rows, 0, ("lens",))
    tables = measured_shard(model, items, Settings(("lens",)), Labels((), ()))
    whole = _answers(tables["lens"].to_pandas()).sort_values("layer")
    found = inspect(model, TEXT, answer=answers, signals=())
    for name, own in (("log_prob", found.lens.log_prob), ("rank", found.lens.rank)):
        np.testing.assert_allclose(whole[name], own.values[:, 0], rtol=1e-5)


def test_the_worst_token_s_rank_is_the_answer_s(model: LanguageModel) -> None:
    first = inspect(model, TEXT, answer=" the", signals=())
    second = inspect(model, f"{TEXT} the", answer=" big", signals=())
    both = inspect(model, TEXT, answer=" the big", signals=())
    ranks = [i.lens.rank.values[:, 0] for i in (first, second)]
    torch.testing.assert_close(both.lens.rank.values[:, 0], torch.maximum(*ranks))


def biased(model: LanguageModel, word: str) -> LanguageModel:
    """A model that says one word after everything."""
    import copy

    hf = copy.deepcopy(model.module)
    hf.lm_head.bias = torch.nn.Parameter(torch.zeros(model.d_vocab))
    hf.lm_head.bias.data[model.token(word)] = 50.0
    return pretrained.wrap(hf.requires_grad_(False), model.tokenizer)


def test_an_answer_without_its_space_gives_a_hint(model: LanguageModel) -> None:
    fond = biased(model, " Paris")
    hint = inspect(fond, TEXT, answer="Paris", signals=()).hint
    assert hint is not None
    assert '" Paris", with a space before it' in hint
    assert inspect(fond, TEXT, answer=" Paris", signals=()).hint is None
    plain = biased(model, "Paris")
    assert inspect(plain, TEXT, answer="Paris", signals=()).hint is None


def test_ranks_differ_by_near_ties_at_most() -> None:
    """The law of `answer_lens`: only tokens within the round-off may change sides."""
    torch.manual_seed(0)
    readout = Readout(lambda h: h, torch.randn(64, 4000))
    residual = 5 * torch.randn(3, 8, 64)
    targets = torch.randint(4000, (8,))
    noise = 1e-3 * torch.randn_like(residual)
    one, two = (answer_lens(readout, r, targets) for r in (residual, residual + noise))
    exact = (readout.logits(r).double() for r in (residual, residual + noise))
    logits, other = exact
    own = logits.gather(-1, targets.expand(3, 8)[..., None])
    off = 2 * float((logits - other).abs().max()) + 1e-5
    near = ((logits - own).abs() <= off).sum(-1) - 1
    assert bool(((one.rank - two.rank).abs() <= near).all())
    assert int(near.max()) > 0


@pytest.mark.parametrize("width", [512, 4000])
def test_tops_are_the_largest_logits(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from circuits.inspection import answer_lens as module

    torch.manual_seed(0)
    readout = Readout(lambda h: h, torch.randn(16, 3000), torch.randn(3000))
    residual = torch.randn(2, 5, 16)
    monkeypatch.setitem(module.TILE, "cpu", width * 10)
    best = readout.logits(residual).log_softmax(-1).max(-1)
    found = top_tokens(readout, residual)
    assert torch.equal(found.token, best.indices)
    torch.testing.assert_close(found.log_prob, best.values)
    residual[0, 0] = torch.nan
    assert top_tokens(readout, residual).log_prob[0, 0].isnan()


def test_answers_that_are_no_text_are_refused(model: LanguageModel) -> None:
    bad: Any
    for bad, words in (("", "is empty"), ([], "empty list"), ([" a", " a"], "twice")):
        with pytest.raises(ValueError, match=words):
            inspect(model, TEXT, answer=bad)

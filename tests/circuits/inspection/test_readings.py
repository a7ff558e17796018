"""What an inspected prompt shows agrees with the model itself."""

from dataclasses import replace

import pytest
import torch

from circuits.inspection.alignment import alignment_with_last
from circuits.inspection.attention import SHOWN_HEADS, read_attention
from circuits.inspection.inspect import inspect
from circuits.inspection.lens import lens
from circuits.inspection.request import BACKENDS
from circuits.inspection.subject import residuals, show
from circuits.interventions.part import columns
from circuits.models import open as pretrained
from circuits.models.language_model import LanguageModel
from tests.random_models import N_LAYERS, letter_tokenizer, random_model
from trained.errors import BadInput
from trained.task import Batch

TEXT = "abcde"


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return pretrained.wrap(random_model("llama"), letter_tokenizer(), name="tiny")


@pytest.fixture(scope="module")
def prompt(model: LanguageModel) -> Batch:
    return model.prompts([TEXT], ["f"])


def test_the_command_knows_the_backends_that_open_knows() -> None:
    assert BACKENDS == pretrained.BACKENDS


def test_without_an_answer_the_model_s_own_is_followed(model: LanguageModel) -> None:
    found = inspect(model, TEXT)
    logits = model(found.prompt.tokens, found.prompt.mask)[0, -1].detach()
    assert int(found.prompt.targets[0]) == int(logits.argmax())
    assert found.answer_source == "the model's own"
    assert found.top[0] == (
        found.answer,
        pytest.approx(float(logits.softmax(-1).max())),
    )


def test_the_last_layer_s_lens_is_the_model_s_output(
    model: LanguageModel, prompt: Batch
) -> None:
    log_probs = model(prompt.tokens, prompt.mask)[0].log_softmax(-1).detach()
    reading = lens(model, prompt)
    torch.testing.assert_close(
        reading.probability.values[-1], log_probs.exp().amax(-1), rtol=1e-4, atol=1e-5
    )
    own = log_probs[-1, int(prompt.targets[0])]
    assert float(reading.log_prob.values[-1, 0]) == pytest.approx(float(own), 1e-4)
    better = int((log_probs[-1] > own).sum())
    assert float(reading.rank.values[-1, 0]) == better + 1
    assert reading.tokens[-1] == tuple(
        show(model, int(t)) for t in log_probs.argmax(-1)
    )


def test_the_lens_starts_at_the_embedding(model: LanguageModel, prompt: Batch) -> None:
    reading = lens(model, prompt)
    assert reading.rank.labels["layer"] == ("embedding", *"012")
    assert reading.rank.values.shape == (N_LAYERS + 1, 1)
    embedded = model.module.get_input_embeddings()(prompt.tokens)
    stream = residuals(model, prompt, columns(prompt, None))
    torch.testing.assert_close(stream[0], embedded)


def test_the_last_row_of_attention_is_a_distribution(
    model: LanguageModel, prompt: Batch
) -> None:
    reading = read_attention(model, prompt)
    rows = reading.last_row.values
    torch.testing.assert_close(rows.sum(-1), torch.ones_like(rows[..., 0]))
    layer, head = map(int, str(reading.patterns.labels["head"][0]).split("."))
    assert float(reading.concentration.values[layer, head]) == pytest.approx(
        float(reading.concentration.values.max())
    )
    pattern = reading.patterns.values[0]
    torch.testing.assert_close(pattern[-1].double(), rows[layer, head].double())
    assert len(reading.patterns.labels["head"]) == SHOWN_HEADS


def test_alignment_of_equal_residuals_is_perfect(model: LanguageModel) -> None:
    found = alignment_with_last(model, model.prompts(["abaab"]))
    # b, a, a before b: at the embedding, before positions act, tokens alone decide.
    assert float(found.values[0, 0]) == pytest.approx(1, abs=1e-5)
    assert float(found.values[0, 1]) < 0
    assert found.values.abs().max() <= 1 + 1e-5


def test_impossible_requests_are_refused(model: LanguageModel) -> None:
    with pytest.raises(BadInput, match="3 tokens, the prompt 5"):
        inspect(model, TEXT, corrupt="abc")
    with pytest.raises(BadInput, match="has one answer"):
        inspect(model, TEXT, corrupt=TEXT)
    with pytest.raises(BadInput, match="has 2 tokens; give at least 3"):
        inspect(model, "ab")
    with pytest.raises(BadInput, match="'ab' must be one token"):
        inspect(model, TEXT, answer="ab")
    with pytest.raises(BadInput, match="unknown signal 'smell'"):
        inspect(model, TEXT, signals=("smell",))


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_backend_gives_the_same_object(
    backend: str, model: LanguageModel
) -> None:
    wrapped = pretrained.wrap(
        random_model("llama"), letter_tokenizer(), backend=backend
    )
    signals = ("lens", "attention", "alignment", "patching")
    one, two = (
        inspect(opened, TEXT, answer="f", corrupt="abIde", signals=signals)
        for opened in (model, replace(wrapped, name="tiny"))
    )
    assert one.as_dict().keys() == two.as_dict().keys()
    for name in ("answer_rank", "answer_logprob"):
        assert two.as_dict()[name] == pytest.approx(one.as_dict()[name], abs=1e-3)
    assert one.patching is not None
    assert two.patching is not None
    torch.testing.assert_close(
        two.patching.values, one.patching.values, atol=1e-3, rtol=0
    )
    assert one.figures().keys() == {
        *("lens", "answer", "attention", "heads", "alignment", "patching")
    }

"""What an inspected prompt shows agrees with the model itself."""

from dataclasses import replace

import pytest
import torch

from circuits.inspection.alignment import read_alignment
from circuits.inspection.attention import SHOWN_HEADS, read_attention
from circuits.inspection.figures import all_figures
from circuits.inspection.inspect import inspect
from circuits.inspection.lens import EMBEDDING, read_lens, residuals
from circuits.inspection.patching import read_patching
from circuits.inspection.request import BACKENDS, InspectRequest
from circuits.inspection.subject import Subject, look_at
from circuits.models import open as pretrained
from circuits.models.language_model import LanguageModel
from tests.random_models import N_LAYERS, letter_tokenizer, random_model
from trained.errors import BadInput

TEXT = "abcde"


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return pretrained.wrap(random_model("llama"), letter_tokenizer(), name="tiny")


@pytest.fixture(scope="module")
def subject(model: LanguageModel) -> Subject:
    return look_at(model, TEXT, "f")


def test_the_command_knows_the_backends_that_open_knows() -> None:
    assert BACKENDS == pretrained.BACKENDS


def test_without_an_answer_the_model_s_own_is_followed(model: LanguageModel) -> None:
    found = look_at(model, TEXT)
    logits = model(found.prompts.tokens, found.prompts.mask)[0, -1].detach()
    assert found.answer == int(logits.argmax())
    assert found.answer_source == "the model's own"
    assert found.top[0][1] == pytest.approx(float(logits.softmax(-1).max()))


def test_the_last_layer_s_lens_is_the_model_s_output(subject: Subject) -> None:
    model, prompts = subject.model, subject.prompts
    log_probs = model(prompts.tokens, prompts.mask)[0].log_softmax(-1).detach()
    reading = read_lens(subject)
    torch.testing.assert_close(
        reading.probability.values[-1], log_probs.exp().amax(-1), rtol=1e-4, atol=1e-5
    )
    own = log_probs[-1, subject.answer]
    assert float(reading.answer_logprob.values[-1]) == pytest.approx(float(own), 1e-4)
    better = int((log_probs[-1] > own).sum())
    assert float(reading.answer_rank.values[-1]) == better + 1
    shown = tuple(subject.show(int(t)) for t in log_probs.argmax(-1))
    assert reading.top_tokens[-1] == shown


def test_the_lens_starts_at_the_embedding(subject: Subject) -> None:
    reading = read_lens(subject)
    assert reading.answer_rank.labels["layer"] == (EMBEDDING, *"012")
    assert reading.answer_rank.values.shape == (N_LAYERS + 1,)
    embedded = subject.model.module.get_input_embeddings()(subject.prompts.tokens)[0]
    torch.testing.assert_close(residuals(subject)[0], embedded)


def test_the_last_row_of_attention_is_a_distribution(subject: Subject) -> None:
    reading = read_attention(subject)
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
    found = read_alignment(look_at(model, "abaab"))
    # b, a, a before b: at the embedding, before positions act, tokens alone decide.
    assert float(found.values[0, 0]) == pytest.approx(1, abs=1e-5)
    assert float(found.values[0, 1]) < 0
    assert found.values.abs().max() <= 1 + 1e-5


def test_patching_the_last_residual_restores_all_and_the_past_nothing(
    model: LanguageModel,
) -> None:
    subject = look_at(model, "abcde", "f")
    share = read_patching(subject, "abIde").values
    assert float(share[-1, -1]) == pytest.approx(1, abs=1e-4)
    # Before the changed letter nothing differs; after the last layer no other
    # position can reach the answer.
    torch.testing.assert_close(share[:, :2], torch.zeros_like(share[:, :2]))
    torch.testing.assert_close(share[-1, :-1], torch.zeros_like(share[-1, :-1]))
    assert float(share[0, 2]) != 0


def test_impossible_requests_are_refused(model: LanguageModel) -> None:
    subject = look_at(model, "abcde")
    with pytest.raises(BadInput, match="3 tokens, the prompt 5"):
        read_patching(subject, "abc")
    with pytest.raises(BadInput, match="to the corrupt prompt as well"):
        read_patching(subject, "abcde")
    request = InspectRequest("tiny", ("ab",))
    with pytest.raises(BadInput, match="has 2 tokens; give at least 3"):
        inspect(look_at(model, "ab"), request)
    with pytest.raises(BadInput, match="'ab' must be one token"):
        look_at(model, "abcde", "ab")


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_backend_gives_the_same_object(
    backend: str, model: LanguageModel
) -> None:
    other = pretrained.wrap(random_model("llama"), letter_tokenizer(), backend=backend)
    request = InspectRequest(
        "tiny",
        (TEXT,),
        corrupt="abIde",
        signals=("lens", "attention", "alignment", "patching"),
    )
    one = inspect(look_at(model, TEXT, "f"), request)
    two = inspect(look_at(replace(other, name="tiny"), TEXT, "f"), request)
    assert one.as_dict().keys() == two.as_dict().keys()
    for name in ("answer_rank", "answer_logprob"):
        assert two.as_dict()[name] == pytest.approx(one.as_dict()[name], abs=1e-3)
    assert one.patching is not None
    assert two.patching is not None
    torch.testing.assert_close(
        two.patching.values, one.patching.values, atol=1e-3, rtol=0
    )
    assert dict(all_figures(one)).keys() == {
        *("lens", "answer", "attention", "heads", "alignment", "patching")
    }

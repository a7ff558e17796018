"""What an inspected prompt shows agrees with the model itself."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from circuits.inspection.attention import SHOWN_HEADS, attention
from circuits.inspection.inspect import inspect
from circuits.inspection.lens import lens
from circuits.inspection.subject import residuals, show
from circuits.interventions.part import columns
from circuits.models import open as pretrained
from circuits.models.choices import BACKENDS
from circuits.models.language_model import LanguageModel
from probes.figures import save
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


def test_the_last_row_of_attention_is_a_distribution(model: LanguageModel) -> None:
    reading = inspect(model, TEXT, answer="f").attention
    assert reading is not None
    rows = reading.last_row.values
    torch.testing.assert_close(rows.sum(-1), torch.ones_like(rows[..., 0]))
    layer, head = map(int, str(reading.patterns.labels["head"][0]).split("."))
    assert float(reading.concentration.values[layer, head]) == pytest.approx(
        float(reading.concentration.values.max())
    )
    pattern = reading.patterns.values[0]
    torch.testing.assert_close(pattern[-1], rows[layer, head])
    torch.testing.assert_close(pattern.sum(-1), torch.ones(len(TEXT)))
    assert len(reading.patterns.labels["head"]) == SHOWN_HEADS


def test_mass_on_roles_is_that_of_attention(model: LanguageModel) -> None:
    text = "abcdefgh"
    found = inspect(model, text, roles={"one": "bc", "two": "f"}).attention
    assert found is not None
    mass = found.mass
    assert mass is not None
    assert mass.labels["look"] == ("last on one", "last on two", "two on one")
    prompts = model.prompts([text])
    for look, phrase, query in (("last on one", "bc", "last"), ("two on one", "bc", 5)):
        alone = attention(model, prompts, to=phrase, query=query)
        own = mass.select(keys="role", look=look).values
        torch.testing.assert_close(own.double(), alone.values)
    # Two of the seven tokens behind the first get two sevenths of what these get.
    elsewhere = mass.select(keys="elsewhere", look="last on one").values
    behind = found.last_row.values[..., 1:].sum(-1)
    torch.testing.assert_close(elsewhere, behind * 2 / 7)
    gain = (mass.values[0] - mass.values[1])[:2].amax(0)
    layer, head = divmod(int(gain.argmax()), gain.shape[1])
    assert found.patterns.labels["head"][0] == f"{layer}.{head}"


def test_alignment_of_equal_tokens_is_perfect(model: LanguageModel) -> None:
    text = "kabcdeafgb"
    roles = {"one": [1, 2], "two": [6, 7], "three": [4, 5]}
    found = inspect(model, text, roles=roles, signals=("alignment",)).alignment
    assert found is not None
    same = found.select(pair="one and two")
    # At the embedding, before positions act, tokens alone decide.
    assert float(same.select(of="roles").values[0]) == pytest.approx(1, abs=1e-5)
    assert float(same.select(of="as near").values[0]) == 0
    other = found.select(pair="one and three")
    assert float(other.select(of="roles").values[0]) < 0.9
    assert float(other.select(of="as near").values.max()) > 0
    low, mean, high = (
        found.select(of=name).values for name in ("low", "other tokens", "high")
    )
    assert bool(((low <= mean) & (mean <= high)).all())


def test_alignment_equals_the_definition(model: LanguageModel) -> None:
    text = "abcdefghij"
    found = inspect(model, text, roles={"one": "cd"}, signals=("alignment",)).alignment
    assert found is not None
    prompt = model.prompts([text])
    stream = residuals(model, prompt, columns(prompt, None))[:, 0, 1:].double()
    stream = stream - stream.mean(1, keepdim=True)
    unit = stream / stream.norm(dim=-1, keepdim=True)
    cosines = torch.einsum("lpd,ld->lp", unit, unit[:, 2])
    own = found.select(pair="one and last")
    torch.testing.assert_close(own.select(of="roles").values.double(), cosines[:, -1])
    null = cosines[:, [0, 3, 4, 5, 6, 7]]
    torch.testing.assert_close(
        own.select(of="other tokens").values.double(), null.mean(1)
    )


def test_impossible_requests_are_refused(model: LanguageModel) -> None:
    with pytest.raises(BadInput, match="3 tokens, the prompt 5"):
        inspect(model, TEXT, corrupt="abc", signals=("patching",))
    with pytest.raises(BadInput, match="has one answer"):
        inspect(model, TEXT, corrupt=TEXT, signals=("patching",))
    with pytest.raises(BadInput, match="has 2 tokens; give at least 3"):
        inspect(model, "ab")
    with pytest.raises(BadInput, match="unknown signal 'smell'"):
        inspect(model, TEXT, signals=("smell",))
    with pytest.raises(BadInput, match="unknown field 'anser'; choose from: answer"):
        inspect(model, TEXT, anser="f")
    with pytest.raises(BadInput, match="alignment compares roles"):
        inspect(model, TEXT, signals=("alignment",))
    with pytest.raises(BadInput, match="at most 32"):
        inspect(model, "a" * 33)


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_backend_gives_the_same_object(
    backend: str, model: LanguageModel
) -> None:
    wrapped = pretrained.wrap(
        random_model("llama"), letter_tokenizer(), backend=backend
    )
    signals = ("lens", "attention", "alignment", "patching")
    asked = {"answer": "f", "corrupt": "abIdegh", "roles": {"one": "b"}}
    one, two = (
        inspect(opened, "abcdegh", signals=signals, **asked)
        for opened in (model, replace(wrapped, name="tiny"))
    )
    assert one.as_dict().keys() == two.as_dict().keys()
    for name in ("answer_rank", "answer_logprob"):
        assert two.as_dict()[name] == pytest.approx(one.as_dict()[name], abs=1e-3)
    for name in ("attention_mass", "alignment"):
        values = (torch.tensor(i.as_dict()[name]["values"]) for i in (two, one))
        torch.testing.assert_close(*values, atol=1e-3, rtol=0)
    assert one.patching is not None
    assert two.patching is not None
    torch.testing.assert_close(
        two.patching.values, one.patching.values, atol=1e-3, rtol=0
    )
    assert one.figures().keys() == {
        *("lens", "answer", "logit", "attention", "heads", "mass"),
        *("alignment", "patching"),
    }


def test_dollars_are_no_formulas(model: LanguageModel, tmp_path: Path) -> None:
    """A token such as `$` would otherwise begin a formula, and a broken one fail."""
    found = inspect(model, "abcdef", answer="g", roles={"$x$": "b", "$\\frac$": "d"})
    for name, figure in found.figures().items():
        save(figure, tmp_path / f"{name}.svg", foot=found.origin)
        assert "mathdefault" not in (tmp_path / f"{name}.svg").read_text()


def test_the_embedding_does_not_set_the_colours_of_the_logits(
    model: LanguageModel,
) -> None:
    found = inspect(model, TEXT)
    huge = found.logit.values.clone()
    huge[0] = 1000.0
    found = replace(found, logit=replace(found.logit, values=huge))
    image = found.figures()["logit"].axes[0].images[0]
    most = float(huge[1:].abs().max())
    assert image.get_clim() == pytest.approx((-most, most))
    assert image.colorbar is not None
    assert image.colorbar.extend == "max"

"""Two models on one prompt: what differs between them, and nothing else, shows."""

import copy
from typing import Any

import pytest
import torch

from circuits.inspection.comparison import Comparison
from circuits.inspection.inspect import Inspection, inspect
from circuits.models import open as pretrained
from circuits.models.language_model import LanguageModel
from tests.random_models import letter_tokenizer, random_model
from tests.word_models import word_model
from trained.errors import BadInput

ASKED: dict[str, Any] = {
    "answer": "k",
    "roles": {"one": "c"},
    "corrupt": "abIdefgh",
    "corrupt_answer": "m",
    "signals": ("attention", "alignment", "patching"),
}


def seen(model: LanguageModel) -> Inspection:
    return inspect(model, "abcdefgh", **ASKED)


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    hf = random_model("llama").requires_grad_(False)
    return pretrained.wrap(hf, letter_tokenizer(), name="before")


def test_only_what_a_change_reaches_differs(model: LanguageModel) -> None:
    hf = copy.deepcopy(model.module)
    hf.model.layers[1].self_attn.o_proj.weight.mul_(2)
    found = Comparison(seen(model), seen(pretrained.wrap(hf, letter_tokenizer())))
    changes = found.differences()
    assert set(changes) == {
        *("log_prob", "rank", "logit", "attention", "mass", "alignment", "patching"),
    }
    for name in ("log_prob", "logit", "alignment"):
        # The embedding and layer 0 come before the change.
        by_layer = changes[name].values.movedim(changes[name].axes.index("layer"), 0)
        assert float(by_layer[:2].abs().max()) == 0
        assert float(by_layer[2:].abs().max()) > 1e-3
    assert float(changes["attention"].values[:2].abs().max()) == 0
    assert float(changes["attention"].values[2].abs().max()) > 0
    beside = found.beside()["log_prob"]
    assert beside.labels["model"] == ("before", "model")
    assert changes["log_prob"].name.endswith(": model minus before")
    own = beside.values[1] - beside.values[0]
    torch.testing.assert_close(own, changes["log_prob"].values)


def test_a_model_is_equal_to_itself(model: LanguageModel) -> None:
    found = Comparison(seen(model), seen(model))
    assert found.models == ("before", "before (against)")
    for change in found.differences().values():
        assert float(change.values.abs().max()) == 0
    assert set(found.figures()) == {
        *("answer", "logit", "attention", "mass", "alignment", "patching"),
    }


def test_models_that_cannot_be_compared_are_refused(model: LanguageModel) -> None:
    other = word_model(["abcdefgh x"])
    with pytest.raises(BadInput, match="compare models that share a tokenizer"):
        Comparison(inspect(model, "abcdefgh x"), inspect(other, "abcdefgh x x"))
    small = random_model("gpt2").requires_grad_(False)
    small.transformer.h = small.transformer.h[:2]
    small.config.n_layer = 2
    less = pretrained.wrap(small, letter_tokenizer())
    with pytest.raises(BadInput, match="compare models of one shape"):
        Comparison(inspect(model, "abcdefgh"), inspect(less, "abcdefgh"))

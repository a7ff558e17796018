"""Fine-tuned copies of tiny models: what they learn, and what stays as it was."""

from dataclasses import replace

import pytest
import torch

from circuits.models import open as pretrained
from circuits.models.language_model import LanguageModel
from circuits.models.open import behind
from circuits.models.tuned import fine_tuned
from tests.word_models import word_model
from trained.errors import BadInput
from trained.facts import Fact, answer_scores, encode
from trained.finetuning import Curriculum
from trained.finetuning_config import FineTuning

NAMES = ["Ada", "Ben", "Cleo", "Dan", "Eva", "Finn"]
COLOURS = ["red", "blue", "green", "grey", "white", "black"]
FACTS = [
    Fact(f"<s>{name} likes", f" {colour}")
    for name, colour in zip(NAMES, COLOURS, strict=True)
]
LISTS = {"trained": FACTS[:4], "unseen": FACTS[4:]}
ONCE = Curriculum("once", (("trained",),))
SHORT = FineTuning(epochs=25, batch_size=4, lr=0.01, last_layers=1)


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return word_model([fact.prompt + fact.answer for fact in FACTS])


def exact(model: LanguageModel, name: str) -> float:
    _, hf = behind(model.module)
    with torch.no_grad():
        scores = answer_scores(hf, encode(model.tokenizer, LISTS[name]))
    return float(scores.exact.mean())


@pytest.mark.parametrize("backend", ["hf", "nnsight"])
def test_the_copy_learns_and_the_model_stays(model, backend) -> None:
    opened = pretrained.wrap(model.module, model.tokenizer, backend=backend)
    before = {k: v.clone() for k, v in model.module.state_dict().items()}
    tuned = fine_tuned(opened, ONCE, LISTS, 0, SHORT)
    assert exact(opened, "trained") < 1
    assert exact(tuned, "trained") == 1
    assert exact(tuned, "unseen") == 0
    kind, hf = behind(tuned.module)
    assert kind == backend
    assert not any(p.requires_grad for p in hf.parameters())
    for name, value in hf.state_dict().items():
        assert torch.equal(value, before[name]) == ("layers.1." not in name)
        assert torch.equal(model.module.state_dict()[name], before[name])


def test_the_copy_is_observed_like_the_model(model) -> None:
    tuned = fine_tuned(model, ONCE, LISTS, 0, SHORT)
    prompts = tuned.prompts([fact.prompt for fact in LISTS["trained"]])
    logits = tuned(prompts.tokens, prompts.mask)[:, -1]
    answers = [tuned.token(fact.answer) for fact in LISTS["trained"]]
    assert logits.argmax(-1).tolist() == answers
    assert tuned.name == "model after once"


def test_a_bridge_is_refused(model) -> None:
    bridged = pretrained.wrap(model.module, model.tokenizer, backend="bridge")
    with pytest.raises(BadInput, match="backend hf or nnsight"):
        fine_tuned(bridged, ONCE, LISTS, 0, SHORT)


def test_seeds_order_the_facts(model) -> None:
    single = replace(SHORT, batch_size=1, epochs=2)
    first, again, other = (
        fine_tuned(model, ONCE, LISTS, seed, single)
        .module.get_submodule("model.layers.1.mlp.down_proj")
        .weight.sum()
        for seed in (0, 0, 1)
    )
    assert first == again
    assert first != other

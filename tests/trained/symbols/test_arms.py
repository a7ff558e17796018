from dataclasses import replace

import pytest
import torch

from trained.arm import SHUFFLED
from trained.config import override
from trained.errors import BadInput
from trained.symbols.arms import alphabet_of, arm, arm_name, arms, model_of, strings_of
from trained.symbols.config import (
    Config,
    Copying,
    LastLayer,
    Psychometric,
    Recall,
    Shape,
    Training,
)
from trained.symbols.presets import PRESETS, QUICK
from trained.symbols.scores import loss
from trained.symbols.setting import (
    copying,
    head_only,
    perceptron,
    psychometric,
    rates,
    recalling,
    relation,
    settings,
    steps,
    twinned,
)
from trained.trainer import Engine
from trained.training import train

TINY = Config(
    n=(8, 16),
    small_n=(),
    mlp_n=(8, 16),
    both_tasks=("majority-4@16",),
    plain_tasks=("random-2-5-2-2@16",),
    variants=("depth1", "networks"),
    model=Shape(d_model=8, n_heads=2, d_head=4),
    training=Training(
        lrs=(1e-2, 3e-2), max_steps=4, mlp_steps=5, mlp_sgd_steps=5, n_test=20
    ),
    last_layer=LastLayer(n=16, epochs=3),
    copying=Copying(d_model=(4, 8), n=(4, 8), span_n=4, steps=2),
    recall=Recall(n=(8,), max_steps=2, d_model=8, n_heads=2, d_head=4),
    psychometric=Psychometric(
        n=(16, 128), d_model=8, n_heads=2, d_head=4, steps=2, n_test=20
    ),
)


@pytest.mark.parametrize("config", [TINY, *(p.config for p in PRESETS.values())])
def test_every_arm_has_a_name_of_its_own(config):
    names = [setting.name for setting in settings(config)]
    assert len(set(names)) == len(names)
    assert not any(sign in name for name in names for sign in " >|/")


def test_vanilla_and_modified_have_the_same_grid_strings_and_weights():
    plain, changed = relation(TINY, 16), relation(TINY, 16, "a")
    assert rates(TINY, plain) == rates(TINY, changed) == (1e-2, 3e-2)
    assert steps(TINY, plain) == steps(TINY, changed)
    for split, strings in strings_of(TINY, plain, 3).items():
        other = strings_of(TINY, changed, 3)[split]
        assert torch.equal(strings.tokens, other.tokens)
    weights = model_of(TINY, changed, 3).state_dict()
    for name, tensor in model_of(TINY, plain, 3).state_dict().items():
        assert torch.equal(tensor, weights[name])


def test_seeds_differ():
    setting = relation(TINY, 16)
    first, second = (strings_of(TINY, setting, seed)["train"] for seed in (0, 1))
    assert not torch.equal(first.tokens, second.tokens)


@pytest.mark.parametrize("d_model", [32, 256, 512])
def test_models_that_copy_have_full_rank_two_layers_and_mlps(d_model):
    model = model_of(TINY, copying(TINY, d_model, 8, "b"), 0)
    assert model.config.n_heads * model.config.head_size >= d_model
    assert model.config.mlp_size == 2 * d_model
    assert model.config.n_layers == 2
    assert model.config.value_output_identity == TINY.copying.multiplier


def test_what_the_presets_train():
    assert TINY.compared_n == 16
    assert QUICK.identity_n == (16, 32, 64, 256)
    assert replace(QUICK, n=(16, 256)).identity_n == (16, 32, 256)
    found = settings(QUICK)
    assert relation(QUICK, 1024) in found
    assert relation(QUICK, 1024, "a") not in found
    assert perceptron(QUICK, "aba_abb", 1024) in found
    assert recalling(QUICK, 4096, "ab") in found
    assert not any(setting.role == "psychometric" for setting in found)
    paper = PRESETS["paper"].config
    assert psychometric(paper, "raven", 8192) in settings(paper)
    assert relation(paper, 512, "ab", "majority-4") in settings(paper)


def test_random_templates_are_each_seeds_own():
    setting = relation(TINY, 16, name="random-2-5-2-2")
    assert setting in settings(TINY)
    tasks = [alphabet_of(TINY, setting, seed).task for seed in (0, 1)]
    assert tasks[0].templates != tasks[1].templates
    sizes = {alphabet_of(TINY, setting, seed).d_vocab for seed in range(5)}
    assert len(sizes) == 1


def test_few_symbols_and_noisy_labels_are_asked_for():
    training = replace(TINY.training, train_alphabet=4, label_noise=0.5)
    config = replace(TINY, training=training)
    strings = strings_of(config, relation(config, 16), 0)
    assert len(strings["train"].tokens[:, :-1].unique()) <= 4
    assert len(set(strings["train"].targets.tolist())) == 16
    assert set(strings["test"].targets.tolist()) == {-1.0, 1.0}


def test_twins_learn_the_same_strings_with_permuted_answers():
    config = replace(TINY, twins="all")
    found = {one.name: one for one in arms(config)}
    plain = [name for name in found if not name.endswith(SHUFFLED)]
    controls = [s for s in settings(config) if s.is_control]
    assert not set(controls) & set(twinned(config))
    assert len(twinned(config)) == len(settings(config)) - len(controls)
    assert len(plain) < len(found) < 2 * len(plain)
    name = arm_name(relation(config, 16, "a"), 1e-2)
    real, twin = (found[n].stages[0].data(0, 0) for n in (name, name + SHUFFLED))
    assert torch.equal(real.tokens, twin.tokens)
    assert not torch.equal(real.targets, twin.targets)
    assert torch.equal(real.targets.sort().values, twin.targets.sort().values)


def test_nulls_are_trained_with_fewer_seeds():
    found = {one.name: one for one in arms(TINY)}
    twins = [one for name, one in found.items() if name.endswith(SHUFFLED)]
    assert {one.max_seeds for one in twins} == {1}
    judged = relation(TINY, 16, "a")
    assert judged in twinned(TINY)
    assert found[arm_name(judged, 1e-2)].max_seeds is None
    control = relation(TINY, 16, "aQ")
    assert found[arm_name(control, 1e-2)].max_seeds == 1


def test_controls_start_from_the_vanilla_weights():
    for role in (relation(TINY, 16, "aQ"), copying(TINY, 8, 8, "bQ")):
        plain = model_of(TINY, replace(role, identity="none"), 0).state_dict()
        control = model_of(TINY, role, 0).state_dict()
        assert all(torch.equal(control[name], plain[name]) for name in plain)
        assert any("orthogonal" in name for name in control)


def test_only_the_readout_learns_above_frozen_weights(new_run):
    setting = head_only(TINY, 8.0)
    chosen = arm(TINY, setting, 1e-2)
    run = new_run("head")
    train(run, [chosen], engine=Engine())
    seed, frozen = run.seeds[0], model_of(TINY, setting, run.seeds[0])
    trained = run.weights(chosen.name)
    assert set(trained) == {"unembedding", "b_U"}
    assert not torch.equal(trained["unembedding"][0], frozen.unembedding)
    # What is recorded is what the whole network says with this readout.
    with torch.no_grad():
        frozen.unembedding.copy_(trained["unembedding"][0])
        frozen.b_U.copy_(trained["b_U"][0])
        found = float(loss(frozen, strings_of(TINY, setting, seed)["test"]))
    recorded = float(run.metrics(chosen.name)["test"][0, -1])
    assert found == pytest.approx(recorded, rel=1e-4)


def test_training_records_what_selection_needs(new_run):
    run = new_run("tiny")
    chosen = [a for a in arms(TINY) if a.name.startswith("copy-copy-n8-d8-l2-b-")]
    train(run, chosen, engine=Engine())
    metrics = run.metrics(chosen[0].name)
    assert {"validation", "test_error", "test_error_restricted"} <= set(metrics)
    assert metrics["validation"].shape == (len(run.seeds), len(metrics["step"]))


def test_a_split_never_sees_anothers_symbols():
    setting = relation(TINY, 16)
    tokens, strings = alphabet_of(TINY, setting), strings_of(TINY, setting, 0)
    for split, found in strings.items():
        symbols = found.tokens[:, :-1]
        assert int(symbols.min()) >= tokens.ids[split].start
        assert int(symbols.max()) < tokens.ids[split].stop


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("task=copy", "task 'copy': its labels must be numbers"),
        ("task=aab -> 1 | aba -> c", "numbers and symbols"),
        ("task=aA -> 1 | ab -> -1", "'aA' and 'ab' overlap"),
        ("recall.task=aba_abb", "its labels must be symbols"),
        ("training.held_out_symbols=1", "task aba_abb needs 2"),
        ("n=64,16", r"n=\(64, 16\): must rise"),
        ("n=", "n is empty"),
        ("n=1,64", "n=1: at least 2 strings"),
        ("small_n=32,16", r"small_n=\(32, 16\): must rise"),
        ("training.lrs=0", "must be positive and finite"),
        ("training.lrs=inf", "must be positive and finite"),
        ("training.label_noise=-1", "label_noise=-1.0: at least 0"),
        ("multiplier=0", "multiplier=0.0: must be positive"),
        ("multiplier=inf", "multiplier=inf: must be positive and finite"),
        ("recall.depth=0", "depth=0: at least 1"),
        ("model.depth=0", "depth=0: at least 1"),
        ("both_tasks=majority-4", "'majority-4': write TASK@N"),
        ("mlp_tasks=figure1", "MLP task 'figure1': wildcards only"),
        ("psychometric.n=256,512", "the second 8 times the first"),
        ("last_layer.scales=1,8", "three"),
        ("kernel.tasks=", "kernel.tasks is empty"),
        ("kernel.tasks=aba_abb,aba_abb", "one twice"),
        ("kernel.tasks=figure1", "wildcards only"),
        ("kernel.matrix_tasks=figure2", "numbers only"),
        ("kernel.betas=6,1", "two rising numbers"),
        ("kernel.n=64,16", "must rise"),
        ("first_step.d_model=16,64", "one of at most 32, four of at least 64"),
        ("first_step.n_seen=40", "choose 1 to 39"),
        ("training.record_every=0", "record_every=0: at least 1"),
    ],
)
def test_bad_values_are_one_clear_line(assignment, message):
    with pytest.raises(BadInput, match=message) as raised:
        override(QUICK, [assignment])
    assert "\n" not in str(raised.value)


def test_a_written_task_can_be_trained(new_run):
    config = replace(TINY, task="aab -> 1 | aba -> -1", n=(8,), mlp_n=(8,))
    run = new_run("written")
    (chosen,) = [
        arm(config, setting, 1e-2)
        for setting in settings(config)
        if setting == relation(config, 8, "a")
    ]
    assert chosen.name.startswith("relation-written-")
    train(run, [chosen], engine=Engine())
    assert run.is_done(chosen.name)

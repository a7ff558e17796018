from dataclasses import replace

import pytest
import torch

from trained.arm import SHUFFLED
from trained.config import override
from trained.errors import BadInput
from trained.symbols.arms import (
    alphabet_of,
    arm,
    arm_name,
    arms,
    model_of,
    rates,
    strings_of,
)
from trained.symbols.config import (
    PAPER,
    PRESETS,
    QUICK,
    Config,
    Copying,
    Recall,
    Shape,
    Training,
)
from trained.symbols.setting import (
    baseline,
    copying,
    others,
    recalling,
    relation,
    settings,
    steps,
    variants,
)
from trained.trainer import Engine
from trained.training import train

TINY = Config(
    n=(8, 16),
    variants=("rotated", "depth1", "both", "mimetic", "recurrent", "last_layer"),
    model=Shape(d_model=8, n_heads=2, d_head=4),
    training=Training(lrs=(1e-2, 3e-2), max_steps=4, n_test=20),
    copying=Copying(d_model=(4, 8), n=(4, 8), steps=2),
    recall=Recall(n=(8,), steps=2),
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
def test_heads_that_copy_can_reach_full_rank(d_model):
    model = model_of(TINY, copying(d_model, 8, "b"), 0)
    assert model.config.n_heads * model.config.head_size >= d_model
    assert model.config.mlp_size == 0


def test_where_plus_ai_and_variants_are_trained():
    assert TINY.compared_n == 16
    assert QUICK.identity_n == (16, 64, 256)
    assert replace(QUICK, n=(16, 256)).identity_n == (16, 256)
    found = settings(QUICK)
    assert relation(QUICK, 1024) in found
    assert relation(QUICK, 1024, "a") not in found
    assert baseline(QUICK, 1024, "mlp_incidence") in found
    assert not any(setting.role == "recall" for setting in found)
    assert recalling(PAPER, 4096, "ab") in settings(PAPER)
    for name in PAPER.other_tasks:
        assert set(others(PAPER, name)) <= set(settings(PAPER))


def test_twins_learn_the_same_strings_with_permuted_answers():
    config = replace(TINY, twins=True)
    found = {one.name: one for one in arms(config)}
    plain = [name for name in found if not name.endswith(SHUFFLED)]
    assert plain == [one.name for one in arms(TINY)]
    assert len(found) == 2 * len(plain)
    name = arm_name(relation(config, 16, "a"), 1e-2)
    real, twin = (found[n].stages[0].data(0, 0) for n in (name, name + SHUFFLED))
    assert torch.equal(real.tokens, twin.tokens)
    assert not torch.equal(real.targets, twin.targets)
    assert torch.equal(real.targets.sort().values, twin.targets.sort().values)


def test_the_head_only_variant_trains_the_head_only(new_run):
    setting = variants(TINY)["last_layer"][1]
    chosen = arm(TINY, setting, 1e-2)
    run = new_run("head")
    train(run, [chosen], engine=Engine())
    trained, initial = run.weights(chosen.name), model_of(TINY, setting, run.seeds[0])
    changed = {
        name
        for name, tensor in initial.state_dict().items()
        if not torch.equal(trained[name][0], tensor)
    }
    assert changed == {"unembedding", "b_U"}


def test_training_records_what_selection_needs(new_run):
    run = new_run("tiny")
    chosen = [a for a in arms(TINY) if a.name.startswith("copy-copy-n8-d8-l1-b")]
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
        ("small_n=32,16", r"small_n=\(32, 16\): must rise"),
        ("training.lrs=0", "must be positive"),
        ("multiplier=0", "multiplier=0.0: must be positive"),
        ("recall.depth=0", "depth=0: at least 1"),
        ("model.depth=0", "depth=0: at least 1"),
        ("kernel.tasks=", "kernel.tasks is empty"),
        ("kernel.tasks=aba_abb,aba_abb", "one twice"),
        ("kernel.tasks=figure1", "numbers for wildcards only"),
        ("kernel.tasks=random-9", "9 templates, at most 8"),
        ("kernel.n=64,16", "must rise"),
        ("first_step.d_model=16,64", "from at most 32 to at least 256"),
        ("first_step.n_seen=40", "choose 1 to 39"),
        ("training.record_every=0", "record_every=0: at least 1"),
    ],
)
def test_bad_values_are_one_clear_line(assignment, message):
    with pytest.raises(BadInput, match=message) as raised:
        override(QUICK, [assignment])
    assert "\n" not in str(raised.value)


def test_a_written_task_can_be_trained(new_run):
    config = replace(TINY, task="aab -> 1 | aba -> -1", n=(8,))
    run = new_run("written")
    (chosen,) = [
        arm(config, setting, 1e-2)
        for setting in settings(config)
        if setting == relation(config, 8, "a")
    ]
    assert chosen.name.startswith("relation-written-")
    train(run, [chosen], engine=Engine())
    assert run.is_done(chosen.name)

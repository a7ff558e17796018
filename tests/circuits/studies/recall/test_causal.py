import pytest
import torch

from circuits.claims import judge
from circuits.hooks import intervene, record
from circuits.sites import Site
from circuits.studies.recall import causal, causal_answer
from circuits.studies.recall.claims_causal import (
    causes,
    disruptions,
    second_step_causes,
)
from circuits.studies.recall.context import (
    MEMORY,
    PATTERN,
    Context,
    crossed_pairs,
    pairs_of,
    relation_accuracy,
    relation_logits,
)
from trained.config import as_dict
from trained.errors import BadInput
from trained.recall import setting
from trained.recall.config import Config
from trained.recall.model import RecallModel, memory_neurons
from trained.recall.prompts import confusing_relations
from trained.recall.relations import affine_table
from trained.recall.scores import install
from trained.seeding import generator
from trained.store import Run

CONFIG = Config(n_test=400)
SUBJECTS = (3, 4, 5, 8)


def scores(*weights):
    return torch.tensor(weights, dtype=torch.float64).clamp_min(1e-26).log()


LIGHT_FIRST = scores(*causal.PAIRWISE)
HEAVY_FIRST = scores(*causal.MIRRORED)
UNIFORM = torch.zeros(6)
LOOKS_AT_QUERY = scores(0.1, 0.05, 0.1, 0.05, 0.6, 0.05, 0.05)


def known(table, seed=0, theta=LIGHT_FIRST) -> RecallModel:
    """Lemma 1's memory, read by a pairwise pattern that is set by hand."""
    return install(setting.constructed_model(table, 2, seed), theta, LOOKS_AT_QUERY)


def absent(table, seed=0, theta=LIGHT_FIRST) -> RecallModel:
    """The same attention, but the memory's values belong to other keys."""
    model = known(table, seed, theta)
    values = model.memory.W_out
    order = torch.randperm(len(values), generator=generator(seed, "absent"))
    values.data = values.data[order]
    return model


def planted(path, config, build, seeds=(0,), mode="full", kind="affine") -> Run:
    """A run whose full fine-tuning ended, we pretend, in the given model.

    Its step 0 holds the untrained model, as in a real run.
    """
    manifest = {"study": "recall", "config": as_dict(config), "seeds": list(seeds)}
    run = Run.create(path, manifest)
    arm = f"{mode}-{kind}"
    tables = [setting.table_of(config, kind, seed) for seed in seeds]
    starts = [
        setting.constructed_model(table, config.n_examples, seed)
        for table, seed in zip(tables, seeds, strict=True)
    ]
    ends = [build(table, seed) for table, seed in zip(tables, seeds, strict=True)]
    for step, models in ((0, starts), (1, ends)):
        states = [model.state_dict() for model in models]
        stacked = {key: torch.stack([s[key] for s in states]) for key in states[0]}
        run.save_weights(arm, step, stacked)
    record = {"seeds": list(seeds), "saved_steps": [0, 1], "seconds": 0.0}
    run.finish(arm, {}, record)
    return run


def prompts_of(n, seed=0):
    table = affine_table(n, generator=generator(seed, "affine", n))
    return setting.unseen_prompts(table, 2, 300, seed)


def observed(run):
    context = Context(run)
    return {**causal.observe(context), **causal_answer.observe(context)}


def verdicts(run, config):
    claims = (*causes(config), *disruptions(config), *second_step_causes())
    return {v.claim.id: v for v in judge(claims, observed(run))}


@pytest.mark.parametrize("theta", [LIGHT_FIRST, HEAVY_FIRST])
def test_every_intervention_finds_the_known_circuit(tmp_path, theta):
    run = planted(
        tmp_path / "run", CONFIG, lambda table, seed: known(table, seed, theta), (0, 1)
    )
    for key, verdict in verdicts(run, CONFIG).items():
        assert verdict.passed, (key, verdict.observed)


@pytest.mark.parametrize("n", [3, 4, 5, 9])
def test_the_known_circuit_is_found_at_other_sizes(tmp_path, n):
    config = Config(n_subjects=n, n_relations=6, n_test=300)
    found = verdicts(planted(tmp_path / "run", config, known), config)
    for key, verdict in found.items():
        assert verdict.passed, (key, verdict.observed)


def test_without_the_memory_nothing_is_found(tmp_path):
    run = planted(tmp_path / "run", CONFIG, absent, (0, 1))
    found = verdicts(run, CONFIG)
    # The conflict is judged on a model of its own.
    others = [v for key, v in found.items() if key != "recall.cause.conflict"]
    assert not any(v.passed for v in others), [v.claim.id for v in others if v.passed]


def test_without_the_memory_interventions_change_nothing_systematic():
    prompts = prompts_of(8)
    model = absent(prompts.table)
    m = len(prompts.table)
    measures = {
        **causal._attention(model, prompts),
        **causal._knock_outs(model, prompts),
        **causal._neurons(model, prompts),
        **causal._replaced_pair(model, prompts, 0),
    }
    for name, (value, control) in measures.items():
        # Chance is 1/56; the shuffled memory is no oracle, nor is it an anti-oracle.
        assert value <= 1 / m + 0.1, name
        assert control <= 1 / m + 0.1, name


def test_an_untrained_model_has_no_pattern_to_knock_out():
    prompts = prompts_of(8)
    model = known(prompts.table, theta=UNIFORM)
    (worst, others) = causal._knock_outs(model, prompts)["knock-out"]
    assert relation_accuracy(model, prompts) == pytest.approx(1 / 6, abs=1e-6)
    assert worst <= 1 / 3
    assert others <= 1 / 2 + 1e-6


@pytest.mark.parametrize("n", SUBJECTS)
def test_attention_by_hand(n):
    """The section's table, value by value, where the rest is exactly zero."""
    prompts = prompts_of(n)
    model = known(prompts.table)

    def under(*weights):
        edit = {PATTERN: causal.attend(tuple(weights))}
        with intervene(model, edit):
            accuracy = relation_accuracy(model, prompts)
            best = relation_logits(model, prompts).argmax(1, keepdim=True)
        confused = confusing_relations(prompts).gather(1, best).double().mean()
        return accuracy, float(confused)

    assert under(*causal.UNIFORM)[0] == pytest.approx(1 / 6, abs=1e-6)
    assert under(*causal.SADDLE)[0] == pytest.approx(1 / 2, abs=1e-6)
    assert under(*causal.PAIRWISE) == (1.0, 0.0)
    assert under(*causal.MIRRORED) == (1.0, 0.0)
    assert under(*causal.CROSSED) == (0.0, 1.0)
    assert under(*causal.ONE_PAIR)[0] == pytest.approx(1 / (n - 1), abs=1e-6)
    assert under(*causal.SUBJECTS)[0] == pytest.approx(1 / (n * (n - 1)), abs=1e-6)


@pytest.mark.parametrize(
    ("theta", "expected"),
    [
        # The light pair's loss leaves a tie of n-1; the heavy one's misleads.
        (LIGHT_FIRST, [1 / 7, 1 / 7, 0, 0, 1, 1]),
        (HEAVY_FIRST, [0, 0, 1 / 7, 1 / 7, 1, 1]),
    ],
)
def test_knock_outs_by_hand(theta, expected):
    prompts = prompts_of(8)
    model = known(prompts.table, theta=theta)
    found = [
        causal._accuracy_under(model, prompts, pattern=causal.knock_out(position))
        for position in range(6)
    ]
    assert found == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("n", SUBJECTS)
def test_neurons_by_hand(n):
    prompts = prompts_of(n)
    model = known(prompts.table)
    use = memory_neurons(prompts.table)[1]
    s, a = prompts.subjects, prompts.answers
    pair = {(i, j): use[s[:, i], a[:, j]][:, None] for i in (0, 1) for j in (0, 1)}

    def without(neurons, **edits):
        return causal._accuracy_under(
            model, prompts, memory=causal.silence(neurons), **edits
        )

    saddle = {"pattern": causal.attend(causal.SADDLE)}
    assert without(pair[0, 0]) == 0
    assert without(pair[1, 1]) == 0
    both = torch.cat([pair[0, 1], pair[1, 0]], 1)
    assert without(both) == 1
    # At the saddle one crossed neuron is enough to break the tie.
    assert without(both, **saddle) == 1
    assert without(pair[0, 1], **saddle) == 1
    assert without(pair[1, 0], **saddle) == 1


@pytest.mark.parametrize("n", SUBJECTS)
def test_the_control_neurons_are_active_but_used_by_neither_relation(n):
    prompts = prompts_of(n)
    model = known(prompts.table)
    with record(model, [MEMORY]) as seen, torch.no_grad():
        model(prompts.relation_step().tokens)
    chosen = causal._unrelated_neurons(prompts)
    activation = seen[MEMORY][:, 0].gather(1, chosen)
    # Silencing what is silent anyway would be no control.
    assert float(activation.min()) > 0.01
    assert (chosen[:, 0] != chosen[:, 1]).all()
    subject = (chosen - n * n) // n
    answer = (chosen - n * n) % n
    true = prompts.relation
    confusing = confusing_relations(prompts).double().argmax(1)
    for relation in (true, confusing):
        images = prompts.table[relation[:, None], subject]
        assert (images != answer).all()


def test_pairs_in_conflict_follow_the_heavy_one():
    lead, even = causal._conflict(0)
    assert lead == pytest.approx(0.77, abs=0.08)
    assert abs(even) < 0.05


def test_edits_leave_the_model_as_it_was():
    prompts = prompts_of(5)
    model = known(prompts.table)
    before = relation_logits(model, prompts)
    with intervene(model, {PATTERN: causal.attend(causal.CROSSED)}):
        assert not torch.allclose(relation_logits(model, prompts), before)
    assert torch.equal(relation_logits(model, prompts), before)
    with record(model, [PATTERN]) as seen, torch.no_grad():
        model(prompts.relation_step().tokens)
    own = tuple(seen[PATTERN][0, 0, 0].tolist())
    with intervene(model, {PATTERN: causal.attend(own)}):
        same = relation_logits(model, prompts)
    assert torch.allclose(same, before, atol=1e-6)


def test_knocking_out_renormalises():
    pattern = torch.tensor([0.1, 0.4, 0.5])
    assert causal.knock_out(2)(pattern).tolist() == pytest.approx([0.2, 0.8, 0])


def test_silencing_touches_only_the_chosen_neurons():
    activation = torch.ones(2, 1, 4)
    edited = causal.silence(torch.tensor([[0, 1], [3, 3]]))(activation)
    assert edited.tolist() == [[[0, 0, 1, 1]], [[1, 1, 1, 0]]]
    assert activation.sum() == 8


def test_hooks_are_gone_after_an_error():
    prompts = prompts_of(5)
    model = known(prompts.table)
    before = relation_logits(model, prompts)
    with (
        pytest.raises(BadInput),
        intervene(model, {PATTERN: lambda pattern: pattern[:, :, :, :2]}),
    ):
        relation_logits(model, prompts)
    assert torch.equal(relation_logits(model, prompts), before)
    with pytest.raises(BadInput), intervene(model, {Site("value"): lambda x: x}):
        pass


def test_pairs_and_crossed_pairs():
    assert pairs_of(2).tolist() == [[0, 1], [2, 3]]
    assert crossed_pairs(2).tolist() == [[0, 3], [2, 1]]
    assert crossed_pairs(3).tolist() == [[0, 3], [2, 5], [4, 1]]


@pytest.mark.parametrize("n", SUBJECTS)
def test_the_second_step_by_hand(n):
    prompts = prompts_of(n)
    model = known(prompts.table)
    for test in (
        causal_answer._written_relation,
        causal_answer._other_query,
        causal_answer._other_context,
    ):
        followed, _ = test(model, prompts, 0)
        assert followed == 1, test.__name__
    assert causal_answer._other_query(model, prompts, 0)[1] == 0

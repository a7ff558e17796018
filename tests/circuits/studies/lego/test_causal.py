"""Changed contents, ablated variables and distractors on a known circuit."""

from pathlib import Path

import pytest
import torch

from circuits.studies.lego import causal, distraction, repair, retrieval
from circuits.studies.lego.context import Context
from circuits.studies.lego.specimen import Specimen
from tests.lego_models import N_VARIABLES, wired
from trained.config import as_dict
from trained.lego.config import Config
from trained.store import Run

CONFIG = Config(
    groups=("C3", "S3"),
    n_variables=N_VARIABLES,
    train_length=4,
    lengths=(4, 10),
    n_sentences=40,
    self_lengths=(),
    budgets=(1,),
    steps=1,
    theory_groups=(),
)


@pytest.fixture
def bare(tmp_path: Path) -> Context:
    """A run without models: test sentences for hand-wired ones."""
    manifest = {"study": "lego", "config": as_dict(CONFIG), "seeds": [0]}
    return Context(Run.create(tmp_path, manifest))


@pytest.fixture
def silent() -> Specimen:
    """No circuit: the FFN says nothing."""
    model = wired()
    with torch.no_grad():
        model.block.mlp.W_out.zero_()
    return Specimen("C3", 0, model, N_VARIABLES)


def test_answers_follow_what_is_changed(bare: Context, perfect: Specimen) -> None:
    assert causal.followed(perfect, causal.changed_action(bare, perfect)) == 1
    assert causal.followed(perfect, causal.changed_value(bare, perfect)) == 1
    assert causal.moved_by_another_action(bare, perfect) == 0
    assert causal.moved_by_another_value(bare, perfect) == 0


def test_without_a_circuit_nothing_follows(bare: Context, silent: Specimen) -> None:
    assert causal.followed(silent, causal.changed_action(bare, silent)) < 0.6


def test_the_changed_clause_is_the_named_one(bare: Context, perfect: Specimen) -> None:
    clean = bare.short(perfect)
    edited = causal.changed_action(bare, perfect)
    differs = edited.sentences.actions != clean.actions
    assert (differs.sum(1) == 1).all()
    assert torch.equal(differs.int().argmax(1), edited.query)
    right = clean.values.gather(1, edited.query[:, None] + 1)[:, 0]
    assert (edited.answer != right).all()
    other = causal.changed_value(bare, perfect, shift=1)
    differs = other.sentences.values != clean.values
    assert torch.equal(differs.int().argmax(1), other.query - 1)


def test_half_of_the_variables(bare: Context, perfect: Specimen) -> None:
    ablated, intact = causal.half_ablated(bare, perfect)
    assert intact == 1
    assert ablated < 0.75
    gone = causal.half_of_variables(perfect)
    assert gone.sum() == N_VARIABLES // 2
    # The model itself is left alone.
    assert retrieval.lookup(perfect) == pytest.approx(30)


def test_lookup_and_its_shuffle(perfect: Specimen) -> None:
    assert retrieval.lookup(perfect) == pytest.approx(30, rel=1e-5)
    # A shuffle keeps about one diagonal entry in twelve.
    assert abs(retrieval.shuffled_lookup(perfect)) < 10


def test_diagonals(bare: Context, perfect: Specimen) -> None:
    assert retrieval.target_mass(bare, perfect) == pytest.approx(1, abs=1e-5)
    assert retrieval.elsewhere(bare, perfect) < 1e-5
    blind = retrieval.uniform(perfect)
    uniform = sum(2 / (4 + step + 1) for step in range(4)) / 4
    assert retrieval.target_mass(bare, blind) == pytest.approx(uniform, rel=1e-5)
    assert retrieval.elsewhere(bare, blind) == pytest.approx(1 / 5, rel=1e-5)


def test_distractors_fill_as_named(bare: Context, weak: Specimen) -> None:
    clean = bare.long(weak)
    value, right = clean.values[:, -2], clean.values[:, -1]
    for fill in ("inside", "outside", "one wrong"):
        actions = distraction.filled(weak, clean, fill)  # type: ignore[arg-type]
        assert torch.equal(actions[:, -1], clean.actions[:, -1])
        image = weak.table[actions[:, :-1], value[:, None]]
        hits = image == right[:, None]
        assert hits.all() == (fill == "inside")
        assert hits.any() == (fill == "inside")
        if fill == "one wrong":
            assert (image == image[:, :1]).all()


def test_a_long_context_is_patched_away(bare: Context, weak: Specimen) -> None:
    clean, tokens = distraction.lengthened(bare, weak)
    extra = distraction.extra_predicates(bare)
    assert tokens.shape[1] == 2 * clean.length + extra
    # No added predicate names a variable of the short chain.
    added = tokens[:, clean.length : clean.length + extra]
    for own, others in zip(clean.variables, added[..., [0, 2]].flatten(1), strict=True):
        assert not set(own.tolist()) & set(others.tolist())
    patched, plain = distraction.patched_context(bare, weak)
    assert patched == 1
    assert plain <= patched


def test_the_tolerated_dose_of_the_wired_model(bare: Context, weak: Specimen) -> None:
    # A pair's neuron fires while (1 - eps) / 2 * 2 * 2 > 1.5, helped by the leak.
    assert 0.2 < repair.tolerated(bare, weak) < 0.5
    curve = list(repair.dose_curve(bare, weak).values())
    assert curve[0] == 1
    assert curve[-1] < 0.75
    assert repair.bisected(lambda x: x < 0.3, 0.0, 1.0) == pytest.approx(0.3, abs=0.01)


def test_heads(bare: Context, perfect: Specimen) -> None:
    assert causal.least_without_a_head(bare, perfect) < 0.75
    assert causal.without_all_heads(bare, perfect) < 0.6


def test_a_value_that_no_action_moves_is_left_out(bare: Context) -> None:
    fixed = Specimen("generators:1.0.2", 0, wired("generators:1.0.2"), N_VARIABLES)
    edited = causal.changed_action(bare, fixed)
    values = bare.short(fixed).values.gather(1, edited.query[:, None])[:, 0]
    assert torch.equal(edited.changed, values != 2)
    assert causal.followed(fixed, edited) == 1
    assert torch.equal(
        distraction.movable(fixed, bare.long(fixed)),
        bare.long(fixed).values[:, -2] != 2,
    )
    assert distraction.distracted(bare, fixed, "one wrong") == 1

"""The tree of claims, a run that is trained and judged whole, and its figures."""

import math
from dataclasses import replace

import pytest
from matplotlib.figure import Figure
from threadpoolctl import threadpool_limits

from circuits.confirm import confirm_lab
from circuits.studies.recall import STUDY
from circuits.studies.recall.claims import claims
from circuits.studies.recall.figures import attention_measurement, key_labels
from probes.figures import save
from tests.circuits.studies.recall import planted
from tests.circuits.studies.recall.planted import TINY, lab_of
from tests.figure_laws import cut_texts
from trained.config import as_dict, override
from trained.errors import BadInput
from trained.recall.arms import arms
from trained.recall.config import (
    PAPER,
    QUICK,
    READINGS,
    Config,
    Pretrained,
    Samples,
    Triple,
)
from trained.store import Run
from trained.trainer import Engine
from trained.training import train

CONFIGS = {
    "quick": QUICK,
    "paper": PAPER,
    "three subjects": Config(n_subjects=3, n_relations=6),
    "three examples": replace(QUICK, n_examples=3),
    "four examples": replace(QUICK, n_examples=4, n_subjects=16),
    "one size": replace(QUICK, samples=Samples(sizes=(4,))),
}
LEAVES = {
    *("memory.lemma1", "nocot.bound"),
    *("warmup.saddle", "warmup.escape", "warmup.pairwise", "warmup.global"),
    "warmup.psi-falls",
    *("few.stage1", "few.n-grid", "few.sample-law", "few.rate", "few.end-state"),
    *("few.step2", "few.decode"),
    *("fig2a.pattern", "fig2b.pattern", "row2", "fig3.whole", "fig3.partial"),
    *("step2.perfect", "fig4a.caption", "fig4a.warm", "fig4b"),
    *("cause.cross", "cause.difference"),
}
WEIGHT = 77
"""Of the rubric's leaves together."""

ALL = replace(
    TINY,
    n_subjects=7,
    n_relations=12,
    triple=Triple(steps=1, relations=20),
    pretrained=Pretrained(
        steps=1,
        fine_steps=1,
        triple_steps=1,
        batch=16,
        readings=READINGS,
        widths=(1, 2),
    ),
    samples=replace(TINY.samples, beyond=(16,), modes=("adam", "gd")),
)


def trained(path, config, seeds=(0,)):
    """A lab of a run that is trained, hardly."""
    manifest = {"study": "recall", "config": as_dict(config), "seeds": list(seeds)}
    run = Run.create(
        path, {**manifest, "preset": "quick", "device": "cpu", "environment": {}}
    )
    train(run, arms(config), engine=Engine())
    return STUDY.lab(run)


@pytest.mark.parametrize("name", CONFIGS)
def test_the_tree_is_whole(name):
    found = STUDY.claims_at(CONFIGS[name])
    paper = [claim for claim in found if claim.origin == "paper"]
    for leaf in LEAVES:
        assert any(c.id.startswith(f"recall.{leaf}") for c in paper), leaf
    assert sum(claim.weight for claim in paper) == WEIGHT
    ours = [claim.id for claim in found if claim.origin == "ours"]
    assert all(key.startswith("recall.ours.") for key in ours)
    assert all(claim.statement.endswith(".") and claim.source for claim in found)


def test_every_leaf_is_measured_at_the_papers_size():
    assert [c.id for c in claims(PAPER) if c.not_tested] == []
    missing = {c.id: c.not_tested for c in claims(QUICK) if c.not_tested}
    assert all(reason.endswith("--preset paper") for reason in missing.values())
    assert missing.keys() == {
        *("recall.few.n-grid.all", "recall.fig2b.pattern", "recall.fig4a.warm"),
        *("recall.fig4b.caption", "recall.fig4b.warm"),
    }


def test_nulls_of_the_literal_theorem_are_at_its_own_temperature():
    asked = []

    class Asked:
        def few(self, _quantity, t, *_cell, **_options):
            asked.append(t)
            return [0.0]

    by_id = {claim.id: claim for claim in claims(PAPER)}
    for null in by_id["recall.few.n-grid.all"].nulls:
        if null.measure is not None:
            null.measure(Asked())
    assert set(asked) == {0.001}


def test_the_memory_is_asked_about_every_shape_of_table(tmp_path):
    def shapes(config):
        lab = lab_of(tmp_path / str(len(config.samples.subjects)), {}, config)
        return {tuple(table.shape) for table, _ in lab._memories(0)}

    assert shapes(QUICK) == {(56, 8), (64, 8), (6, 3)}
    assert shapes(PAPER) >= {(56, 8), (6, 3), (64, 16), (512, 8)}


def test_only_two_leaves_are_theory():
    theory = {claim.id for claim in claims(PAPER) if claim.kind == "theory"}
    assert theory == {"recall.memory.lemma1", "recall.warmup.global"}


def test_interventions_are_written_for_two_examples_only():
    ids = {claim.id for claim in claims(CONFIGS["three examples"])}
    assert "recall.ours.knock-out" not in ids
    assert "recall.ours.query" in ids


def test_full_fine_tuning_cut_short_is_judged_more_widely():
    def expected(config):
        by_id = {claim.id: claim for claim in claims(config)}
        return by_id["recall.fig2a.pattern"].conditions[0].expected

    assert expected(QUICK) == "<= 1.1"
    assert expected(PAPER) == "<= 1.05"


@pytest.mark.parametrize(
    ("assignment", "leaf"),
    [
        ("temperature=0.12", "fig2a.pattern"),
        ("temperature=0.12", "cause.cross"),
        ("temperature=0.12", "ours.pattern.full-affine"),
        ("n_examples=3", "cause.difference"),
        ("warmup.temperatures=0.1,0.05,0.03", "warmup.pairwise"),
        ("few.temperatures=0.05", "few.n-grid.confusing"),
        ("few.temperatures=", "few.decode"),
        ("few.sizes=8,16,32", "few.end-state"),
        ("few.sizes=1,8,32", "few.sample-law"),
        ("first_step.draws=0", "few.stage1"),
        ("rate.temperatures=0.004", "few.rate"),
        ("samples.sizes=1,4", "fig3.whole"),
        ("samples.subjects=", "step2.perfect.whole"),
        ("partial.sizes=1,4", "fig3.partial"),
        ("pretrained.steps=0", "fig4a.caption"),
        ("pretrained.readings=warm", "row2"),
    ],
)
def test_a_request_beyond_what_the_paper_says_is_not_tested(assignment, leaf):
    def judged(config):
        by_id = {claim.id: claim for claim in claims(config)}
        return by_id[f"recall.{leaf}"].not_tested

    assert not judged(QUICK)
    assert judged(override(QUICK, [assignment]))


def test_tolerances_follow_the_steps_of_stage_one():
    def expected(*assignments):
        by_id = {c.id: c for c in claims(override(QUICK, assignments))}
        return by_id["recall.warmup.saddle"].conditions[0].expected

    assert expected() == expected("warmup.steps=40000") == "<= 0.002"
    assert expected("warmup.steps=2000") == "<= 0.02"


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("recall") / "run", ALL, (0, 1))


def test_a_run_that_is_hardly_trained_is_judged_and_refuted(lab):
    with threadpool_limits(1):
        done = confirm_lab(lab)
    measured = [v for v in done.verdicts if not v.missing]
    for verdict in measured:
        for outcome in (*verdict.conditions, *verdict.controls):
            assert all(map(math.isfinite, outcome.values)), verdict.claim.id
        for null in verdict.nulls:
            assert not null.reason, (verdict.claim.id, null.reason)
    assert done["recall.memory.lemma1"].word == "confirmed"
    assert done["recall.fig2a.pattern"].word == "refuted"
    assert done["recall.warmup.pairwise"].word == "refuted"
    assert done["recall.few.n-grid.confusing"].word == "refuted"
    assert {v.missing for v in done.verdicts} == {
        "",
        "needs T <= 0.001; decided at --preset paper",
        "no recorded step of a path is past the escape",
    }
    spoiled = lab.shuffled().facts_known("fig4a-caption-1")
    assert max(spoiled) < 0.5
    # A memory that was not learned leaves nothing to judge of Figure 4.
    for name in ("fig4a.caption", "fig4a.warm", "fig4b.caption", "fig4b.warm"):
        assert "recalled" in done[f"recall.{name}"].reason


@pytest.mark.parametrize("kind", STUDY.figures_part)
def test_every_figure_is_drawn_with_titles(lab, tmp_path, kind):
    figure = STUDY.figures[kind](lab)
    assert isinstance(figure, Figure)
    drawn = [ax for ax in figure.axes if ax.has_data() and ax.get_label() == ""]
    assert drawn
    assert all(ax.get_title() for ax in drawn)
    file = save(figure, tmp_path / f"{kind}.png", dpi=40)
    assert file.stat().st_size > 1000
    assert not cut_texts(figure)


def test_a_model_and_prompts_for_it_come_from_the_lab(lab):
    model, batch = lab.model("full-affine", 0), lab.examples("full-affine", 0)
    assert model(batch.tokens).shape[:2] == (len(batch), 1)


def test_keys_are_named():
    assert key_labels(2) == ("s1", "a1", "s2", "a2", "s3", "EoS", "r*")
    assert key_labels(3)[-4:] == ("a3", "s4", "EoS", "r*")


def test_the_attention_measurement_leaves_the_missing_token_blank(tmp_path):
    planted_lab = lab_of(tmp_path, {"full-affine": planted.known})
    measured = attention_measurement(planted_lab, "full-affine")
    assert measured.values.shape == (2, 7)
    assert measured.values[0, -1].isnan()
    wanted = [0.17, 0.17, 0.31, 0.31, 0.02, 0.02]
    assert measured.values[0, :-1].tolist() == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize("n_examples", [3])
def test_three_examples_are_judged_and_drawn(tmp_path, n_examples):
    config = replace(TINY, n_examples=n_examples)
    lab = trained(tmp_path / "run", config)
    with threadpool_limits(1):
        done = confirm_lab(lab, "recall.[mfs][ei]*")
    assert done["recall.memory.lemma1"].word == "confirmed"
    for kind in ("attention", "dynamics", "few"):
        assert STUDY.figures[kind](lab).axes
    with pytest.raises(BadInput):
        STUDY.figures["causes"](lab)

"""The whole study at a tiny size: every claim is judged, every figure draws."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from matplotlib.figure import Figure

from circuits.claims import Claim, NotTested
from circuits.confirm import confirm_lab, open_lab
from circuits.studies.bridge import STUDY
from circuits.studies.bridge.claims.quantities import band
from circuits.studies.bridge.lab import BridgeLab
from circuits.study import Request
from circuits.training import prepare, train_run
from probes.figures import save
from tests.figure_laws import cut_texts
from trained import store
from trained.bridge.config import (
    PRESETS,
    Config,
    direction,
    embedding,
    gpt,
    shown,
    untied,
)
from trained.config import override

TINY = (
    *(
        "n_subjects=5",
        "complexity=3",
        "complexities=3",
        "variants=untied,random,shown,decayed",
    ),
    *("embedding.steps=20", "direction.steps=32", "direction.scaled_steps=20"),
    *("gpt.d_model=16", "gpt.n_layers=2", "gpt.steps=6", "gpt.record_every=1"),
    *("gpt.regimes=small,standard,std,decay", "theory.sizes=4", "theory.tilts=2"),
)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> BridgeLab:
    out = tmp_path_factory.mktemp("bridge")
    request = Request("bridge", "quick", TINY, seeds=(0, 1), device="cpu", out=out)
    run = prepare(request)
    train_run(run)
    return open_lab(run)


def test_every_claim_is_judged(lab: BridgeLab) -> None:
    found = confirm_lab(lab)
    words = {v.claim.id: v.word for v in found.verdicts}
    # What asks for an answer that is learned: nothing is yet.
    unasked = {v.claim.id for v in found.verdicts if v.claim.preconditions}
    assert {name for name, word in words.items() if word == "not tested"} <= unasked
    assert not [v.reason for v in found.verdicts if "no arm" in v.reason]
    assert words["bridge.memory.inherit.cause"] != "not tested"
    theory = [v for v in found.verdicts if v.claim.kind == "theory"]
    assert all(v.passed for v in theory if not v.claim.not_tested)
    # Six steps teach a GPT nothing, and no verdict says otherwise.
    taught = [name for name in words if name.startswith("bridge.ours.untied.")]
    assert not [name for name in taught if words[name] == "confirmed"]


@pytest.mark.parametrize("kind", STUDY.figures_part)
def test_every_figure_draws(lab: BridgeLab, kind: str, tmp_path: Path) -> None:
    figure = STUDY.figures[kind](lab)
    assert isinstance(figure, Figure)
    assert save(figure, tmp_path / f"{kind}.png", dpi=40).stat().st_size > 1000
    assert not cut_texts(figure)


@pytest.mark.parametrize("name", PRESETS)
def test_the_tree_is_whole_at_every_preset(name: str) -> None:
    found = STUDY.claims_at(PRESETS[name].config)
    paper = [claim for claim in found if claim.origin == "paper"]
    # The rubric's leaves; the causal half of `memory.inherit` has its own claim.
    assert (len(paper), sum(claim.weight for claim in paper)) == (23, 75)
    quick_cannot = {"bridge.decline.decay", "bridge.align.decay"}
    untested = {claim.id for claim in paper if claim.not_tested}
    assert untested == (set() if name == "paper" else quick_cannot)
    assert all(
        claim.id.startswith("bridge.ours.") for claim in found if claim not in paper
    )
    assert all(claim.headline for claim in found)
    assert all(claim.nulls for claim in found if not claim.not_tested)
    theory = [claim for claim in paper if claim.kind == "theory"]
    assert theory == [claim for claim in found if claim.id.startswith("bridge.theory.")]


@pytest.mark.parametrize(("share", "judged"), [(0.0, ()), (0.25, ("ood",))])
def test_claims_follow_the_share_of_bridges(share: float, judged: tuple) -> None:
    config = replace(Config(), identity=share)
    found = {c.id: c for c in STUDY.claims_at(config) if c.kind != "theory"}
    assert bool(found["bridge.ood.embmlp.k1"].not_tested) == ("ood" not in judged)
    assert found["bridge.memory.inherit"].not_tested


def test_the_band_of_chance_by_hand() -> None:
    config = Config(n_subjects=20)
    assert band(config, 1, 3) == pytest.approx(0.05 + 2 * (0.0475 / 60) ** 0.5)
    assert band(config, 3, 5) == pytest.approx(0.05 + 2 * (0.0475 / 300) ** 0.5)
    # Half of the queries are judged.
    assert band(config, 1, 3, 0.5) == pytest.approx(0.05 + 2 * (0.0475 / 30) ** 0.5)


def test_the_lab_gives_what_was_trained(lab: BridgeLab) -> None:
    specimens = lab.specimens(gpt(3))
    assert [s.seed for s in specimens] == [0, 1]
    stored = lab.run.weights(gpt(3).name)["W_E"]
    assert torch.equal(specimens[1].model.state_dict()["W_E"], stored[1])
    by_name = lab.specimens("gpt-k3-identity")
    assert [s.model for s in by_name] == [s.model for s in specimens]
    with pytest.raises(NotTested, match="no arm gpt-k9-identity"):
        lab.specimens("gpt-k9-identity")
    assert lab.has(gpt(3))
    assert not lab.has(gpt(4))
    assert len(lab.examples(gpt(3).name, 0)) == 15


def test_nulls_differ_in_one_thing(lab: BridgeLab) -> None:
    (plain, *_), (own, *_) = (
        found.specimens(gpt(3)) for found in (lab.instead(task="none"), lab)
    )
    assert plain.recipe == gpt(3, "none")
    assert not torch.equal(plain.model.W_E, own.model.W_E)
    untrained = lab.untrained().specimens(gpt(3))[0]
    other = lab.untrained().instead(task="none").specimens(gpt(3))[0]
    assert torch.equal(untrained.model.W_E, other.model.W_E)
    with pytest.raises(NotTested, match="gpt-k1-half"):
        lab.instead(task="half").specimens(gpt())


def test_only_unseen_bridges_with_the_task_are_judged(lab: BridgeLab) -> None:
    half = lab.specimens(untied(1, "half"))[0]
    assert 0 < int(half.covered.sum()) < 5
    whole, none = (lab.specimens(gpt(1, t))[0] for t in ("identity", "none"))
    assert whole.covered.all()
    assert not none.covered.any()
    for task in ("identity", "none"):
        told = lab.specimens(shown(task))[0]
        assert torch.equal(told.judged, ~told.shown)
        assert told.ood_hits.of == 3
        assert 0 <= told.seen <= 1
    assert math.isnan(whole.seen)


def test_the_course_of_training_is_read_from_the_metrics(lab: BridgeLab) -> None:
    metrics = lab.metrics(gpt(3).name)
    assert metrics["step"].tolist() == list(range(7))
    last = [s.alignment for s in lab.specimens(gpt(3))]
    torch.testing.assert_close(metrics["alignment"][:, -1], torch.tensor(last))
    known = lab.mispaired()._course(gpt(3))["alignment"]
    assert torch.equal(known, metrics["mispaired"])
    with pytest.raises(NotTested):
        lab.untrained().half_way(gpt(3), "ood")


def test_directions_are_read_along_plain_descent(lab: BridgeLab) -> None:
    first, *_, last = (
        lab.cosines(direction(), identity=True, step=step)
        for step in lab.config.direction.course
    )
    assert lab.config.direction.course == (2, 8, 32)
    assert last == lab.cosines(direction(), identity=True)
    assert first != last


def test_a_drawn_size_is_none_of_the_list(lab: BridgeLab) -> None:
    assert lab.drawn_size not in lab.config.theory.sizes
    assert 4 <= lab.drawn_size <= 12


def test_expectations_follow_the_configuration(lab: BridgeLab) -> None:
    def claim(name: str, *assignments: str) -> Claim:
        config = override(Config(), assignments)
        return next(c for c in STUDY.claims_at(config) if c.id == name)

    def lab_claim(name: str) -> Claim:
        return next(c for c in STUDY.claims_at(lab.config) if c.id == name)

    # The band is taken off what is measured: it knows how many seeds there are.
    null = lab_claim("bridge.ood.embmlp.k1").nulls[1]
    assert null.measure is not None
    values = [s.ood for s in lab.specimens(embedding(1, "none"))]
    level = band(lab.config, 1, 2)
    assert null.measure(lab) == [value - level for value in values]
    several = claim("bridge.ood.nonzero", "complexities=2,4", "gpt.compared=2,3,4")
    assert len(several.conditions) == 3 * 4
    fewer = claim("bridge.ood.nonzero", "complexities=2,4")
    assert len(fewer.conditions) == 2 * 2 + 4
    assert "more than this preset's 120" in claim("bridge.decline.decay").not_tested
    low = claim("bridge.decline.small-recovers", "complexity=2", "complexities=2")
    assert "3 or more" in low.not_tested
    rare = claim("bridge.align.precedes", "gpt.record_every=8")
    assert "4 steps" in rare.not_tested


def test_the_shipped_run_tells_the_story() -> None:
    shipped = store.shipped("bridge")
    lab = open_lab(shipped)
    for recipe in (embedding(), gpt()):
        found = [s.ood for s in lab.specimens(recipe)]
        plain = [s.ood for s in lab.instead(task="none").specimens(recipe)]
        assert sum(found) >= 1.8
        assert all(one > other for one, other in zip(found, plain, strict=True))
    assert lab.confirm("bridge.memory.inherit*").passed
    files = [file for file in shipped.path.rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) < 5e6

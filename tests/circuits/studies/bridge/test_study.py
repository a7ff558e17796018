"""The whole study at a tiny size: every claim is judged, every figure draws."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from matplotlib.figure import Figure

from circuits.claims import Claim, NotTested
from circuits.confirm import confirm_lab, open_lab
from circuits.studies.bridge import STUDY
from circuits.studies.bridge.claims.ood import band
from circuits.studies.bridge.figures import FIGURES
from circuits.studies.bridge.lab import BridgeLab
from circuits.study import Request
from circuits.training import prepare, train_run
from probes.figures import save
from trained import store
from trained.bridge.config import PRESETS, Config, embedding, tied, untied
from trained.config import override

TINY = (
    *("n_subjects=5", "complexity=2", "variants=tied,random,std"),
    *("embedding.complexities=2", "embedding.steps=20", "direction.steps=20"),
    *("gpt.d_model=16", "gpt.n_layers=2", "gpt.steps=6"),
    *("gpt.tied_steps=6", "gpt.record_every=1", "theory.sizes=4"),
)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> BridgeLab:
    out = tmp_path_factory.mktemp("bridge")
    request = Request("bridge", "quick", TINY, seeds=(0, 1), device="cpu", out=out)
    run = prepare(request)
    train_run(run, jobs=1)
    return open_lab(run)


def test_every_claim_is_judged(lab: BridgeLab) -> None:
    found = confirm_lab(lab)
    words = {v.claim.id: v.word for v in found.verdicts}
    # Open leaves, and what asks of a state that carries an answer: there is none yet.
    unasked = {
        v.claim.id
        for v in found.verdicts
        if v.claim.not_tested or (v.claim.kind == "causal" and v.preconditions)
    }
    assert {name for name, word in words.items() if word == "not tested"} <= unasked
    assert words["bridge.memory.inherit.cause"] != "not tested"
    theory = [v for v in found.verdicts if v.claim.kind == "theory"]
    assert all(v.passed for v in theory if not v.claim.not_tested)
    # Six steps teach a GPT nothing, and no verdict says otherwise.
    taught = [name for name in words if name.startswith("bridge.ours.untied.")]
    assert not [name for name in taught if words[name] == "confirmed"]


@pytest.mark.parametrize("kind", FIGURES)
def test_every_figure_draws(lab: BridgeLab, kind: str, tmp_path: Path) -> None:
    figure = FIGURES[kind](lab)
    assert isinstance(figure, Figure)
    assert save(figure, tmp_path / f"{kind}.png", dpi=40).stat().st_size > 1000


@pytest.mark.parametrize("name", PRESETS)
def test_the_tree_is_whole_at_every_preset(name: str) -> None:
    found = STUDY.claims_at(PRESETS[name].config)
    paper = [claim for claim in found if claim.origin == "paper"]
    # The rubric's leaves; the causal half of `memory.inherit` has its own claim.
    assert (len(paper), sum(claim.weight for claim in paper)) == (23, 75)
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
    assert band(Config(n_subjects=20)) == pytest.approx(0.05 + 2 * (0.0475 / 60) ** 0.5)


def test_the_lab_gives_what_was_trained(lab: BridgeLab) -> None:
    specimens = lab.specimens(untied(2))
    assert [s.seed for s in specimens] == [0, 1]
    stored = lab.run.weights(untied(2).name)["W_E"]
    assert torch.equal(specimens[1].model.state_dict()["W_E"], stored[1])
    assert lab.has(untied(2))
    assert not lab.has(untied(4))
    assert len(lab.examples(untied(2).name, 0)) == 10


def test_nulls_differ_in_one_thing(lab: BridgeLab) -> None:
    (plain, *_), (own, *_) = (
        found.specimens(untied(2)) for found in (lab.instead(task="none"), lab)
    )
    assert plain.recipe == untied(2, "none")
    assert not torch.equal(plain.model.W_E, own.model.W_E)
    untrained = lab.untrained().specimens(untied(2))[0]
    other = lab.untrained().instead(task="none").specimens(untied(2))[0]
    assert torch.equal(untrained.model.W_E, other.model.W_E)
    with pytest.raises(NotTested, match="gpt-k1-half-tied"):
        lab.instead(task="half").specimens(tied())


def test_doses_are_read_on_the_bridges_that_have_the_task(lab: BridgeLab) -> None:
    half = lab.specimens(untied(1, "half"))[0]
    assert 0 < int(half.covered.sum()) < 5
    whole, none = (lab.specimens(untied(1, t))[0] for t in ("identity", "none"))
    assert whole.covered.all()
    assert not none.covered.any()
    assert 0 <= none.ood <= 1


def test_the_course_of_training_is_read_from_the_metrics(lab: BridgeLab) -> None:
    assert lab.first_steps(untied(2), "ood", 0.0) == [0.0, 0.0]
    assert lab.time_above(untied(2), "ood", 0.0) == [1.0, 1.0]
    assert all(step != step for step in lab.first_steps(untied(2), "ood", 1.1))
    with pytest.raises(NotTested):
        lab.untrained().first_steps(untied(2), "ood", 0.0)


def test_a_drawn_size_is_none_of_the_list(lab: BridgeLab) -> None:
    assert lab.drawn_size not in lab.config.theory.sizes
    assert 4 <= lab.drawn_size <= 16


def test_expectations_follow_the_configuration() -> None:
    def expected(name: str, *assignments: str) -> Claim:
        config = override(Config(), assignments)
        return next(c for c in STUDY.claims_at(config) if c.id == name)

    few = expected("bridge.memory.inherit.cause", "n_subjects=6")
    assert few.nulls[0].bound == f"<= {band(Config(n_subjects=6)):.3g}"
    several = expected("bridge.ours.untied.k5", "complexity=5")
    assert several.conditions[0].expected == "> 0.2"
    plain = expected("bridge.ours.decayed-direction", "direction.weight_decay=0")
    assert "weight_decay" in plain.not_tested


def test_the_shipped_run_tells_the_story() -> None:
    shipped = store.shipped("bridge")
    lab = open_lab(shipped)
    for recipe in (untied(), embedding(), tied()):
        found = [s.ood for s in lab.specimens(recipe)]
        plain = [s.ood for s in lab.instead(task="none").specimens(recipe)]
        assert sum(found) >= 1.8
        assert all(one > other for one, other in zip(found, plain, strict=True))
    assert lab.confirm("bridge.memory.inherit*").passed
    files = [file for file in shipped.path.rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) < 4e6

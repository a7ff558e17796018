"""The whole study at a tiny size: every claim is judged, every figure draws."""

from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from circuits.claims import Claim, judge
from circuits.confirm import open_lab
from circuits.studies.lego import STUDY
from circuits.studies.lego.claims import claims
from circuits.studies.lego.lab import LegoLab
from probes.figures import save
from tests.figure_laws import cut_texts
from trained import store
from trained.errors import BadInput
from trained.lego.config import Config, Folded, SelfTraining, Theory
from trained.lego.presets import PRESETS

LEAVES = {
    *("learn.theory", "learn.joint"),
    *("length.theory.d-grid", "length.theory.contrast"),
    *("length.joint.c6", "length.joint.s5"),
    *("conc.eps.d-grid", "conc.logd", "conc.phases", "conc.dilution", "conc.fig2"),
    *("conc.fig5", "conc.position", "conc.contrast", "conc.cause"),
    *("self.doubling", "self.mass", "self.all-lengths"),
    *("self.joint", "self.joint.stages"),
    *("ffn.copy", "ffn.shape", "ffn.single", "ffn.order", "ffn.ratio"),
}
"""Of the rubric."""


def ids(config: Config) -> set[str]:
    return {claim.id for claim in claims(config)}


def test_every_claim_is_judged(lab: LegoLab) -> None:
    verdicts = {v.claim.id: v for v in (judge(c, lab) for c in claims(lab.config))}
    for name, verdict in verdicts.items():
        measured = verdict.claim.not_tested == ""
        assert verdict.preconditions or measured == bool(verdict.values), name
        counts = {len(c.values) for c in verdict.conditions}
        assert counts <= {2}, name
    # What holds by construction, trained or not.
    for name in ("lego.ours.mass.c3", "lego.ours.lookup.c3"):
        assert not any(null.meets for null in verdicts[name].nulls)
    masked = verdicts["lego.ours.masked.s3"]
    assert masked.values != masked.nulls[0].values


@pytest.mark.parametrize("kind", sorted(STUDY.figures_part))
def test_every_figure_draws(lab: LegoLab, kind: str, tmp_path: Path) -> None:
    figure = STUDY.figures[kind](lab)
    assert isinstance(figure, Figure)
    assert save(figure, tmp_path / f"{kind}.png", dpi=40).stat().st_size > 1000
    assert not cut_texts(figure)


@pytest.mark.parametrize("name", PRESETS)
def test_the_tree_is_whole_at_every_preset(name: str) -> None:
    found = STUDY.claims_at(PRESETS[name].config)
    paper = [claim for claim in found if claim.origin == "paper"]
    for leaf in LEAVES:
        assert any(_belongs(claim, leaf) for claim in paper), leaf
    for claim in found:
        ours = claim.id.startswith("lego.ours.")
        assert ours == (claim.origin == "ours") == (claim.headline == "Ours")
        assert ours or any(_belongs(claim, leaf) for leaf in LEAVES), claim.id
        assert claim.kind != "theory"


def _belongs(claim: Claim, leaf: str) -> bool:
    return f"{claim.id}.".startswith(f"lego.{leaf}.")


def test_one_group_has_no_claims_of_comparison() -> None:
    alone = Config(groups=("C3",), self_training=SelfTraining(lengths=()))
    found = ids(alone)
    compared = ("lego.ours.concentration", "lego.ours.exchange", "lego.ours.self")
    assert not any(name.startswith(compared) for name in found)
    assert "lego.ours.learned.c3" in found


def test_one_length_has_no_law() -> None:
    folded = Folded(budgets=(40,), steps=40)
    found = ids(Config(lengths=(5,), folded=folded))
    assert not any(name.startswith(("lego.ours.dilution",)) for name in found)


def test_the_lab_knows_its_models(lab: LegoLab) -> None:
    early, late = (lab.folded("C3", b)[1] for b in lab.config.folded.budgets)
    assert early.seed == late.seed == 1
    assert not early.tables.equal(late.tables)
    assert lab.folded("C3")[1].tables.equal(late.tables)
    assert lab.model("C3", 1) is lab.folded("C3")[1].model
    assert list(lab.curve(late)) == list(lab.config.lengths)
    assert not lab.blind().folded("C3")[1].tables.any()
    assert not lab.untrained().folded("C3")[1].tables.any()


def test_without_theory_groups_its_leaves_are_not_tested(lab: LegoLab) -> None:
    config = replace(lab.config, theory=Theory(groups=()))
    arms = {name: arm for name, arm in lab.arms.items() if "theory" not in name}
    without = lab.other(config=config, arms=arms)
    for name in ("lego.self.doubling", "lego.conc.phases", "lego.ffn.shape"):
        (claim,) = (c for c in claims(config) if c.id == name)
        assert judge(claim, without).reason.startswith("theory.groups ")
    with pytest.raises(BadInput, match="this run has no theory models"):
        STUDY.figures["theory"](without)


def test_the_shipped_run_tells_the_story() -> None:
    shipped = store.shipped("lego")
    lab = open_lab(shipped)
    assert isinstance(lab, LegoLab)
    assert lab.models("C6").pattern().axes == ("seed", "head", "query", "key")
    for group in lab.config.groups:
        assert lab.curve(lab.folded(group)[0])[5].all == 1
    base, last = (lab.farthest(lab.self_trained(name)) for name in ("base", "self10"))
    assert sum(last) > sum(base)
    files = [file for file in shipped.path.rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) < 5e6

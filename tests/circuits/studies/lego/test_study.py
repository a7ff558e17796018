"""The whole study at a tiny size: every claim is observed, every figure draws."""

from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from circuits.claims import judge
from circuits.studies.lego import evidence
from circuits.studies.lego.claims import claims
from circuits.studies.lego.context import Context
from circuits.studies.lego.evidence import observe
from circuits.studies.lego.figures import FIGURES
from circuits.studies.lego.selftrain import farthest
from probes.figures import save
from trained import store
from trained.lego.arms import BASE, round_name
from trained.lego.config import PRESETS, Config
from trained.store import Run


def test_every_claim_is_observed_and_judged(run: Run, config: Config) -> None:
    verdicts = judge(claims(config), observe(run))
    seeded = [v for v in verdicts if v.claim.id.startswith("lego.cause.")]
    assert seeded
    assert all(len(v.observed.values) == 2 for v in seeded)
    by_id = {v.claim.id: v for v in verdicts}
    # What holds by construction, trained or not.
    assert by_id["lego.diagonals.c3"].control_passed
    assert by_id["lego.lookup.c3"].control_passed


@pytest.mark.parametrize("kind", sorted(FIGURES.keys() - {"theory", "features"}))
def test_every_figure_draws(run: Run, kind: str, tmp_path: Path) -> None:
    figure = FIGURES[kind](run)
    assert isinstance(figure, Figure)
    assert save(figure, tmp_path / f"{kind}.png", dpi=40).stat().st_size > 1000


@pytest.mark.parametrize("name", PRESETS)
def test_claims_of_the_presets_are_well_formed(name: str) -> None:
    found = claims(PRESETS[name].config)
    ids = [claim.id for claim in found]
    assert len(set(ids)) == len(ids)
    assert all(claim.id.startswith("lego.") for claim in found)
    reported = ("lego.position", "lego.exchange", "lego.extra", "lego.standard")
    assert not any(c.gated for c in found if c.id.startswith(reported))
    assert any(c.gated for c in found)


def test_one_group_has_no_claims_of_comparison(config: Config) -> None:
    alone = replace(config, groups=("C3",), self_lengths=())
    ids = {claim.id for claim in claims(alone)}
    compared = ("lego.separation", "lego.concentration", "lego.exchange", "lego.self")
    assert not any(id.startswith(compared) for id in ids)
    assert "lego.learned.c3" in ids


def test_one_head_and_one_length(config: Config) -> None:
    lean = replace(config, n_heads=1, lengths=(3,), budgets=(40,))
    ids = {claim.id for claim in claims(lean)}
    assert not any(".heads." in id or ".one-head." in id for id in ids)
    assert not any(id.startswith(("lego.dilution", "lego.predicted")) for id in ids)


def test_context_knows_its_models(run: Run, config: Config) -> None:
    context = Context(run)
    early, late = (context.models("C3", budget)[1] for budget in config.budgets)
    assert early.seed == late.seed == 1
    assert not early.tables.Q43.equal(late.tables.Q43)
    assert context.models("C3")[1] is late
    assert context.self_group == "S3"
    assert list(context.curve(late)) == list(config.lengths)


def test_topics_do_not_overlap(run: Run) -> None:
    context = Context(run)
    parts = [set(topic.observe(context)) for topic in evidence.TOPICS]
    assert sum(map(len, parts)) == len(set().union(*parts))


def test_the_shipped_run_tells_the_story() -> None:
    shipped = store.shipped("lego")
    context = Context(shipped)
    for group in context.config.groups:
        assert context.curve(context.models(group)[0])[5].all == 1
    base, last = (context.self_trained(name)[0] for name in (BASE, round_name(40)))
    assert farthest(context, last) > farthest(context, base)
    files = [file for file in shipped.path.rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) < 5e6

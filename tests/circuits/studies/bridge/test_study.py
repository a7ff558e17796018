"""The whole study at a tiny size: every claim is observed, every figure draws."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from matplotlib.figure import Figure

from circuits.claims import judge
from circuits.studies.bridge import causal
from circuits.studies.bridge.alignment import (
    cosine,
    first_step,
    net_cosine,
    pair_states,
)
from circuits.studies.bridge.claims import claims
from circuits.studies.bridge.context import Context, Specimen, last_logits, ood
from circuits.studies.bridge.evidence import observe
from circuits.studies.bridge.figures import FIGURES
from probes.figures import save
from trained import store
from trained.bridge import arms as module
from trained.bridge.arms import arms, embedding, gpt, model_of, world_of
from trained.bridge.config import PRESETS, Config
from trained.config import as_dict
from trained.store import Run
from trained.trainer import Engine
from trained.training import train

TINY = Config(
    n_subjects=5,
    complexity=2,
    sweep=(3,),
    embedding_sweep=(2,),
    gammas=(0.5, 0.8),
    d_model=16,
    n_layers=2,
    steps=6,
    theory_sizes=(4,),
    variants=("tied", "tied_several", "standard", "decay", "fixed", "random", "dose"),
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    path = tmp_path_factory.mktemp("bridge")
    manifest = {"study": "bridge", "config": as_dict(TINY), "seeds": [0, 1]}
    made = Run.create(path, manifest)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "EMBEDDING_STEPS", 20)
        patch.setattr(module, "DIRECTION_STEPS", 20)
        train(made, arms(TINY), engine=Engine(batching="vmap"))
    return made


def test_every_claim_is_observed_and_judged(run: Run) -> None:
    verdicts = judge(claims(TINY), observe(run))
    seeded = [v for v in verdicts if ".gpt." in v.claim.id]
    assert all(len(v.observed.values) == 2 for v in seeded)
    theory = [v for v in verdicts if v.claim.id.startswith("bridge.theory.")]
    assert len(theory) == 6
    assert all(v.passed for v in theory)


@pytest.mark.parametrize("kind", FIGURES)
def test_every_figure_draws(run: Run, kind: str, tmp_path: Path) -> None:
    figure = FIGURES[kind](run)
    assert isinstance(figure, Figure)
    assert save(figure, tmp_path / f"{kind}.png", dpi=40).stat().st_size > 1000


@pytest.mark.parametrize("name", PRESETS)
def test_claims_of_the_presets_are_well_formed(name: str) -> None:
    found = claims(PRESETS[name].config)
    ids = [claim.id for claim in found]
    assert len(set(ids)) == len(ids)
    assert all(claim.id.startswith("bridge.") for claim in found)
    reported = ("bridge.tied", "bridge.standard", "bridge.decay", "bridge.fixed")
    assert not any(c.gated for c in found if c.id.startswith(reported))


@pytest.fixture
def specimen() -> Specimen:
    """An untrained GPT, small weights made large enough to matter."""
    recipe = replace(gpt(2), gamma=0.5)
    world = world_of(TINY, recipe, 0)
    return Specimen(recipe, 0, world, model_of(TINY, recipe, 0))


def test_putting_a_state_back_changes_nothing(specimen: Specimen) -> None:
    query = specimen.world.two_hop()
    clean = last_logits(specimen.model, query)
    for position in (causal.SUBJECT, causal.RELATION):
        own = causal.states_at(specimen, query, position)
        same = causal.patched(specimen, query, position, own)
        torch.testing.assert_close(same, clean)
        other = causal.patched(specimen, query, position, own.roll(1, 0))
        assert not torch.allclose(other, clean, atol=1e-4)
    torch.testing.assert_close(last_logits(specimen.model, query), clean)


def test_donors_have_another_answer(specimen: Specimen) -> None:
    order, differs = causal.donors(specimen)
    answers = specimen.world.answer
    assert sorted(order.tolist()) == list(range(10))
    assert (answers[order] != answers).equal(differs)
    assert differs.any()


def test_an_untrained_model_knows_nothing(specimen: Specimen) -> None:
    assert ood(specimen) <= 0.4
    assert abs(net_cosine(specimen)) < 0.2
    follow, stay = causal.donor_exchange(specimen, causal.RELATION)
    assert follow + stay <= 0.6


def test_a_span_is_orthonormal_and_its_control_as_large(specimen: Specimen) -> None:
    shared, control = causal.bridge_span(specimen), causal.random_span(specimen)
    assert shared.shape == control.shape
    for basis in (shared, control):
        eye = torch.eye(len(basis))
        torch.testing.assert_close(basis @ basis.mT, eye, atol=1e-5, rtol=0)


def test_alignment_of_equal_states_is_one(specimen: Specimen) -> None:
    subjects, bridges = pair_states(specimen)
    assert subjects.shape == bridges.shape == (10, 16)
    assert -1 <= cosine(specimen) <= 1


def test_first_step_of_a_curve() -> None:
    steps = torch.tensor([0.0, 5.0, 10.0])
    curve = torch.tensor([0.1, 0.9, 0.2])
    assert first_step(steps, curve, 0.8) == 5
    assert first_step(steps, curve, 0.95) != first_step(steps, curve, 0.95)


def test_a_run_without_variants_has_no_claims_on_them() -> None:
    bare = replace(TINY, variants=(), sweep=())
    ids = {claim.id for claim in claims(bare)}
    assert not any(id.startswith(("bridge.tied", "bridge.decay")) for id in ids)
    names = {arm.name for arm in arms(bare)}
    assert not any("tied" in name for name in names)


def test_the_shipped_run_tells_the_story() -> None:
    shipped = store.shipped("bridge")
    context = Context(shipped)
    assert context.each(gpt(), ood) == context.each(embedding(), ood) == [1.0]
    assert max(context.each(gpt(1, "none"), ood)) <= 1 / 6
    files = [file for file in shipped.path.rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) < 1.5e6


def test_context_loads_what_was_trained(run: Run) -> None:
    context = Context(run)
    specimens = context.specimens(gpt(2))
    assert [s.seed for s in specimens] == [0, 1]
    stored = run.weights(gpt(2).name)["W_E"]
    assert torch.equal(specimens[1].model.state_dict()["W_E"], stored[1])
    assert not context.has(gpt(4))

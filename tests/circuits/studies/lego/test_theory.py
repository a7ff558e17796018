"""The theory's evidence: on a planted circuit, and end to end at a tiny size."""

import math
from pathlib import Path

import pytest
import torch

from circuits.claims import judge
from circuits.studies.lego import features, reduced, theory
from circuits.studies.lego.claims_features import learned_features
from circuits.studies.lego.claims_theory import theorems
from circuits.studies.lego.context import Context
from circuits.studies.lego.figures import FIGURES
from circuits.studies.lego.reading import marks
from circuits.studies.lego.specimen import Specimen
from circuits.studies.lego.theory_models import Theory, error, gap, sharp, uniform
from tests.lego_theory_models import planted
from trained.config import as_dict
from trained.errors import BadInput
from trained.lego import theory_arms as module
from trained.lego.config import Config
from trained.lego.theory_arms import theory_arms
from trained.store import Run
from trained.trainer import Engine
from trained.training import train

N_VARIABLES = 24
TINY = Config(
    groups=("C3", "S3"),
    theory_groups=("C3", "S3"),
    feature_groups=("D4",),
    theory_variables=N_VARIABLES,
    theory_value_steps=120,
    theory_steps=40,
    theory_batch=32,
    theory_rounds=1,
    theory_length=12,
    n_sentences=10,
)


def specimen(sharpness: float, text: str = "C4") -> Specimen:
    return Specimen(text, 0, planted(text, N_VARIABLES, sharpness), N_VARIABLES)


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Context:
    path = tmp_path_factory.mktemp("theory")
    manifest = {"study": "lego", "config": as_dict(TINY), "seeds": [0, 1]}
    run = Run.create(path / "run", manifest)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "VARIABLE_STEPS": 10,
            "RULE_STEPS": 40,
            "ROUND_STEPS": 20,
            "GENTLE_STEPS": 40,
        }.items():
            patch.setattr(module, name, value)
        train(run, theory_arms(TINY), engine=Engine(batching="vmap"))
        yield Context(run)


def test_every_claim_is_observed(context: Context) -> None:
    claims = [*theorems(TINY), *learned_features(TINY)]
    seen = {}
    for topic in (theory, features, reduced):
        seen |= topic.observe(context)
    assert len(judge(claims, seen)) == len(claims)


def test_without_theory_groups_there_is_nothing(context: Context) -> None:
    config = Config(theory_groups=())
    assert not [*theorems(config), *learned_features(config), *theory_arms(config)]
    assert context.config == TINY


def test_stages_leave_what_their_names_say(context: Context) -> None:
    models = Theory(context)
    course = models.courses["S3"]
    trained = models.after(course, "attention")[0].model
    second = models.after(course, "second-step")[0].model
    longer = models.after(course, "longer")[0].model
    assert trained.tables.Q43.any()
    assert second.tables.Q43.any()
    assert not torch.equal(second.tables.Q43, trained.tables.Q43)
    # The control's annotator is where it started, and the rounds start there again.
    assert torch.equal(longer.annotator.Q43, second.tables.Q43)
    last = models.after(course, "round-4")[0].model
    assert torch.equal(last.annotator.Q43, second.tables.Q43)
    assert torch.equal(last.block.value.W2, second.block.value.W2)


@pytest.mark.parametrize("kind", ["theory", "features"])
def test_figures_draw(context: Context, tmp_path: Path, kind: str) -> None:
    assert FIGURES[kind](context.run).axes
    without = as_dict(Config(theory_groups=()))
    empty = Run.create(tmp_path, {"study": "lego", "config": without, "seeds": [0]})
    with pytest.raises(BadInput, match="this run has no theory models"):
        FIGURES[kind](empty)


def test_uniform_attention_misses_what_it_must() -> None:
    blind = uniform(specimen(8.0))
    expected = 1 - (2 / 3 + 2 / 4) / 2
    assert error(blind, 2) == pytest.approx(expected, abs=1e-6)
    assert gap(blind) == pytest.approx(0, abs=1e-6)
    assert sharp(blind) == pytest.approx(2, rel=1e-3)


def test_sharpness_of_planted_diagonals() -> None:
    assert sharp(specimen(3.0)) == pytest.approx(2 * math.exp(3), rel=1e-3)


@pytest.mark.parametrize("edit", [theory.only_predicates, theory.only_answers])
def test_half_of_the_clause_is_not_enough(edit: theory.PatternEdit) -> None:
    model = specimen(8.0)
    sentences = model.sentences(5, 100)
    assert marks(model, sentences).step == 1
    assert marks(model, sentences, edit).step < 0.5


def test_elsewhere_by_hand() -> None:
    block = torch.full((2, 4, 4), -0.5) + 4.5 * torch.eye(4)
    assert theory.elsewhere(block) == pytest.approx(0.125)


def test_planted_features() -> None:
    course = module.Course(TINY, "C4")
    model = planted("C4", N_VARIABLES, 0.0)
    scale = 1 + 1 / model.block.value.clip
    found = features.features(model, course)
    assert found.halves == pytest.approx((scale, scale, -scale, -scale))
    assert found.ratio == pytest.approx(1)
    assert found.mixed == pytest.approx(0, abs=1e-6)
    assert found.matched == pytest.approx(2 * scale)
    assert features.features(model, course, shift=1).signs < 0
    # Idle neurons still respond to the fixed bias, a little.
    assert features.strongest_share(model, course) > 0.99


def test_drift_sees_one_moved_weight() -> None:
    before, after = (planted("C4", N_VARIABLES, 0.0) for _ in range(2))
    assert features.drift(before, after) == 0
    after.block.value.W2[1, 2, 3] += 0.25
    assert features.drift(before, after) == pytest.approx(0.25, abs=1e-5)


def test_reduced_paths_by_hand() -> None:
    path = {
        "alpha": torch.tensor([[0.0, 1.0, 2.0]]),
        "beta": torch.tensor([[0.0, 0.0, 0.0]]),
        "loss": torch.tensor([[9.0, 0.0, 0.0]]),
    }
    assert reduced.sharpness(path)[0].tolist() == pytest.approx(
        [2, math.e + 1, math.e**2 + 1]
    )
    assert reduced.smoothed_loss(path)[0].tolist() == [9.0, 8.0, 7.0]
    assert reduced.at_loss(path, [8.0]).tolist() == pytest.approx([math.e + 1])
    assert reduced.at_loss(path, [0.1]).tolist() == pytest.approx([math.e**2 + 1])
    total = [4 + step + math.e**2 + 1 for step in range(5)]
    mean = sum((math.e**2 - 1) / z for z in total) / 5
    assert reduced.gaps(path) == pytest.approx([mean])

import math

import pytest

from circuits.claims import judge
from circuits.studies.analogy.claims import claims
from circuits.studies.analogy.evidence import observe
from trained.analogy.config import Config

from .conftest import SEEDS, TINY, trained


@pytest.fixture(scope="module")
def verdicts(tiny_run):
    return {v.claim.id: v for v in judge(claims(TINY), observe(tiny_run))}


def test_every_claim_has_one_finite_value_per_seed(verdicts):
    for key, verdict in verdicts.items():
        values = verdict.observed.values
        slow = ".gpt." in key or ".small." in key
        assert len(values) == (1 if slow else len(SEEDS)), key
        assert all(math.isfinite(value) for value in values), key


@pytest.mark.parametrize(
    "key",
    [
        "block.joint.success",
        "block.SA.success",
        "block.AS_T.success",
        "block.AS_T.retention",
        "block.AS_T.replay",
        "block.AS_T.unfrozen",
        "block.AS_E.replay",
        "block.bridge.success",
        "block.no-bridge.success",
        "block.k.increasing",
        "block.coefficient.shared",
        "block.causal.patch.AS_T",
        "block.causal.swap.joint",
        "block.causal.removal.bridge",
        "block.causal.permuted",
        "block.causal.permuted-bridge",
        "block.causal.half-bridge",
        "linear.depth.steps",
    ],
)
def test_the_mechanism_shows_at_a_tiny_size(verdicts, key):
    verdict = verdicts[f"analogy.{key}"]
    assert verdict.passed, verdict


def test_an_untrained_model_shows_none_of_it(tiny_run):
    from circuits.studies.analogy.interventions import with_source_values
    from circuits.studies.analogy.readings import Reader, success, value_alignment

    reader = Reader(tiny_run)
    for trained_model in reader.seeds("block-joint-k3"):
        before = trained_model.untrained()
        assert success(before) <= 0.25
        assert with_source_values(before, shift=1) <= 0.25
        assert abs(value_alignment(before).raw) < 0.2


def test_a_part_of_the_study_alone(tmp_path):
    config = Config(
        parts=("block",),
        curricula=("AS_T",),
        n_entities=4,
        d_model=18,
        head_steps=50,
    )
    run = trained(tmp_path, config)
    assert len(judge(claims(config), observe(run))) == len(claims(config))

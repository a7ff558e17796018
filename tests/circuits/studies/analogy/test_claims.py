import pytest

from circuits.studies.analogy.claims import claims
from trained.analogy.config import PRESETS, Config
from trained.analogy.law import Alignment


def by_id(config):
    return {claim.id: claim for claim in claims(config)}


@pytest.mark.parametrize("name", ["quick", "paper"])
def test_ids_are_unique_and_named_after_the_study(name):
    found = claims(PRESETS[name].config)
    assert len({claim.id for claim in found}) == len(found)
    assert all(claim.id.startswith("analogy.") for claim in found)


def test_every_row_of_the_papers_tables_is_there():
    found = by_id(PRESETS["paper"].config)
    for model in ("block", "gpt"):
        for row in ("joint", "SA", "AS_T", "AS_E", "bridge", "no-bridge"):
            assert f"analogy.{model}.{row}.success" in found
            key = f"analogy.{model}.{row}.loss"
            assert key in found or f"analogy.{model}.k3.loss" in found
    for row in ("joint", "SA", "AS_E"):
        for quantity in ("success", "alignment", "loss"):
            assert f"analogy.relu.{row}.{quantity}" in found
    assert found["analogy.block.k1.alignment"].paper == 0.6706
    assert found["analogy.gpt.k5.alignment"].paper == 0.9979


def test_both_readings_come_with_retention_c_only_and_replay():
    found = by_id(Config())
    for model in ("block", "gpt"):
        for reading in ("AS_T", "AS_E"):
            for quantity in ("success", "c-only", "retention", "replay"):
                assert f"analogy.{model}.{reading}.{quantity}" in found


def test_bounds_scale_with_the_sizes():
    found = by_id(Config(n_entities=100, d_model=512))
    assert found["analogy.block.AS_T.alignment"].expected == "<= 0.01768"
    assert found["analogy.block.AS_T.success"].expected == "<= 0.05"
    small = by_id(Config(n_entities=12, d_model=64))
    assert small["analogy.block.AS_T.success"].expected == "<= 0.25"


def test_the_law_sets_the_expected_cosine():
    config = Config()
    law = Alignment(config.n_entities, config.d_model).joint(3)
    expected = by_id(config)["analogy.block.joint.alignment"].expected
    low, high = expected.removeprefix("in [").removesuffix("]").split(", ")
    assert (float(low) + float(high)) / 2 == pytest.approx(law, abs=1e-5)


def test_parts_and_curricula_that_are_not_trained_have_no_claims():
    found = by_id(Config(parts=("linear", "block"), curricula=("AS_T",)))
    assert not [key for key in found if ".gpt." in key or ".relu." in key]
    assert not [key for key in found if ".joint" in key or "AS_E" in key]
    assert "analogy.block.AS_T.unfrozen" in found

import pytest
import torch

from circuits.hooks import intervene
from circuits.studies.analogy.interventions import (
    with_source_residual,
    with_source_values,
    without_source_residual,
    without_source_values,
)
from circuits.studies.analogy.readings import (
    VALUE,
    Reader,
    Trained,
    answers,
    entity_values,
    known,
    success,
)


@pytest.fixture(scope="module")
def reader(tiny_run):
    return Reader(tiny_run)


@pytest.fixture
def joint(reader):
    return reader.seeds("block-joint-k3")[0]


def test_putting_a_models_own_values_back_changes_nothing(joint):
    prompts = joint.asked.test
    before = joint.model(prompts)
    with intervene(joint.model, {VALUE: torch.clone}):
        assert torch.equal(joint.model(prompts), before)


def test_recorded_values_are_v_times_the_embedding(joint):
    recorded = entity_values(joint.model, joint.asked.known)
    assert torch.allclose(recorded, joint.model.value_vectors(joint.asked.source))


def test_hooks_are_gone_afterwards(joint):
    before = joint.model(joint.asked.test)
    without_source_values(joint)
    assert torch.equal(joint.model(joint.asked.test), before)


def test_source_values_make_the_target_answer_as_its_source(reader):
    """Where nothing transferred, the patched target is answered like the source."""
    for trained in reader.seeds("block-no_bridge"):
        assert success(trained) <= 0.25
        assert with_source_values(trained) == pytest.approx(known(trained), abs=0.1)


def test_orthogonal_representations_lose_nothing(reader):
    """Removing a direction that the target does not have is no edit at all."""
    (trained, *_) = reader.seeds("block-AS_T")
    model, asked = trained.model, trained.asked
    given = answers(model, asked.test)
    source = entity_values(model, asked.known)
    target = entity_values(model, asked.test)
    overlap = torch.nn.functional.cosine_similarity(source, target).abs().mean()
    assert overlap < 0.15
    assert without_source_values(trained) == pytest.approx(
        float((given == asked.answer).float().mean()), abs=0.1
    )


def test_a_whole_residual_patch_carries_the_donors_answer(reader):
    """GPT-2 patched at the entity alone gives another answer than unpatched."""
    (trained,) = reader.seeds("gpt-bridge")
    shares = [with_source_residual(trained, shift=shift) for shift in (0, 1)]
    assert all(0 <= share <= 1 for share in shares)
    assert 0 <= without_source_residual(trained, random=True) <= 1


def test_random_directions_follow_the_seed(joint):
    other = Trained(joint.arm, joint.seed, joint.model)
    assert without_source_values(joint, random=True) == without_source_values(
        other, random=True
    )

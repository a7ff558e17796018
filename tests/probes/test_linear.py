import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from probes.linear import linear_probe


def clusters(n_classes: int, n_each: int, *, spread: float, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n_classes).repeat_interleave(n_each)
    noise = torch.randn(len(labels), 8, generator=generator)
    return 5 * torch.eye(8)[labels] + spread * noise, labels


def test_separable_classes_are_read_perfectly():
    states, labels = clusters(3, 40, spread=0.1)
    probe = linear_probe(states, labels)
    assert probe.accuracy == 1
    assert probe.chance == pytest.approx(1 / 3)
    assert (probe.n_train, probe.n_test, probe.n_classes) == (90, 30, 3)
    assert probe.selectivity == probe.accuracy - probe.control_accuracy


@given(st.integers(0, 20), st.floats(0.5, 20))
@settings(deadline=None, max_examples=5)
def test_a_probe_is_repeatable_and_blind_to_scale_and_offset(seed, scale):
    states, labels = clusters(3, 12, spread=2.0)
    probe = linear_probe(states, labels, seed=seed)
    assert probe == linear_probe(states, labels, seed=seed)
    moved = linear_probe(scale * states + 3, labels, seed=seed)
    assert moved.accuracy == pytest.approx(probe.accuracy)


def test_noise_and_shuffled_labels_give_chance():
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(2000, 4, generator=generator)
    labels = torch.randint(4, (2000,), generator=generator)
    probe = linear_probe(states, labels)
    assert probe.accuracy == pytest.approx(0.25, abs=0.06)
    assert probe.control_accuracy == pytest.approx(0.25, abs=0.06)


def test_held_out_groups_unmask_a_memorised_label():
    # Every group has its own direction and a random label: nothing generalises.
    generator = torch.Generator().manual_seed(0)
    groups = torch.arange(40).repeat_interleave(10)
    labels = torch.randint(2, (40,), generator=generator)[groups]
    states = torch.eye(40)[groups] + 0.01 * torch.randn(400, 40, generator=generator)
    assert linear_probe(states, labels).accuracy == 1
    held_out = linear_probe(states, labels, groups=groups)
    assert held_out.accuracy < 0.8
    assert held_out.n_test == 100


def test_a_control_task_by_type_can_be_memorised():
    types = torch.arange(8).repeat_interleave(20)
    states = torch.eye(8)[types]
    labels = types % 2
    probe = linear_probe(states, labels, types=types)
    assert probe.accuracy == 1
    assert probe.control_accuracy == 1
    assert probe.selectivity == 0
    assert linear_probe(states, labels).control_accuracy < 0.8


def test_impossible_splits_are_named():
    states, labels = torch.zeros(4, 2), torch.tensor([0, 0, 0, 1])
    with pytest.raises(ValueError, match="class 1 has 1 example"):
        linear_probe(states, labels)
    with pytest.raises(ValueError, match="at least 2 groups"):
        linear_probe(states, labels, groups=torch.zeros(4, dtype=torch.long))
    with pytest.raises(ValueError, match=r"only class \[0\]"):
        linear_probe(states, torch.zeros(4, dtype=torch.long))

"""Taking off cI breaks heads that are made of it; a rotation of its size does not."""

import pytest
import torch
from torch import Tensor

from circuits.hooks import intervene
from circuits.interventions.head_matrices import head_matrices
from circuits.interventions.identity_surgery import (
    Surgery,
    operate,
    random_rotation,
    score_lowered,
    surgery_grid,
    surgery_sweep,
)
from circuits.interventions.passes import answer_logits
from circuits.interventions.sweep import Reading, change, logit_difference
from circuits.sites import Site
from tests.ground_truth import GroundTruth, accuracy, copying_model, matching_model
from tests.intervention_pairs import random_decoder, random_pair
from trained.errors import BadInput
from trained.task import Batch


@pytest.fixture(scope="module")
def matching() -> GroundTruth:
    return matching_model()


@pytest.fixture(scope="module")
def copying() -> GroundTruth:
    return copying_model()


def answered(truth: GroundTruth, surgeries: list[Surgery]) -> float:
    batch = Batch(truth.tokens, truth.targets)
    with operate(truth.model, batch, surgeries):
        return accuracy(truth, truth.model(batch.tokens))


def margin(truth: GroundTruth) -> Reading:
    """The logit of the target over that of the answer one further on."""
    return Reading(
        logit_difference((truth.targets + 1) % truth.model.config.output_size)
    )


def test_matching_goes_with_the_identity_of_qk(matching: GroundTruth) -> None:
    batch = Batch(matching.tokens, matching.targets)
    assert accuracy(matching, matching.model(batch.tokens)) == 1
    grid = surgery_grid([0], [0], "qk")
    swept = surgery_sweep(matching.model, batch, grid, margin(matching))
    before = torch.tensor(swept.provenance["unedited"])
    torch.testing.assert_close(before, torch.full((32,), 5.0), atol=1e-4, rtol=0)
    # Uniform attention reads every label alike.
    torch.testing.assert_close(swept.values[0, 0], torch.zeros(32), atol=1e-4, rtol=0)


def test_a_rotation_of_its_size_leaves_most_of_the_matching(
    matching: GroundTruth,
) -> None:
    batch = Batch(matching.tokens, matching.targets)
    for seed in range(3):
        grid = surgery_grid([0], [0], "qk", rotation=seed)
        lost = change(surgery_sweep(matching.model, batch, grid, margin(matching)))
        assert float(lost.values.mean()) > -2.5


def test_copying_goes_with_the_identity_of_ov(copying: GroundTruth) -> None:
    batch = Batch(copying.tokens, copying.targets)
    assert accuracy(copying, copying.model(batch.tokens)) == 1
    assert answered(copying, [Surgery(0, 0, "ov")]) == 0
    lost = change(
        surgery_sweep(
            copying.model, batch, surgery_grid([0], [0], "ov"), margin(copying)
        )
    )
    # From 10 (3 - 2) to 10 (0 - 1): y's own residual is left.
    torch.testing.assert_close(lost.values, torch.full((1, 1, 24), -20.0))


def test_a_rotation_of_its_size_leaves_most_of_the_copying(
    copying: GroundTruth,
) -> None:
    batch = Batch(copying.tokens, copying.targets)
    for seed in range(3):
        grid = surgery_grid([0], [0], "ov", rotation=seed)
        lost = change(surgery_sweep(copying.model, batch, grid, margin(copying)))
        assert abs(float(lost.values.mean())) < 5


def test_where_there_is_no_identity_there_is_nothing_to_take_off(
    matching: GroundTruth, copying: GroundTruth
) -> None:
    for truth, circuit, where in (
        (matching, "qk", "pattern"),
        (copying, "ov", "head_out"),
    ):
        surgery = Surgery(0, 1, circuit)  # type: ignore[arg-type]
        with pytest.raises(BadInput, match=rf"{where}\[0\] left every activation unch"):
            answered(truth, [surgery])


@pytest.mark.parametrize("rotation", [None, 5])
def test_surgery_equals_changed_weights(rotation: int | None) -> None:
    """Against a forward pass by hand with M - cI in place of M, LayerNorm and all."""
    model, (batch, _, _) = random_decoder(n_layers=1), random_pair()
    block, attention = model.blocks[0], model.blocks[0].attn
    matrices = head_matrices(model, 0)
    x = matrices.folded.normalised(model.embed(batch.tokens).detach())
    turn = torch.eye(12) if rotation is None else random_rotation(12, rotation)
    turn = turn.double()
    inputs = block.ln1.layer(model.embed(batch.tokens)).detach()
    assert attention.b_Q is not None and attention.b_K is not None  # noqa: PT018
    scores = (inputs @ attention.W_Q[1] + attention.b_Q[1]) @ (
        inputs @ attention.W_K[1] + attention.b_K[1]
    ).mT
    c = matrices.identity_part("qk")[1]
    less = c * x @ (x @ turn).mT
    future = torch.ones(5, 5, dtype=torch.bool).triu(1)
    scores = ((scores - less) / 2).masked_fill(future, -torch.inf)

    def put(pattern: Tensor) -> Tensor:
        pattern = pattern.clone()
        pattern[:, 1] = scores.softmax(-1).detach()
        return pattern

    with intervene(model, {Site("pattern"): put}):
        expected = answer_logits(model, batch)
    with operate(model, batch, [Surgery(0, 1, "qk", rotation)]):
        torch.testing.assert_close(answer_logits(model, batch), expected)


def test_several_surgeries_at_once_take_off_all() -> None:
    """An output's surgery sees the pattern that its scores' surgery made."""
    model, (batch, _, _) = random_decoder(n_layers=1), random_pair()
    matrices = head_matrices(model, 0)
    both = [Surgery(0, 0, "ov"), Surgery(0, 0, "qk")]
    site = Site("head_out")
    with operate(model, batch, both[1:]):
        c = matrices.identity_part("ov")[0]
        x = matrices.folded.normalised(model.embed(batch.tokens).detach())
        seen: dict[str, Tensor] = {}

        def keep(pattern: Tensor) -> Tensor:
            seen["pattern"] = pattern.detach()
            return pattern

        def less(head_out: Tensor) -> Tensor:
            head_out = head_out.clone()
            head_out[:, :, 0] -= c * (seen["pattern"][:, 0] @ x)
            return head_out

        with intervene(model, {Site("pattern"): keep, site: less}):
            expected = answer_logits(model, batch)
    with operate(model, batch, both):
        torch.testing.assert_close(answer_logits(model, batch), expected)


def test_lowered_scores_by_hand() -> None:
    pattern = torch.tensor([[[[0.5, 0.5, 0.0]]]])
    less = torch.tensor([[[[2.0, 2.0 - torch.log(torch.tensor(3.0)), -9.0]]]])
    torch.testing.assert_close(
        score_lowered(pattern, less), torch.tensor([[[[0.25, 0.75, 0.0]]]])
    )


def test_rotations_are_orthogonal_and_repeat() -> None:
    turn = random_rotation(16, 3)
    torch.testing.assert_close(turn @ turn.mT, torch.eye(16))
    assert torch.equal(turn, random_rotation(16, 3))
    assert not torch.equal(turn, random_rotation(16, 4))

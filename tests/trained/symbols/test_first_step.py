"""The first instant of training on the copy task: Theorems 5.1 and 5.2."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from trained.errors import BadInput
from trained.symbols.first_step import (
    GROUPS,
    CopyModel,
    CopySizes,
    FirstInstant,
    gradients,
    limit,
    wide_limit,
)

NAMES = (*GROUPS, "b")


def model(d_model: int, seed: int = 0) -> CopyModel:
    source = torch.Generator().manual_seed(seed)
    return CopyModel(CopySizes(d_model), generator=source)


def test_logits_worked_by_hand() -> None:
    sizes = CopySizes(2, n_tokens=3, n_seen=1, n_heads=1, gamma=0.5)
    small = CopyModel(sizes, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        small.W_E.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
        small.position.copy_(torch.tensor([2.0, 0.0]))
        small.W_V.copy_(torch.tensor([[[0.0, 1.0], [0.0, 0.0]]]))
        small.W_O.copy_(torch.eye(2)[None])
        small.b.fill_(2.0)
    # x = e_1 + p / 2 = (1, 1); W_V W_O^T moves the first entry to the second, (0, 1);
    # with 2 x the sum is (2, 3), read by E and halved.
    found = small(torch.tensor([1]))
    torch.testing.assert_close(found, torch.tensor([[1.0, 1.5, 2.5]]))


@pytest.mark.parametrize("group", NAMES)
def test_the_rate_is_what_a_small_step_does(group: str) -> None:
    copier, tokens = model(32).double(), torch.arange(40)
    seen, unseen = tokens[:20], tokens[20:]

    def losses() -> tuple[float, float]:
        with torch.no_grad():
            found = [cross_entropy(copier(part), part) for part in (seen, unseen)]
        return float(found[0]), float(found[1])

    expected = FirstInstant(copier).transfer_rates(NAMES)[group]
    step, before = gradients(copier, seen)[group], losses()
    with torch.no_grad():
        getattr(copier, group).sub_(1e-4 * step)
    after = losses()
    fall = [b - a for b, a in zip(before, after, strict=True)]
    assert fall[0] > 0
    assert fall[1] / fall[0] == pytest.approx(expected, abs=0.02)


def test_wide_models_reach_the_closed_form_and_narrow_ones_do_not() -> None:
    closed = wide_limit(CopySizes(1024))
    wide, narrow = (FirstInstant(model(d)).transfer_rates(NAMES) for d in (1024, 16))
    for group, rate in closed.items():
        assert wide[group] == pytest.approx(rate, abs=0.05)
    for group in ("W_V", "W_O"):
        assert closed[group] < 0 < narrow[group]
    assert wide["W_E"] < 0
    assert wide["position"] == pytest.approx(-1, abs=0.05)


def test_a_position_of_strength_zero_has_no_rate() -> None:
    sizes = CopySizes(16, gamma=0.0)
    copier = CopyModel(sizes, generator=torch.Generator().manual_seed(0))
    found = FirstInstant(copier).transfer_rates()
    assert set(found) == {"W_V", "W_O", "W_E"}


def test_a_seen_symbol_is_learned() -> None:
    for rate in FirstInstant(model(256)).transfer_rates(among_seen=True).values():
        assert rate > 0.2


def test_the_limit_is_that_of_the_fit_and_not_the_last_value() -> None:
    widths = (64, 128, 256, 512, 1024)
    rates = torch.tensor(
        [[20 / (d + 22) for d in widths], [0.3 + 9 / d for d in widths]]
    )
    found = limit(widths, rates.double())
    assert found.tolist() == pytest.approx([0, 0.3], abs=0.003)
    assert float(rates[0, -1]) > 0.015
    # The fit with c/d alone would refute a rate that has no limit above 0.
    assert float(limit(widths, rates.double(), terms=2)[0]) > 0.01


def test_without_positions_the_unseen_loss_stands_still() -> None:
    sizes = CopySizes(64, gamma=0.0)
    assert wide_limit(sizes)["W_V"] == 0
    assert wide_limit(sizes)["b"] == 1


def test_outputs_vanish_as_the_width_grows() -> None:
    tokens = torch.arange(40)
    sizes = [float(model(d)(tokens).detach().square().mean()) for d in (64, 256)]
    assert sizes[1] < sizes[0] / 2


def test_impossible_sizes_are_refused() -> None:
    with pytest.raises(BadInput, match="n_seen=40: choose 1 to 39"):
        CopySizes(8, n_seen=40)
    with pytest.raises(BadInput, match="d_model=0"):
        CopySizes(0)


def test_a_rotation_in_place_of_the_identity_teaches_nothing() -> None:
    shares = [FirstInstant(model(256, seed)).rotated_share() for seed in range(3)]
    assert max(map(abs, shares)) < 0.05
    copier = model(64)
    with torch.no_grad():
        copier.rotation.copy_(torch.eye(64))
    assert FirstInstant(copier).rotated_share() == pytest.approx(1)

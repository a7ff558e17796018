"""Draws depend on names, not on history."""

import torch

from trained.seeding import generator


def draw(seed: int, *path: str | int) -> list[float]:
    return torch.rand(4, generator=generator(seed, *path)).tolist()


def test_the_same_names_give_the_same_draws_whatever_was_drawn_before() -> None:
    first = draw(3, "batch", 7)
    torch.manual_seed(12345)
    torch.rand(100)
    draw(3, "other")
    assert draw(3, "batch", 7) == first


def test_every_part_of_the_path_and_the_seed_counts() -> None:
    paths = [(0,), (0, "a"), (0, "b"), (0, "a", 1), (0, "a", 2), (1, "a")]
    draws = [tuple(draw(*path)) for path in paths]
    assert len(set(draws)) == len(paths)


def test_a_generator_does_not_touch_the_global_one() -> None:
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    draw(5, "anything")
    assert torch.equal(torch.rand(3), expected)


def test_draws_of_neighbouring_seeds_are_unrelated() -> None:
    rows = torch.stack(
        [torch.randn(1000, generator=generator(s, "x")) for s in range(8)]
    )
    off_diagonal = torch.corrcoef(rows)[~torch.eye(8, dtype=torch.bool)]
    # The correlation of 1000 independent pairs has a standard deviation of 0.032.
    assert off_diagonal.abs().max() < 5 * 0.032

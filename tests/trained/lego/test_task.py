"""Sentences are what the docstring's example says, and without repeated variables."""

import pytest
import torch

from trained.errors import BadInput
from trained.lego.action import action
from trained.lego.task import (
    Sentences,
    Vocabulary,
    chain,
    draw_sentences,
    shuffle,
    table_of,
)

C6 = table_of(action("C6"))
EXAMPLE = Sentences(
    torch.tensor([[2, 0, 3]]),
    torch.tensor([[4, 5]]),
    torch.tensor([[3, 1, 0]]),
    torch.tensor([[0, 1]]),
)
SIZES = Vocabulary(4, 6, 6)


def draw(count: int, length: int, seed: int = 0, **how: str) -> Sentences:
    source = torch.Generator().manual_seed(seed)
    return draw_sentences(C6, count, length, n_variables=9, generator=source, **how)  # type: ignore[arg-type]


def test_the_example_of_the_docstring() -> None:
    assert SIZES.slots(EXAMPLE.tokens(SIZES)).tolist() == [
        [[0, 8, 2, 16, 16], [3, 9, 0, 16, 16], [16, 16, 16, 2, 13], [16, 16, 16, 0, 11]]
    ]
    assert EXAMPLE.answers(SIZES)[0, 2].tolist() == [16, 16, 16, 3, 10]
    batch = EXAMPLE.batch(SIZES)
    assert batch.role("predicate").tolist() == [[0, 1]]
    assert batch.role("answer").tolist() == [[2, 3]]
    assert batch.targets.tolist() == [10]
    assert (SIZES.blank, SIZES.size) == (16, 17)


def test_permuted_predicates_keep_their_logical_targets() -> None:
    swapped = EXAMPLE._replace(places=torch.tensor([[1, 0]]))
    assert SIZES.slots(swapped.tokens(SIZES))[0, :2, 0].tolist() == [3, 0]
    assert swapped.roles()["predicate"].tolist() == [[1, 0]]
    assert swapped.roles()["answer"].tolist() == [[2, 3]]


def test_every_target_shares_the_variable_of_its_query() -> None:
    found = draw(50, 6, order="permuted")
    assert not torch.equal(found.places, draw(50, 6).places)
    words = Vocabulary(9, 6, 6)
    batch = found.batch(words)
    slots = words.slots(batch.tokens)
    variable = found.variables[:, :-1]
    predicate = slots[..., 2].gather(1, batch.role("predicate"))
    answer = slots[..., 3].gather(1, batch.role("answer"))
    assert torch.equal(predicate, variable)
    assert torch.equal(answer, variable)


def test_variables_are_distinct_and_values_follow_the_chain() -> None:
    found = draw(200, 8)
    assert all(len(set(row)) == 9 for row in found.variables.tolist())
    assert torch.equal(chain(C6, found.actions, found.values[:, 0]), found.values)
    assert torch.equal((found.values[:, :-1] + found.actions) % 6, found.values[:, 1:])


def test_draws_are_uniform() -> None:
    found = draw(6000, 1)
    for tensor, n in ((found.variables, 9), (found.actions, 6), (found.values, 6)):
        share = torch.bincount(tensor.flatten(), minlength=n) / tensor.numel()
        assert (share - 1 / n).abs().max() < 0.02


def test_distractors_by_hand() -> None:
    # y = 3 -> 1 by g = 4; a second predicate with the same action is a distractor
    # of step 0, a different one is not; and no target is its own distractor.
    same = Sentences(
        torch.tensor([[0, 1, 2]]),
        torch.tensor([[4, 4]]),
        torch.tensor([[3, 1, 5]]),
        torch.tensor([[1, 0]]),
    )
    assert same.distractors(C6).tolist() == [
        [[True, False, False, False], [False, True, False, False]]
    ]
    assert not EXAMPLE.distractors(C6).any()


def test_the_rate_of_distractors_is_the_actions() -> None:
    found = draw(2000, 5).distractors(C6)[..., :5].double()
    others = found.sum() / (2000 * 5 * 4)
    assert others.item() == pytest.approx(1 / 6, abs=0.01)


def test_too_long_a_chain_is_refused() -> None:
    with pytest.raises(BadInput, match="at most 8 long"):
        draw(1, 9)


def test_chunks_are_the_whole() -> None:
    found = draw(7, 3)
    parts = list(found.chunks(3))
    assert [len(part.actions) for part in parts] == [3, 3, 1]
    assert torch.equal(torch.cat([part.values for part in parts]), found.values)


def test_shuffled_answers_keep_what_is_read_first() -> None:
    drawn = draw(200, 3)
    twin = shuffle(drawn, torch.Generator().manual_seed(0))
    assert torch.equal(twin.values[:, 0], drawn.values[:, 0])
    assert torch.equal(twin.actions, drawn.actions)
    assert torch.equal(twin.values.sort(0).values, drawn.values.sort(0).values)
    assert (twin.values[:, 1] == drawn.values[:, 1]).double().mean() < 0.6

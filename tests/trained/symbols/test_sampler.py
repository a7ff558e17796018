import pytest
import torch

from trained.errors import BadInput
from trained.seeding import generator
from trained.symbols.sampler import (
    SPLITS,
    Alphabet,
    alphabet,
    assert_unseen,
    rows_redrawn,
    sample,
)
from trained.symbols.tasks import task
from trained.symbols.template import match


def drawn(name, split="train", n=50, count=40):
    tokens = alphabet(task(name), n)
    return tokens, sample(tokens, split, count, generator=generator(0, name, split))


def test_ids_of_the_worked_example():
    tokens = alphabet(task("same_different"), 4)
    assert tokens.ids["train"] == range(4)
    assert tokens.ids["validation"] == range(4, 104)
    assert tokens.ids["test"] == range(104, 204)
    assert tokens.cls == 204
    assert tokens.d_vocab == 205


@pytest.mark.parametrize("name", ["same_different", "figure2", "raven", "random-5"])
def test_a_string_matches_one_template_and_has_its_label(name):
    tokens, strings = drawn(name)
    given, regular = tokens.task, tokens.task.regular
    labels = given.values if given.kind == "real" else given.labels
    for row, target in zip(strings.tokens.tolist(), strings.targets, strict=True):
        # Symbols are written <id>, so that no token looks like a regular one.
        text = [regular[t] if t < len(regular) else f"<{t}>" for t in row[:-1]]
        (index,) = [i for i, t in enumerate(given.templates) if match(text, t)]
        assert row[-1] == tokens.cls
        if given.kind == "real":
            assert float(target) == pytest.approx(labels[index])
        else:
            values = dict(zip(given.templates[index].symbols, row, strict=False))
            assert int(target) == values[labels[index]]


def test_roles_name_the_symbols_and_the_values():
    _, strings = drawn("recall")
    assert strings.role("symbols")[0].tolist() == [0, 1, 2, 3, 4]
    assert strings.role("values")[0].tolist() == [1, 3]
    assert strings.role("last")[0].tolist() == [5]
    _, pairs = drawn("same_different")
    assert (pairs.role("first")[0].tolist(), pairs.role("second")[0].tolist()) == (
        [0],
        [1],
    )
    assert "second" not in drawn("copy")[1].roles


def test_real_targets_are_the_label():
    _, strings = drawn("same_different")
    same = strings.tokens[:, 0] == strings.tokens[:, 1]
    assert torch.equal(same, strings.targets > 0)
    assert strings.targets.is_floating_point()


def test_splits_share_no_symbol_and_a_leak_is_noticed():
    tokens = alphabet(task("figure1"), 30)
    splits = [
        sample(tokens, split, 100, generator=generator(1, split)) for split in SPLITS
    ]
    assert_unseen(tokens, splits)
    with pytest.raises(AssertionError, match="are in two splits"):
        assert_unseen(tokens, [splits[0], splits[0]])


def test_a_training_set_of_n_has_n_symbols():
    assert len(alphabet(task("same_different"), 64).ids["train"]) == 64
    # Fewer strings than wildcards: as many symbols as a string needs.
    assert len(alphabet(task("recall"), 2).ids["train"]) == 4


def test_a_training_alphabet_of_its_own():
    tokens = alphabet(task("same_different"), 64, train_alphabet=8)
    assert len(tokens.ids["train"]) == 8
    strings = sample(tokens, "train", 64, generator=generator(3))
    assert len(strings) == 64
    assert int(strings.tokens[:, :-1].max()) == 7


def test_noise_on_labels_has_its_size_and_changes_no_string():
    tokens = alphabet(task("same_different"), 64)
    clean, noisy = (
        sample(tokens, "train", 4000, label_noise=size, generator=generator(3))
        for size in (0.0, 0.5)
    )
    assert torch.equal(clean.tokens, noisy.tokens)
    change = noisy.targets - clean.targets
    assert float(change.std()) == pytest.approx(0.5, rel=0.05)
    assert float(change.mean()) == pytest.approx(0, abs=0.03)


def test_redrawn_rows_are_another_strings():
    _, strings = drawn("match_to_sample", n=200)
    other = rows_redrawn(strings, 3, generator=generator(0))
    assert torch.equal(other.tokens[:, 3:], strings.tokens[:, 3:])
    assert torch.equal(other.targets, strings.targets)
    equal = (other.tokens[:, None, :3] == strings.tokens[None, :, :3]).all(-1)
    assert bool(equal.any(1).all())
    assert not bool((other.tokens[:, :3] == strings.tokens[:, :3]).all(1).any())


def test_symbols_are_drawn_uniformly_without_replacement():
    tokens = Alphabet(task("recall"), 4)
    strings = sample(tokens, "train", 4000, generator=generator(2))
    symbols = strings.tokens[:, :4]
    assert torch.equal(symbols.sort(1).values, torch.arange(4).expand(4000, 4))
    shares = torch.stack([(symbols[:, 0] == i).float().mean() for i in range(4)])
    assert bool(((shares - 0.25).abs() < 0.04).all())


def test_an_alphabet_that_is_too_small_is_refused():
    with pytest.raises(BadInput, match="alphabet of 3 symbols: task recall needs 4"):
        Alphabet(task("recall"), 3)

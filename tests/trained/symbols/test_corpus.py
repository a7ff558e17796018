"""The text of the language models: words, files that are held out, its digest."""

from pathlib import Path

import pytest
import torch

from trained.errors import BadInput
from trained.symbols import corpus as module
from trained.symbols.corpus import UNKNOWN, encode, standard_library, words


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Four files of ten words each, in place of the standard library."""
    files = []
    for name in "abcd":
        file = tmp_path / f"{name}.py"
        file.write_text(" ".join(f"{name}{place}" for place in range(10)))
        files.append(file)
    pairs = [(file.name, file) for file in files]
    monkeypatch.setattr(module, "_sources", lambda: pairs)
    standard_library.cache_clear()
    return files


def drawn(train_words: int, held_out_words: int) -> module.Corpus:
    return standard_library(
        train_words=train_words, held_out_words=held_out_words, d_vocab=100
    )


def test_words_of_a_line() -> None:
    text = "return self.x2[10]  # näh\n"
    expected = ["return", "self", ".", "x2", "[", "10", "]", "#", "näh", "\n"]
    assert words(text) == expected


def test_the_vocabulary_is_that_of_the_training_words() -> None:
    found = encode(["b", "a", "b", "c"], ["c", "z", "b"], d_vocab=3)
    assert found.vocabulary == ("b", "a")
    assert found.train.tolist() == [1, 2, 1, UNKNOWN]
    assert found.held_out.tolist() == [UNKNOWN, UNKNOWN, 1]


def test_the_digest_is_that_of_the_text() -> None:
    first = encode(["a", "b"], ["c"], 3).digest
    assert torch.equal(first, encode(["a", "b"], ["c"], 2).digest)
    assert not torch.equal(first, encode(["a"], ["b", "c"], 3).digest)
    assert not torch.equal(first, encode(["ab"], ["c"], 3).digest)


def test_whole_files_are_held_out(library: list[Path]) -> None:
    assert len(library) == 4
    found = drawn(train_words=20, held_out_words=13)
    # Ten words of one file and three of the next; the rest of that one is not used.
    files = {word[0] for word in found.vocabulary}
    assert len(files) == 2
    assert found.held_out.tolist() == [UNKNOWN] * 13
    assert (found.train != UNKNOWN).all()


def test_too_few_words_are_refused(library: list[Path]) -> None:
    assert len(library) == 4
    with pytest.raises(BadInput, match="30 words left to train on, not 31"):
        drawn(train_words=31, held_out_words=10)


def test_the_standard_library_is_there() -> None:
    standard_library.cache_clear()
    found = drawn(train_words=3000, held_out_words=500)
    assert "def" in found.vocabulary
    assert len(found.train) == 3000
    names = [name for name, _ in module._sources()]
    assert "json/decoder.py" in names
    assert not any("test" in name.split("/") for name in names)
    assert not any("site-packages" in name for name in names)

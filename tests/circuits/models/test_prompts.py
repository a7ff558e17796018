"""Tokens are found where a piece was written, whatever else looks alike."""

import pytest

from circuits.models.prompts import Piece, named, opening, spanned
from tests.random_models import letter_tokenizer
from tests.word_models import word_model
from trained.errors import BadInput

TEXT = "France -> Paris, South Korea -> Seoul, France ->"


def pieces(*parts: tuple[str, str]) -> list[Piece]:
    return [Piece(text, role) for text, role in parts]


def test_every_role_has_all_its_tokens() -> None:
    model = word_model([TEXT])
    text = pieces(
        ("<s>", ""), ("France", "first"), (" ->", ""), (" South Korea", "second")
    )
    prompts = spanned(model, [text])
    assert prompts.role("first").tolist() == [[1]]
    assert prompts.role("second").tolist() == [[4, 5]]


def test_a_repeated_word_is_told_from_its_first_occurrence() -> None:
    model = word_model([TEXT])
    prompts = spanned(model, [pieces(("France", "a"), (",", ""), (" France", "b"))])
    assert (prompts.role("a").tolist(), prompts.role("b").tolist()) == ([[0]], [[2]])


def test_positions_count_padding_and_short_spans_repeat_their_last_token() -> None:
    model = word_model([TEXT])
    long = pieces((" South Korea", "who"), (",", ""), (" Seoul", ""))
    short = pieces((" France", "who"), (",", ""))
    prompts = spanned(model, [long, short])
    assert prompts.role("who").tolist() == [[0, 1], [2, 2]]
    assert prompts.mask.sum(1).tolist() == [4, 2]


def test_pieces_with_one_role_are_one_span() -> None:
    model = word_model([TEXT])
    prompts = spanned(model, [pieces(("France", "a"), (",", ""), (" Paris", "a"))])
    assert prompts.role("a").tolist() == [[0, 2]]


def test_a_role_that_a_prompt_lacks_is_refused() -> None:
    model = word_model([TEXT])
    with pytest.raises(BadInput, match="role 'a'"):
        spanned(model, [pieces(("France", "a")), pieces(("France", ""))])


def test_a_prompt_opens_with_the_first_token_unless_the_tokenizer_adds_it() -> None:
    model = word_model(["a"])
    assert opening(model) == Piece("<s>")
    assert model.prompts(["<s>a"]).tokens.tolist()[0][0] == 1
    silent = letter_tokenizer()
    silent.bos_token = None
    object.__setattr__(model, "tokenizer", silent)
    assert opening(model) == Piece("")


def test_a_phrase_becomes_a_role_of_all_its_tokens() -> None:
    model = word_model([TEXT])
    prompts = model.prompts([TEXT, "France -> Paris, South Korea ->"])
    found = named(model, prompts, "South Korea", "Paris", "last", (1, 2), None)
    assert found.roles.keys() == {"South Korea", "Paris"}
    # The second prompt is shorter and padded on the left.
    assert found.role("South Korea").tolist() == [[5, 6], [10, 11]]
    assert found.role("Paris").tolist() == [[3], [8]]
    # The last occurrence counts, and a role comes before a phrase.
    assert named(model, prompts, "France").role("France").tolist() == [[11], [5]]
    again = named(model, found, "Paris")
    assert again.role("Paris").tolist() == found.role("Paris").tolist()
    with pytest.raises(BadInput, match="'Seoul' is not in 'France"):
        named(model, prompts, "Seoul")

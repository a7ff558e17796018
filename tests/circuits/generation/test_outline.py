"""How texts are cut into steps, at once and while they are written."""

import pytest
import torch

from circuits.generation.outline import Outline
from circuits.generation.transcript import Spans, Transcript, prompt_marks
from tests.word_models import word_tokenizer

TEXT = "1. Anna is in Rome. So\n\nRome is it! Yes"


class Letters:
    """A tokenizer whose tokens are characters."""

    @staticmethod
    def decode(tokens: list[int], **options: bool) -> str:
        del options
        return "".join(map(chr, tokens))


def test_steps_are_known_while_they_are_written() -> None:
    """Cutting at every letter gives what cutting the whole text gives."""
    outline = Outline(roles=r"(?P<state>\w+)\W*$")
    transcript = Transcript(Letters(), outline, 100)
    marks = [mark for letter in TEXT for mark in transcript.add(ord(letter))]
    steps = [step.text for step in transcript.steps]
    assert steps == ["1. Anna is in Rome.", "So", "Rome is it!", "Yes"]
    ends = list(range(1, len(TEXT) + 1))
    assert transcript.numbers == outline.numbers(TEXT, ends)
    # What lies between two steps belongs to the first.
    assert transcript.steps[1].tokens == range(20, 24)
    assert ("step 1 state", (114, 115, 116, 117)) in marks
    assert [name for name, _ in marks if name.endswith("state")] == [
        *("step 1 state", "step 2 state", "step 3 state"),
    ]


@pytest.mark.parametrize(
    ("text", "ends", "numbers"),
    [
        ("a\nb", [1, 2, 3], [0, 0, 1]),
        # A space before a word belongs to the word's token.
        ("One. Two", [3, 4, 8], [0, 0, 1]),
        # Nothing stands before the first cut.
        ("\n\na\nb", [2, 3, 4, 5], [0, 0, 0, 1]),
        # One token holds a step and the cuts around it.
        ("a. b. c", [1, 6, 7], [0, 1, 2]),
        ("x = 3.5 m", [1, 3, 7, 9], [0, 0, 0, 0]),
        ("2. b", [1, 2, 4], [0, 0, 0]),
        ("", [0], [0]),
    ],
)
def test_tokens_belong_to_the_step_of_their_last_letter(
    text: str, ends: list[int], numbers: list[int]
) -> None:
    assert Outline().numbers(text, ends) == numbers


def test_spans_of_a_prompt_part_its_columns() -> None:
    marks = dict(prompt_marks({"b": [4, 5]}, range(2, 8)))
    assert marks == {"first": (2,), "b": (4, 5), "rest": (3, 6, 7)}
    assert dict(prompt_marks({"all": [0, 1]}, range(2))) == {"all": (0, 1)}
    spans = Spans(2, 9, torch.device("cpu"))
    for mark in (*marks.items(), ("b", (8,))):
        spans.mark(1, mark)
    assert spans.columns(1)["b"] == (4, 5, 8)
    assert spans.columns(0) == {}


def test_words_are_decoded_together() -> None:
    tokenizer = word_tokenizer(["One two. Three"])
    transcript = Transcript(tokenizer, Outline(steps=r"\."), 0)
    for token in tokenizer("One two. Three")["input_ids"]:
        list(transcript.add(token))
    assert [len(step.tokens) for step in transcript.steps] == [3, 1]

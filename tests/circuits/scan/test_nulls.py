"""What is planted is found, what is shuffled is at chance."""

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from circuits.datasets.dataset import dataset_of
from circuits.inspection.encoding import encode
from circuits.models import open as pretrained
from circuits.models.language_model import LanguageModel
from circuits.scan.nulls import draws, moved, other_answers
from circuits.scan.request import Settings
from circuits.scan.shard import measured_shard
from circuits.scan.tables import Labels
from tests.random_models import N_CTX, letter_tokenizer, random_model

PLACE = 2
"""Where the planted head looks."""


@pytest.fixture(scope="module")
def planted() -> LanguageModel:
    """GPT-2 whose head 0.0 looks at one position, and whose other heads at all alike.

    Embeddings are the position alone; the head's keys read that position's direction,
    and all queries are the bias.
    """
    hf = random_model("gpt2")
    with torch.no_grad():
        hf.transformer.wte.weight.zero_()
        hf.transformer.wpe.weight.copy_(10 * torch.eye(N_CTX))
        for block in hf.transformer.h:
            block.attn.c_attn.weight[:, :64].zero_()
            block.attn.c_attn.bias[:64].zero_()
        first = hf.transformer.h[0]
        first.ln_1.weight.fill_(1.0)
        first.ln_1.bias.zero_()
        first.attn.c_attn.bias[0] = 10.0
        first.attn.c_attn.weight[PLACE, 32] = 10.0
    return pretrained.wrap(hf, letter_tokenizer())


def prompts(count: int) -> list[dict[str, Any]]:
    """Letters, with a subject at the place and an object of two letters behind it."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    found = []
    for number in range(count):
        length = 9 + number % 5
        text = (letters * 2)[number % 26 :][:length]
        roles = {"subject": [PLACE, PLACE + 1], "object": [5, 7]}
        found.append({"prompt": text, "answer": text[0], "roles": roles})
    return found


@pytest.fixture(scope="module")
def masses(planted: LanguageModel) -> pd.DataFrame:
    data = dataset_of(prompts(100))
    signals = ("attention",)
    items = encode(planted, data.rows, 0, signals)
    settings, labels = Settings(signals), Labels((), data.roles)
    found = measured_shard(planted, items, settings, labels)["attention"].to_pandas()
    lengths = {item.index: len(item.tokens) for item in items}
    return found.assign(length=found["prompt"].map(lengths))


def test_the_planted_head_is_found_and_no_other(masses: pd.DataFrame) -> None:
    last = masses.query("query == 'last' and key == 'subject'")
    first = last.query("layer == 0 and head == 0")
    assert float(first.mass.min()) > 0.99
    rest = last.drop(first.index)
    np.testing.assert_allclose(rest.mass, 1 / rest.length, rtol=1e-5)
    both = masses.query("query == 'last' and key == 'object' and layer > 0")
    np.testing.assert_allclose(both.mass, 2 / both.length, rtol=1e-5)
    # From the object, at position 6, seven keys are seen.
    looked = masses.query("query == 'object' and key == 'subject' and layer > 0")
    np.testing.assert_allclose(looked.mass, 1 / 7, rtol=1e-5)


def test_shuffled_roles_are_at_chance(masses: pd.DataFrame) -> None:
    last = masses.query("query == 'last' and key == 'subject'")
    null = last.query("layer == 0 and head == 0")
    chance = 1 / (null.length - 1)
    spread = math.sqrt(float((chance * (1 - chance)).sum())) / len(null)
    assert abs(float(null.null_mass.mean() - chance.mean())) < 3 * spread
    even = last.query("layer == 1")
    np.testing.assert_allclose(even.null_mass, even.mass, rtol=1e-5)


def test_what_a_query_cannot_see_is_left_out(masses: pd.DataFrame) -> None:
    pairs = set(zip(masses["query"], masses["key"], strict=True))
    assert pairs == {
        ("last", "subject"),
        ("last", "object"),
        ("last", "first"),
        ("object", "subject"),
    }
    assert masses.query("key == 'first'").null_mass.isna().all()


def test_places_move_within_what_is_seen() -> None:
    seen = {moved((3, 4), 6, draws(0, number)) for number in range(400)}
    assert {place for pair in seen for place in pair} == {1, 2, 3, 4, 5, 6}
    assert len(seen) == 15
    assert moved((0, 2, 9), 2, draws(0, 1)) in {(0, 1), (0, 2)}
    assert moved((0,), 0, draws(0, 1)) == (0,)


def test_another_answer_never_begins_like_the_own(model: LanguageModel) -> None:
    rows = [
        {"prompt": "The capital of France is", "answer": [" Paris", " Rome"]},
        {"prompt": "The capital of Italy is", "answer": " Rome"},
        {"prompt": "The capital of Japan is", "answer": " Tokyo"},
        {"prompt": "The capital of Peru is"},
    ]
    items = encode(model, dataset_of(rows).rows, 0, ("lens",))
    found = other_answers(items, seed=0)
    assert set(found) == {0, 1, 2}
    for item in items[:3]:
        assert found[item.index] not in {answer[0] for answer in item.answers}
    assert other_answers(items[1:2], seed=0) == {}

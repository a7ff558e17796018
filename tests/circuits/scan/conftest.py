"""A tiny model that reads a few facts, and the facts as rows."""

import pytest

from circuits.models.language_model import LanguageModel
from tests.circuits.scan.facts import EXTRA, FACTS, row
from tests.word_models import word_model


@pytest.fixture(scope="session")
def model() -> LanguageModel:
    texts = [f"The capital of {country} is {city}" for country, city in FACTS.items()]
    return word_model([*texts, EXTRA])


@pytest.fixture
def rows() -> list[dict[str, object]]:
    return [row(number) for number in range(len(FACTS))]

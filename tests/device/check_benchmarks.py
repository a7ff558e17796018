"""Benchmarks run on a device that is not the CPU as they are."""

import pytest
import torch

from circuits.datasets.dataset import dataset_of
from circuits.models.language_model import LanguageModel
from circuits.models.open import wrap
from circuits.scan.request import Settings
from scripts import bench, bench_extraction, bench_generation, bench_model, bench_scan
from tests.device import standin
from tests.test_bench import KEYS, TINY
from tests.word_models import word_model


@pytest.mark.parametrize("part", sorted(KEYS))
def test_a_benchmark_runs_there(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the variants give is compared on the way."""
    shapes = {"8 x 128": (2, 16), "1 x 1024": (1, 24)}
    monkeypatch.setattr(bench_extraction, "SHAPES", shapes)
    monkeypatch.setattr(bench_extraction, "peak", lambda name, _shape: len(name))
    with standin.device() as place:
        monkeypatch.setattr(bench_model, "device", lambda: place)
        assert bench_model.gpt2(TINY).device == torch.device(standin.NAME, 0)
        lines = list(bench.part(part, size=TINY, rounds=1))
    assert {line.key for line in lines if line.key} == KEYS[part]


def moved(texts: list[str], place: torch.device) -> LanguageModel:
    model = word_model(texts)
    return wrap(model.module.to(place), model.tokenizer)


def test_writing_is_timed_there() -> None:
    with standin.device() as place:
        model = moved([bench_generation.PROMPT], place)
        found = list(bench_generation.lines(model, n_tokens=2, rounds=1))
    assert "generation.time_over_plain" in {line.key for line in found}


def test_a_scan_is_timed_there() -> None:
    data = dataset_of([{"prompt": "a b c", "answer": " d"}])
    with standin.device() as place:
        model = moved(["a b c d"], place)
        found = list(bench_scan.lines(model, data, Settings(("lens",)), 2, 1))
    assert "scan.prompts_over_forward" in {line.key for line in found}

"""Benchmarks run on a device that is not the CPU as they are."""

import pytest
import torch

from scripts import bench, bench_extraction, bench_model
from tests.device import standin
from tests.test_bench import KEYS, TINY


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

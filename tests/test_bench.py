"""The benchmarks run, agree with each other, and write the keys that others read."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from circuits.datasets.dataset import dataset_of
from circuits.scan.request import Settings
from scripts import (
    bench,
    bench_demo,
    bench_extraction,
    bench_generation,
    bench_growth,
    bench_machine,
    bench_scan,
    bench_seeds,
    bench_timing,
)
from scripts.bench_model import Size
from scripts.bench_timing import Line, interleaved, ratio
from tests.word_models import word_model

TINY = Size(n_layers=2, n_heads=2, d_model=16, d_vocab=50, n_ctx=64)
KEYS = {
    "extraction": {
        "extraction.time_over_floor",
        "extraction.time_over_forward",
        "extraction.speedup_over_best_peer_short",
        "extraction.speedup_over_best_peer_long",
        "extraction.memory_over_run_with_cache",
    },
    "lens": {"lens.target_speedup", "lens.time_over_forward"},
    "patching": {"patching.speedup"},
}


@pytest.mark.parametrize("part", sorted(KEYS))
def test_a_benchmark_gives_its_keys_on_a_tiny_model(
    monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """The variants' values are compared on the way; their times mean nothing here."""
    shapes = {"8 x 128": (2, 24), "1 x 1024": (1, 64)}
    peaks = {bench_extraction.FLOOR: 1.0, bench_extraction.CACHE: 3.0}
    monkeypatch.setattr(bench_extraction, "SHAPES", shapes)
    monkeypatch.setattr(
        bench_extraction, "peak", lambda name, _shape: peaks.get(name, 2.0)
    )
    lines = list(bench.part(part, size=TINY, rounds=1))
    assert {line.key for line in lines if line.key} == KEYS[part]
    assert all(line.value >= 0 for line in lines)


def test_a_machine_is_told_by_what_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_machine, "ROUNDS", 1)
    found = {line.key: line.value for line in bench.part("machine")}
    assert found.keys() == {"machine.gflops", "machine.call_us", "machine.python_ms"}
    assert all(value > 0 for value in found.values())


def test_the_best_round_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter([0.0, 4.0, 4.0, 6.0, 6.0, 9.0])
    monkeypatch.setattr(bench_machine.time, "perf_counter", lambda: next(ticks))
    monkeypatch.setattr(bench_machine, "ROUNDS", 3)
    assert bench_machine.best(lambda: None, 2) == 1.0


def test_seeds_are_timed_stacked_and_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bench_seeds, "STEPS", 2)
    monkeypatch.setattr(bench_seeds, "SEEDS", 2)
    keys = {line.key for line in bench_seeds.lines(rounds=1) if line.key}
    aimed = {key for key, _ in bench_seeds.AIMS.values()}
    assert keys == {*aimed, "seeds.worst_over_loop"}


def test_growth_has_a_row_for_each_axis(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = bench_growth.Work(length=4, layers=1, batch=1, width=12)
    swept = bench_growth.Work(layers=8, width=12)
    monkeypatch.setattr(bench_growth, "WORKS", dict.fromkeys(bench_growth.WORKS, tiny))
    monkeypatch.setattr(bench_growth, "SWEPT", swept)
    monkeypatch.setattr(bench_growth, "peak", lambda _axis, _name, size: len(size))
    monkeypatch.setattr(bench_seeds, "STEPS", 2)
    found = list(bench.part("growth", rounds=1))
    passes = ("measure_over_forward", "memory_over_forward")
    keys = {f"growth.{name}" for name in (*passes, "cells", "seeds")}
    assert {line.key for line in found if line.key} == keys
    for axis in ("length", "layers", "batch", "cells", "seeds"):
        own = [line.name for line in found if line.name.startswith(axis)]
        assert any("time x" in name for name in own), axis
        assert any("peak MB, large" in name for name in own), axis


@pytest.mark.parametrize("axis", ["length", "cells"])
def test_a_peak_is_printed(
    axis: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny = bench_growth.Work(length=4, layers=8, batch=1, width=12)
    monkeypatch.setattr(bench_growth, "WORKS", {"length": tiny})
    monkeypatch.setattr(bench_growth, "SWEPT", tiny)
    bench_growth.print_peak(axis, "measure", "large")
    assert float(capsys.readouterr().out) >= 0


def test_the_demo_is_timed_as_it_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def seconds(command: list[str]) -> tuple[float, float]:
        asked.append(command)
        return 300.0, 50.0

    monkeypatch.setattr(bench_demo, "seconds", seconds)
    found = {line.key: (line.value, line.aim) for line in bench.part("demo")}
    assert found["demo.seconds"] == (300.0, "<= 360")
    assert found["demo.first_verdict"] == (50.0, "<= 60")
    assert asked[0][1:4] == ["confirm", "--preset", "quick"]


def test_every_part_is_tried_here() -> None:
    tried = {*KEYS, "machine", "generation", "seeds", "growth", "demo"}
    assert tried == {*bench.PARTS}


def test_a_scan_is_timed_beside_plain_passes() -> None:
    rows = [{"prompt": "a b c", "answer": " d"}, {"prompt": "d c", "answer": " a"}]
    model, data = word_model(["a b c d", " a"]), dataset_of(rows)
    found = bench_scan.lines(model, data, Settings(("lens",)), prompts=5, rounds=1)
    keys = {line.key: line.value for line in found}
    assert keys["scan.prompts_over_forward"] > 0


def test_writing_with_signals_is_timed_beside_writing_alone() -> None:
    """An error if transformers' own loop did not write the same tokens."""
    model = word_model([bench_generation.PROMPT])
    found = list(bench_generation.lines(model, n_tokens=3, rounds=1))
    keys = {line.key: line.value for line in found if line.key}
    assert list(keys) == ["generation.time_over_plain"]
    assert all(line.value > 0 for line in found)


def test_the_demo_is_timed_to_its_first_verdict_and_to_its_end() -> None:
    words = "print('claims'); {}; time.sleep(0.3); sys.exit({})"
    for code in bench_demo.AS_EXPECTED:
        said = "import sys, time; " + words.format("print('✓ confirmed')", code)
        whole, first = bench_demo.seconds([sys.executable, "-c", said])
        assert 0 < first < whole - 0.25
    for line, code in (("print('✓ confirmed')", 3), ("print('no verdict')", 0)):
        said = "import sys, time; " + words.format(line, code)
        with pytest.raises(RuntimeError, match=f"exit code {code}"):
            bench_demo.seconds([sys.executable, "-c", said])


def test_the_demo_that_is_timed_is_that_of_the_makefile() -> None:
    makefile = (Path(__file__).parents[1] / "Makefile").read_text()
    assert " ".join(["reasonscope", *bench_demo.demo(Path("runs/demo"))]) in makefile


def test_the_table_is_printed_and_kept(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = {
        "lens": [Line("a", 30.0, "lens.target_speedup", ">= 20"), Line("b", 1.0)],
        "patching": [Line("c", 7.0, "patching.speedup", ">= 8")],
    }
    monkeypatch.setattr(bench, "part", lambda name: iter(found[name]))
    file = tmp_path / "bench.json"
    for name in found:
        assert bench.main([name, "--out", str(file)]) == 0
    kept = json.loads(file.read_text())
    assert kept.pop("environment")["device"] in ("cpu", "cuda")
    aims = kept.pop("aims")
    assert aims == {"lens.target_speedup": ">= 20", "patching.speedup": ">= 8"}
    assert kept == {"lens.target_speedup": 30.0, "patching.speedup": 7.0}
    printed = capsys.readouterr().out
    assert "| a | 30 | lens.target_speedup | >= 20 | yes |" in printed
    assert "| c | 7 | patching.speedup | >= 8 | no |" in printed


def test_a_part_that_fails_is_named_and_the_others_run(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def part(name: str) -> Iterator[Line]:
        yield Line("a", 2.0, f"{name}.a", ">= 1")
        if name == "lens":
            raise AssertionError("ours is off by 1e-2")

    monkeypatch.setattr(bench, "part", part)
    file = tmp_path / "bench.json"
    assert bench.main(["lens", "patching", "--out", str(file)]) == bench.FAILED
    said = capsys.readouterr().err
    assert "ours is off by 1e-2" in said
    assert said.endswith("failed: lens\n")
    assert json.loads(file.read_text())["patching.a"] == 2.0


def test_a_process_that_fails_says_why() -> None:
    with pytest.raises(RuntimeError, match=r"(?s)json.tool no-file: .*No such file"):
        bench_timing.in_own_process("json.tool", ["no-file"])


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere peaks cannot be reset")
def test_a_peak_is_that_of_what_is_held() -> None:
    own = bench_timing.in_own_process("tests.freed_blocks", [])
    assert own == pytest.approx(24, abs=3)


def test_an_unknown_part_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leaving:
        bench.main(["speed"])
    assert leaving.value.code == 2
    assert "unknown part 'speed'; choose from: machine" in capsys.readouterr().err


def test_a_ratio_is_taken_within_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow round slows both; the warm-up does not count."""
    spent = iter([99.0, 99.0, 2.0, 1.0, 20.0, 10.0, 6.0, 2.0])
    monkeypatch.setattr(bench_timing, "_seconds", lambda _run: next(spent))
    rounds = interleaved({"ours": list, "theirs": list}, 3)
    assert rounds == {"ours": [2.0, 20.0, 6.0], "theirs": [1.0, 10.0, 2.0]}
    assert ratio(rounds, "ours", "theirs") == 2.0

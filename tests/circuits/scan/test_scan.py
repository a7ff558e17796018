"""A scan as a whole: resumed, refused, in workers; the same bytes every time."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import reasonscope as rs
from circuits.models.language_model import LanguageModel
from circuits.scan import folder
from circuits.scan.request import Settings
from trained.errors import BadInput, Busy
from trained.lock import owned

CHEAP = ("lens", "attention", "alignment")


def shards_of(path: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in sorted(path.rglob("*.parquet"))
    }


@pytest.fixture
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "SHARD", 2)


@pytest.mark.usefixtures("small_shards")
def test_an_interrupted_scan_goes_on_to_the_same_bytes(
    model: LanguageModel, rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    signals = (*CHEAP, "patching", "attribution", "resid_post:1")
    whole = rs.scan(model, rows, tmp_path / "whole", signals)
    told: list[tuple[int, int]] = []

    def interrupt(done: int, total: int) -> None:
        told.append((done, total))
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rs.scan(model, rows, tmp_path / "cut", signals, progress=interrupt)
    lost = tmp_path / "cut" / "lens" / "00000.parquet"
    lost.write_bytes(lost.read_bytes()[:-9])
    (tmp_path / "cut" / "lens" / "00001.parquet.1-aa.partial").touch()
    assert not (tmp_path / "cut" / "summary.json").exists()
    told.clear()
    again = rs.scan(
        model, rows, tmp_path / "cut", signals, progress=lambda *n: told.append(n)
    )
    assert told == [(0, 6), (2, 6), (4, 6), (6, 6)]
    assert shards_of(again.path) == shards_of(whole.path)
    assert len(shards_of(whole.path)) == 3 * (len(signals) + 1)
    for name in ("summary.json", "manifest.json"):
        stored = [(s.path / name).read_text() for s in (whole, again)]
        assert stored[0] == stored[1]
    assert not list(again.path.rglob("*.partial"))
    told.clear()
    rs.scan(model, rows, tmp_path / "cut", signals, progress=lambda *n: told.append(n))
    assert told == [(6, 6)]


def test_a_folder_of_something_else_is_refused(
    model: LanguageModel, rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    rs.scan(model, rows, out, ["lens"])
    before = shards_of(out)
    for change, words in (
        ({"signals": ["attention"]}, "signals is lens there, attention here"),
        ({"seed": 1}, "seed is 0 there, 1 here"),
        ({"batch_tokens": 99}, "batch_tokens is 1024 there, 99 here"),
        ({"data": rows[:-1]}, "prompts is 6 there, 5 here"),
    ):
        asked: dict[str, Any] = {"data": rows, "signals": ["lens"], **change}
        with pytest.raises(BadInput, match=words):
            rs.scan(model, out=out, **asked)
    assert shards_of(out) == before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("text")
    with pytest.raises(BadInput, match=r"holds thesis\.txt and is no scan"):
        rs.scan(model, rows, tmp_path / "mine", ["lens"])
    with owned(out), pytest.raises(Busy, match="is scanning"):
        rs.scan(model, rows, out, ["lens"])


def test_what_the_rows_lack_is_named(
    model: LanguageModel, rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    bare = [{"prompt": "The capital of France is"}] * 2
    found = rs.scan(model, bare, tmp_path / "bare")
    assert list(found.summary["signals"]) == ["attention"]
    assert set(found.frame("attention")["key"]) == {"first"}
    rows[2]["corrupt"] = "The capital is"
    long = {"prompt": "The capital of " * 400, "answer": " Paris"}
    twin = {**rows[0], "corrupt": rows[0]["prompt"]}
    same = {**rows[0], "corrupt_answer": " Paris is"}
    for data, signals, words in (
        (bare, ("lens",), "no row has the field 'answer' that lens needs"),
        (bare, ("alignment",), "no row has the field 'roles'"),
        (rows, ("patching",), "row 3: field 'corrupt' has 3 tokens, the prompt 6"),
        ([long], ("lens",), "row 1: field 'prompt' has 1201 tokens with its answer"),
        ([twin], ("patching",), "row 1: field 'corrupt' is the same as the prompt"),
        ([same], ("attribution",), "row 1: field 'corrupt_answer' begins with the"),
        (rows, ("resid_post:9",), "unknown signal 'resid_post:9'; choose from: resid"),
        (rows, ("smell",), "unknown signal 'smell'; choose from: lens, attention"),
        (rows, (), "name at least one signal"),
    ):
        with pytest.raises(BadInput, match=words):
            rs.scan(model, data, tmp_path / "refused", signals)
    assert not (tmp_path / "refused").exists()
    with pytest.raises(BadInput, match="give its name"):
        rs.scan(model, rows, tmp_path / "refused", workers=2)


def test_the_summary_counts_groups_and_whole_answers(
    model: LanguageModel, rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    done = rs.scan(model, rows, tmp_path / "out", (*CHEAP, "patching", "attribution"))
    lens, frame = done.summary["signals"]["lens"], done.frame("lens")
    every = [record for record in lens if record["group"] == "all"]
    assert [record["layer"] for record in every] == [-1, 0, 1]
    assert {record["n"] for record in every} == {6}
    assert {r["n"] for r in lens if r["group"] == "one"} == {4}
    last = frame[frame.layer == 1]
    whole = last[last.prompt == 2].log_prob.sum()
    one = [r for r in done.summary["signals"]["lens"] if r["layer"] == 1]
    by_prompt = last.groupby(["prompt", "answer"]).log_prob.sum().groupby("prompt")
    from numpy import exp, log

    expected = by_prompt.apply(lambda own: log(exp(own.astype(float)).sum()))
    assert expected[2] == pytest.approx(whole, rel=1e-5)
    assert one[0]["log_prob"] == pytest.approx(float(expected.mean()), rel=1e-5)
    patched = done.frame("patching").query("layer == 1 and place == 'last'")
    share = (patched.patched - patched.corrupt).mean()
    share /= (patched.clean - patched.corrupt).mean()
    (record,) = [
        r
        for r in done.summary["signals"]["patching"]
        if (r["layer"], r["place"], r["group"]) == (1, "last", "all")
    ]
    assert record["recovery"] == pytest.approx(float(share), rel=1e-4)
    assert record["recovery"] == pytest.approx(1.0, abs=1e-4)
    assert set(done.figures()) == {*CHEAP, "patching", "attribution"}


def test_shards_are_equal_and_as_few_as_can_be() -> None:
    assert [len(shard) for shard in folder.shards(300)] == [100, 100, 100]
    assert folder.shards(1) == [range(1)]
    assert Settings(("mlp_out:3",)).sites["mlp_out:3"] == rs.Site("mlp_out", 3)


@pytest.mark.slow
def test_killed_with_two_workers_and_resumed_alone_gives_the_same_bytes(
    model: LanguageModel, rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    model.module.save_pretrained(tmp_path / "model")
    model.tokenizer.save_pretrained(tmp_path / "model")
    data = tmp_path / "data.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows * 50))
    out = tmp_path / "out"
    command = [
        *(sys.executable, "-m", "circuits.command.cli", "scan"),
        *(str(tmp_path / "model"), str(data), "-o", str(out), "--workers", "2"),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    first = out / "alignment"
    while process.poll() is None and not list(first.glob("*.parquet")):
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = rs.scan(str(tmp_path / "model"), str(data), out)
    alone = rs.scan(str(tmp_path / "model"), str(data), tmp_path / "alone")
    assert len(shards_of(done.path)) == 3 * 4
    assert shards_of(done.path) == shards_of(alone.path)
    assert done.summary == alone.summary

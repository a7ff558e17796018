"""Processes that are ended at any moment: nothing is lost, nobody lives on."""

import json
import random
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from circuits.command.request import NOT_CONFIRMED
from circuits.study import Request
from circuits.training import prepare, train_run
from tests.random_models import letter_tokenizer, random_model
from trained.store import Run

from . import processes
from .processes import COMMAND, Ended, Target
from .study import LIBRARY, REFERENCE
from .tally import Hashes, Row, hashes, litter

KILLS: tuple[tuple[signal.Signals, Target], ...] = (
    (signal.SIGKILL, "parent"),
    (signal.SIGKILL, "group"),
    (signal.SIGKILL, "worker"),
    (signal.SIGTERM, "parent"),
    (signal.SIGTERM, "group"),
    (signal.SIGINT, "parent"),
    (signal.SIGINT, "group"),
)
CODES = {signal.SIGKILL: -9, signal.SIGTERM: 130, signal.SIGINT: 130}


def prepared(out: Path) -> Run:
    """The run that the command trains."""
    return prepare(Request(REFERENCE, device="cpu", out=out))


def trained(out: Path) -> Run:
    """The run, left in peace."""
    run = prepared(out)
    train_run(run)
    return run


def train_command(out: Path) -> list[str]:
    """The command that trains it."""
    options = ("--device", "cpu", "--jobs", "2", "--out", str(out))
    return [*COMMAND, "train", REFERENCE, *options]


def killed_training(folder: Path, tries: int, whole: Hashes) -> Iterator[Row]:
    """`train` in two processes, ended in each of the ways."""
    source = random.Random(0)
    for number, target in KILLS:
        row = Row(f"training, {number.name} to the {target}")
        for index in range(tries):
            out = folder / f"{number.name}-{target}-{index}"
            run = prepared(out)
            found = processes.ended(
                train_command(out),
                number,
                target,
                ready=lambda run=run: any(run.path.glob("*/**/.lock")),
                pause=source.uniform(0.0, 1.5),
            )
            row.add(found.said, _after_training(run, found, number, target, whole))
        yield row


def _after_training(
    run: Run, found: Ended, number: signal.Signals, target: Target, whole: Hashes
) -> list[str]:
    expected = 3 if target == "worker" else CODES[number]
    complaints = list(found.complaints)
    if found.code not in (expected, 0):
        complaints.append(f"exit code {found.code}, not {expected}: {found.said}")
    kept = hashes(run)
    train_run(run)
    again = hashes(run)
    if any(again[arm] != files for arm, files in kept.items()):
        complaints.append("a finished arm was trained again to other bits")
    if again != whole:
        complaints.append("the bits are not those of the unbroken run")
    return complaints + litter(run)


def killed_library(folder: Path, tries: int) -> Iterator[Row]:
    """Work by the library that saves at every step."""
    source = random.Random(1)
    for name, work in LIBRARY.items():
        whole = work(str(folder / name / "whole"))
        row = Row(f"{name}, SIGKILL")
        for index in range(tries):
            path = folder / name / str(index)
            found = processes.ended(
                [sys.executable, "-c", _call(work.__name__, path)],
                signal.SIGKILL,
                "parent",
                ready=lambda path=path: any(path.rglob("state-0*")),
                pause=source.uniform(0.0, 2.0),
            )
            again, complaints = work(str(path)), list(found.complaints)
            if again.files != whole.files:
                complaints.append("the bits are not those of the unbroken run")
            row.add(found.said, complaints + again.odd)
        yield row


def _call(name: str, path: Path) -> str:
    return f"from tests.faults.study import {name}; {name}({str(path)!r})"


def killed_judging(folder: Path, tries: int) -> Iterator[Row]:
    """`confirm` on a trained run, ended while it measures, draws and writes."""
    source = random.Random(2)
    run = trained(folder / "judged")
    before, verdicts = hashes(run), folder / "verdicts.json"
    command = [*COMMAND, "confirm", REFERENCE, "--device", "cpu", "--figures"]
    command += ["--out", str(folder / "judged"), "--json", str(verdicts)]
    # Two seeds decide nothing, which is a result.
    assert processes.run(command).code == NOT_CONFIRMED
    known = _judged(verdicts)
    for number in (signal.SIGKILL, signal.SIGTERM):
        row = Row(f"judging and drawing, {number.name}")
        for _ in range(tries):
            pause = source.uniform(2.0, 7.0)
            found = processes.ended(command, number, "parent", lambda: True, pause)
            complaints = list(found.complaints)
            if found.code not in (CODES[number], NOT_CONFIRMED):
                complaints.append(f"exit code {found.code}: {found.said}")
            if _judged(verdicts) != known or hashes(run) != before:
                complaints.append("a stored verdict or run was changed")
            row.add(found.said, complaints)
        yield row


def killed_reports(folder: Path, tries: int) -> Iterator[Row]:
    """`report` on a trained run: the page is whole, the one before, or not there."""
    source = random.Random(3)
    run, page = trained(folder / "reported"), folder / "page.html"
    command = [*COMMAND, "report", str(run.path), "-o", str(page)]
    assert processes.run(command).code == 0
    for number in (signal.SIGKILL, signal.SIGTERM):
        row = Row(f"writing the report, {number.name}")
        for _ in range(tries):
            pause = source.uniform(2.0, 9.0)
            found = processes.ended(command, number, "parent", lambda: True, pause)
            complaints = list(found.complaints)
            if found.code not in (CODES[number], 0):
                complaints.append(f"exit code {found.code}: {found.said}")
            if not page.read_text().rstrip().endswith("</html>"):
                complaints.append("the page is not whole")
            row.add(found.said, complaints)
        yield row


def killed_scans(folder: Path, tries: int) -> Iterator[Row]:
    """`scan` with two workers, ended and repeated with one: the same bytes."""
    source, place = random.Random(4), folder / "scanned"
    model = random_model("gpt2")
    model.save_pretrained(place / "model")
    letter_tokenizer().save_pretrained(place / "model")
    letters = ({"prompt": f"{a} {b} c", "answer": "d"} for a in "abcd" for b in "abcd")
    text = "".join(f"{json.dumps(row)}\n" for row in letters) * 40
    (place / "data.jsonl").write_text(text)

    def command(out: Path, workers: int) -> list[str]:
        given = (str(place / "model"), str(place / "data.jsonl"), "-o", str(out))
        return [*COMMAND, "scan", *given, "--workers", str(workers)]

    assert processes.run(command(place / "whole", 1)).code == 0
    for number, target in KILLS:
        row = Row(f"scanning, {number.name} to the {target}")
        for index in range(tries):
            out = place / f"{number.name}-{target}-{index}"
            found = processes.ended(
                command(out, 2),
                number,
                target,
                ready=lambda out=out: any(out.glob("*/*.parquet")),
                pause=source.uniform(0.0, 0.5),
            )
            again, complaints = processes.run(command(out, 1)), list(found.complaints)
            if again.code != 0:
                complaints.append(f"repeated: exit code {again.code}: {again.said}")
            if _shards(out) != _shards(place / "whole"):
                complaints.append("the bytes are not those of the unbroken scan")
            row.add(found.said + again.said, complaints)
        yield row


def _shards(folder: Path) -> dict[str, bytes]:
    files = sorted(folder.glob("*/*.parquet"))
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


def _judged(file: Path) -> list[object]:
    return [v["values"] for v in json.loads(file.read_text())["verdicts"]]


def two_at_once(folder: Path, tries: int, whole: Hashes) -> Row:
    """Two processes with the same request: one trains, one says so or finds it done."""
    row = Row("two processes, one run")
    for index in range(tries):
        out = folder / f"two-{index}"
        both = [processes.start(train_command(out)) for _ in range(2)]
        said = [process.communicate()[0] for process in both]
        codes = sorted(process.returncode for process in both)
        complaints = []
        if codes not in ([0, 0], [0, 3]):
            complaints.append(f"exit codes {codes}: {said}")
        if codes == [0, 3] and not any("is training" in text for text in said):
            complaints.append(f"nobody was named: {said}")
        run = prepared(out)
        if hashes(run) != whole:
            complaints.append("the bits are not those of one process")
        row.add("".join(said), complaints + litter(run))
    return row

"""Files that were cut or edited: refused in one line, or done without."""

import io
import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from circuits.command.cli import main
from tests.toy import start_run, two_stage_arm
from trained.arm import Arm
from trained.errors import Incomplete
from trained.store import Run, sha256
from trained.trainer import Engine, Observer
from trained.training import train

from .study import REFERENCE
from .tally import Hashes, Row, hashes

Edit = Callable[[Path], object]


def _cut(share: float) -> Edit:
    return lambda file: file.write_bytes(
        file.read_bytes()[: int(file.stat().st_size * share)]
    )


def _flip(share: float) -> Edit:
    def flip(file: Path) -> None:
        content = bytearray(file.read_bytes())
        content[int((len(content) - 1) * share)] ^= 1
        file.write_bytes(content)

    return flip


BYTES: dict[str, Edit] = {
    **{f"cut at {share}": _cut(share) for share in (0.0, 0.1, 0.5, 0.99)},
    **{f"a bit at {share}": _flip(share) for share in (0.0, 0.02, 0.5, 1.0)},
    "removed": Path.unlink,
    "a directory": lambda file: (file.unlink(), file.mkdir()),
    "a pickle": lambda file: torch.save({"a": torch.zeros(2)}, file),
}


def _json(**changes: Any) -> Edit:
    def edit(file: Path) -> None:
        file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))

    return edit


def _tensors(change: Callable[[torch.Tensor], torch.Tensor]) -> Edit:
    """Edit the weights and their hash in the record: only their content is off."""

    def edit(file: Path) -> None:
        save_file({name: change(t) for name, t in load_file(file).items()}, file)
        record = json.loads((file.parent / "arm.json").read_text())
        record["files"][file.name] = sha256(file)
        (file.parent / "arm.json").write_text(json.dumps(record))

    return edit


MANIFEST: dict[str, Edit] = {
    "schema 3": _json(schema=3),
    "no schema": _json(schema=None),
    "other seeds": _json(seeds=[7, 8]),
    "no seeds": _json(seeds=[]),
    "seeds that are words": _json(seeds=["a"]),
    "another study": _json(study="recall"),
    "no config": _json(config=None),
    "a path as a name": _json(config={"tags": ["../../x"], "depth": "../x"}),
    "nothing": lambda file: file.write_text("{}"),
    "a list": lambda file: file.write_text("[1]"),
    "deep": lambda file: file.write_text("[" * 100_000),
}
RECORD: dict[str, Edit] = {
    "emptied": lambda file: file.write_text("{}"),
    "no seeds": _json(seeds=[]),
    "other seeds": _json(seeds=[7, 8]),
    "no steps": _json(saved_steps=[]),
    "a path as a step": _json(saved_steps=["../../../etc/passwd"]),
    "no files": _json(files={}),
    "a path as a file": _json(files={"../manifest.json": "0" * 64}),
    "no seconds": _json(seconds="x"),
    "failed is a list": _json(failed=[1]),
}
WEIGHTS: dict[str, Edit] = {
    "not a number": _tensors(lambda t: t * float("nan")),
    "another type": _tensors(lambda t: t.half()),
    "another shape": _tensors(lambda t: t[..., :-1].contiguous()),
}


VERBS = ("train", "probe", "figure", "verify")


def edited_runs(run: Path, folder: Path, verbs: Iterable[str] = VERBS) -> Iterator[Row]:
    """A finished run with one file edited: what reads it refuses it in one line."""
    last = max((run / "net").glob("weights-*"), key=lambda f: int(f.stem.split("-")[1]))
    weights = f"net/{last.name}"
    edits = [
        *((weights, name, edit) for name, edit in (BYTES | WEIGHTS).items()),
        *(("net/metrics.safetensors", name, edit) for name, edit in BYTES.items()),
        *(
            ("net/arm.json", n, e)
            for n, e in (BYTES | RECORD).items()
            if n != "removed"
        ),
        *(("manifest.json", n, e) for n, e in (BYTES | MANIFEST).items()),
    ]
    for verb in verbs:
        row = Row(f"an edited file, {verb}")
        for name, what, edit in edits:
            copy = folder / "copy" / run.name
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(run, copy)
            edit(copy / name)
            # `verify` says whether files are as written, not whether that makes sense.
            if (verb, edit) not in [("verify", e) for e in WEIGHTS.values()]:
                row.add(*_read(verb, copy, f"{name}, {what}"))
        yield row


def _read(verb: str, run: Path, what: str) -> tuple[str, list[str]]:
    options = {
        "train": [
            REFERENCE,
            "--jobs",
            "1",
            "--device",
            "cpu",
            "--out",
            str(run.parent),
        ],
        "figure": ["loss", str(run), "-o", str(run.parent / "x.png")],
    }
    out, said = io.StringIO(), io.StringIO()
    try:
        with redirect_stdout(out), redirect_stderr(said):
            code = main([verb, *options.get(verb, [str(run)])])
    except BaseException as error:
        return f"Traceback: {what}: {error!r}", []
    text = said.getvalue()
    # To train is to write what was removed.
    if (verb, what, code) == ("train", "manifest.json, removed", 0):
        return text, []
    fine = code == 2 and text.count("\n") == 1
    return text, [] if fine else [f"{verb} {what}: exit code {code}: {text}"]


class _Stop(Observer):
    def on_step(self, arm: Arm, step: int, losses: torch.Tensor) -> None:  # noqa: ARG002
        if step == 5:
            raise KeyboardInterrupt


HARMS = tuple(name for name in BYTES if name != "a directory")
"""What an unfinished run has to get over; a directory in its way it may name."""


def edited_states(folder: Path, harms: Iterable[str] = HARMS) -> Row:
    """An unfinished run with one file edited: it ends with the same bits, or says."""
    row, arm = Row("an edited checkpoint"), two_stage_arm(4)
    engine = Engine(batching="vmap", save_seconds=0.0)
    whole, begun = start_run(folder / "whole"), start_run(folder / "begun")
    train(whole, [arm], engine=engine)
    with suppress(KeyboardInterrupt):
        train(begun, [arm], engine=engine, observer=_Stop())
    files = sorted((begun.path / "net" / "group-0").iterdir())
    for file in (f.relative_to(begun.path) for f in files):
        for what in harms:
            copy = Run(folder / "copy-of-state")
            shutil.rmtree(copy.path, ignore_errors=True)
            shutil.copytree(begun.path, copy.path)
            BYTES[what](copy.path / file)
            row.add(*_train_again(copy, arm, engine, f"{file}, {what}", hashes(whole)))
    return row


def _train_again(
    run: Run, arm: Arm, engine: Engine, what: str, whole: Hashes
) -> tuple[str, list[str]]:
    try:
        with suppress(Incomplete):
            train(run, [arm], engine=engine)
        train(run, [arm], engine=engine)
    except Exception as error:
        return f"Traceback: {what}: {error!r}", []
    return "", [] if hashes(run) == whole else [f"{what}: other bits"]

"""A state that was cut or edited is not believed; the one before it is."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.toy import two_stage_arm
from trained import files as stored_files
from trained.arm import Arm
from trained.errors import BadInput, Incomplete
from trained.state import StateFiles, read_checked, write_checked
from trained.store import Run
from trained.trainer import Engine, Observer
from trained.training import train

NewRun = Callable[..., Run]


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-8])


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


def empty(file: Path) -> None:
    file.write_bytes(b"")


HARMS = {"cut": cut, "flipped": flip, "emptied": empty, "removed": Path.unlink}


@pytest.mark.parametrize("harm", HARMS)
def test_the_state_before_is_taken(tmp_path: Path, harm: str) -> None:
    states = StateFiles(tmp_path)
    assert states.read() is None
    for step in range(4):
        states.write({"x": torch.full((3,), float(step))}, {"stage": 0, "step": step})
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "state-0.safetensors",
        "state-1.safetensors",
    ]
    HARMS[harm](tmp_path / "state-1.safetensors")
    again = StateFiles(tmp_path)
    found = again.read()
    assert found is not None
    assert found[1] == {"stage": 0, "step": 2}
    assert found[0]["x"].tolist() == [2, 2, 2]
    # The next one goes to the place of the harmed one.
    again.write({"x": torch.zeros(3)}, {"stage": 0, "step": 3})
    (tmp_path / "state-0.safetensors").unlink()
    assert StateFiles(tmp_path).read() is not None


def test_a_place_that_was_edited_is_not_believed(tmp_path: Path) -> None:
    file = tmp_path / "x.safetensors"
    write_checked(file, {"x": torch.zeros(3)}, {"step": 1})
    assert read_checked(file)[1] == {"step": 1}
    content = file.read_bytes()
    assert b'"step":"1"' in content
    file.write_bytes(content.replace(b'"step":"1"', b'"step":"7"'))
    with pytest.raises(BadInput, match="was changed"):
        read_checked(file)


class Stop(Observer):
    """Ends training after some steps, as a kill would."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def on_step(self, arm: Arm, step: int, losses: torch.Tensor) -> None:  # noqa: ARG002
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


def harmed_run(new_run: NewRun, harm: str, files: str) -> Run:
    """A run that was ended in mid-training and then harmed."""
    run = new_run("harmed")
    with pytest.raises(KeyboardInterrupt):
        train(run, [ARM], engine=ENGINE, observer=Stop(6))
    for file in (run.path / "net" / "group-0").glob(f"{files}.safetensors"):
        HARMS[harm](file)
    return run


ARM, ENGINE = two_stage_arm(4), Engine(batching="vmap", save_seconds=0.0)


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("files", ["state-0", "state-1", "state-*"])
def test_a_run_whose_state_was_harmed_ends_with_the_same_bits(
    new_run: NewRun, harm: str, files: str
) -> None:
    whole, harmed = new_run("whole"), harmed_run(new_run, harm, files)
    for run in (whole, harmed):
        train(run, [ARM], engine=ENGINE)
    assert harmed.record("net")["files"] == whole.record("net")["files"]


@pytest.mark.parametrize("harm", HARMS)
def test_kept_weights_that_were_harmed_are_made_again(
    new_run: NewRun, harm: str
) -> None:
    whole, harmed = new_run("whole"), harmed_run(new_run, harm, "weights-0")
    with pytest.raises(Incomplete, match=r"weights-0\.safetensors.*trained again"):
        train(harmed, [ARM], engine=ENGINE)
    for run in (whole, harmed):
        train(run, [ARM], engine=ENGINE)
    assert harmed.record("net")["files"] == whole.record("net")["files"]


@pytest.mark.parametrize("files", ["state-0", "weights-0"])
def test_what_may_be_readable_another_time_is_not_given_up(
    new_run: NewRun, monkeypatch: pytest.MonkeyPatch, files: str
) -> None:
    whole, run = new_run("whole"), harmed_run(new_run, "cut", "nothing")
    read = stored_files.safe_open

    def busy(path: Path, **options: str) -> object:
        if path.name == f"{files}.safetensors":
            raise OSError(errno.EMFILE, "Too many open files")
        return read(path, **options)

    with monkeypatch.context() as patch:
        patch.setattr(stored_files, "safe_open", busy)
        with pytest.raises(BadInput, match="Too many open files"):
            train(run, [ARM], engine=ENGINE)
    for each in (whole, run):
        train(each, [ARM], engine=ENGINE)
    assert run.record("net")["files"] == whole.record("net")["files"]

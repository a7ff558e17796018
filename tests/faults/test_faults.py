"""The short version of `make test-faults`: every kind of fault once."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults import disks, edits, fuzz, kills
from tests.faults.interrupts import interrupted_hooks
from tests.faults.tally import Hashes, Row, hashes, table
from trained.store import Run

KILLS = (
    (signal.SIGKILL, "parent"),
    (signal.SIGKILL, "worker"),
    (signal.SIGTERM, "parent"),
)


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The run of a process that nobody disturbs."""
    return kills.trained(tmp_path_factory.mktemp("reference"))


@pytest.fixture
def whole(reference: Run) -> Hashes:
    return hashes(reference)


def check(rows: Iterator[Row]) -> None:
    found = list(rows)
    assert found
    assert all(row.clean for row in found), table(found)


def test_edited_runs_are_refused_in_one_line(reference: Run, tmp_path: Path) -> None:
    check(edits.edited_runs(reference.path, tmp_path, ("train", "probe")))


def test_edited_checkpoints_change_no_bit(tmp_path: Path) -> None:
    check(iter([edits.edited_states(tmp_path, ("cut at 0.5", "a bit at 1.0"))]))


def test_hostile_input_is_refused_in_one_line(reference: Run, tmp_path: Path) -> None:
    check(fuzz.campaign(reference, tmp_path / "fuzz", 400))


@pytest.mark.slow
def test_an_interrupt_at_any_moment_leaves_no_hook() -> None:
    check(iter([interrupted_hooks(100)]))


@pytest.mark.slow
@pytest.mark.parametrize("kill", KILLS, ids=lambda kill: f"{kill[0].name}-{kill[1]}")
def test_a_killed_command_loses_nothing(
    tmp_path: Path, whole: Hashes, monkeypatch: pytest.MonkeyPatch, kill: object
) -> None:
    monkeypatch.setattr(kills, "KILLS", (kill,))
    check(kills.killed_training(tmp_path, 1, whole))


@pytest.mark.slow
def test_a_killed_library_run_loses_nothing(tmp_path: Path) -> None:
    check(kills.killed_library(tmp_path, 1))


@pytest.mark.slow
def test_two_processes_do_not_share_a_run(tmp_path: Path, whole: Hashes) -> None:
    check(iter([kills.two_at_once(tmp_path, 1, whole)]))


@pytest.mark.slow
def test_a_full_and_a_read_only_disk_lose_nothing(
    tmp_path: Path, whole: Hashes
) -> None:
    if not disks.can_mount(tmp_path):
        pytest.skip("no disk can be mounted here")
    check(iter([disks.full_disks(tmp_path, (450,), whole)]))
    check(iter([disks.read_only_disks(tmp_path)]))

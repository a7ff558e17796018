"""What the tests of the command share: a place of their own, a run, a refusal."""

from collections.abc import Callable
from pathlib import Path

import pytest

from circuits.command.cli import main

Refuse = Callable[..., str]

TOY = "tests.toy:STUDY"


def contents(folder: Path) -> dict[Path, bytes]:
    """Every file below a folder."""
    return {f: f.read_bytes() for f in folder.rglob("*") if f.is_file()}


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The default place for runs is the working directory."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def refuse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Refuse:
    """Checks that a command is refused in one line and leaves all files as they are."""

    def check(*arguments: str) -> str:
        before = contents(tmp_path)
        capsys.readouterr()
        assert main(arguments) == 2
        written = capsys.readouterr()
        assert written.out == ""
        assert written.err.startswith("reasonscope: ")
        assert written.err.count("\n") == 1
        assert "Traceback" not in written.err
        assert contents(tmp_path) == before
        return written.err

    return check


@pytest.fixture
def toy_run(capsys: pytest.CaptureFixture[str]) -> Path:
    """A trained run of the toy study, where the test is: ask for `elsewhere` too."""
    assert main(["train", TOY, "--jobs", "1"]) == 0
    return Path(capsys.readouterr().out.strip())

"""Results go where they were asked for, whole, whoever reads them."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from circuits.command.output import JsonOutput, check_output
from trained.errors import BadInput

VALUE = {"study": "toy", "verdicts": [1.5, None]}


def test_a_file_is_written_and_replaced_as_a_whole(tmp_path: Path) -> None:
    output = JsonOutput(tmp_path / "deep" / "x.json")
    output.keep([1])
    output.finish(VALUE)
    assert json.loads((tmp_path / "deep" / "x.json").read_text()) == VALUE
    assert not output.takes_stdout


def test_a_link_is_followed_not_replaced(tmp_path: Path) -> None:
    target, link = tmp_path / "target.json", tmp_path / "link.json"
    link.symlink_to(target)
    JsonOutput(link).finish(VALUE)
    assert link.is_symlink()
    assert json.loads(target.read_text()) == VALUE


def test_a_pipe_is_written_through_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    output = JsonOutput(pipe)
    output.keep([1])
    reader.start()
    output.finish(VALUE)
    reader.join(10)
    assert json.loads(read[0]) == VALUE
    assert pipe.is_fifo()


@pytest.mark.parametrize("name", ["-", "/dev/stdout"])
def test_standard_output_takes_the_json(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    output = JsonOutput(Path(name))
    assert output.takes_stdout
    output.finish(VALUE)
    assert json.loads(capsys.readouterr().out) == VALUE


@pytest.mark.parametrize("place", ["", "file/x.json", "/proc/x.json"])
def test_a_bad_place_is_refused_before_the_work(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="--json"):
        JsonOutput(tmp_path / place)


def test_trying_leaves_nothing_behind(tmp_path: Path) -> None:
    check_output("--json", tmp_path / "a" / "x.json")
    assert list(tmp_path.iterdir()) == []


def test_a_reader_that_leaves_changes_neither_exit_code_nor_file(
    tmp_path: Path,
) -> None:
    code = (
        "import sys, time\n"
        "from circuits.command.request import guarded\n"
        "def work():\n"
        "    for line in range(20000): print('x' * 80)\n"
        "    open('done', 'w').write('kept')\n"
        "    return 1\n"
        "sys.exit(guarded(work))\n"
    )
    shell = 'set -o pipefail; "$0" -c "$1" | head -1'
    done = subprocess.run(
        ["bash", "-c", shell, sys.executable, code],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert (tmp_path / "done").read_text() == "kept"

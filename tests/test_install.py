"""What is installed: three packages, stored verdicts, the public face, one command."""

import subprocess
import sys
from importlib.metadata import distribution, entry_points
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("circuits", "probes", "trained")
MODULES = ("circuits", "probes", "reasonscope", "trained")


def test_the_names_are_this_checkout_from_anywhere(tmp_path: Path) -> None:
    code = (
        f"import {', '.join(MODULES)}\n"
        f"for module in ({', '.join(MODULES)}): print(module.__file__)\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", code],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=True,
    )
    places = [Path(line) for line in done.stdout.splitlines()]
    face = ROOT / "reasonscope.py"
    folders = {ROOT / name / "__init__.py" for name in PACKAGES}
    assert set(places) == {face, *folders}


def test_the_command_is_declared() -> None:
    (command,) = entry_points(group="console_scripts", name="reasonscope")
    assert command.value == "circuits.command.cli:entry_point"
    assert callable(command.load())


def test_the_command_runs_from_anywhere(tmp_path: Path) -> None:
    command = Path(sys.executable).parent / "reasonscope"
    done = subprocess.run(
        [command, "confirm", "chess"], capture_output=True, text=True, cwd=tmp_path
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("reasonscope: unknown study 'chess'")
    assert done.stderr.count("\n") == 1


def test_scripts_and_tests_are_not_installed() -> None:
    listed = distribution("reasonscope").read_text("top_level.txt")
    assert listed is not None
    assert set(listed.split()) == {*MODULES, "results"}


def test_the_packages_say_that_they_are_typed() -> None:
    assert all((ROOT / name / "py.typed").is_file() for name in PACKAGES)

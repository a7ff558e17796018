"""What is installed: three packages, stored verdicts, the public face, one command."""

import shutil
import subprocess
import sys
from importlib.metadata import distribution, entry_points
from pathlib import Path
from zipfile import ZipFile

import pytest

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


INSTALLED = (*PACKAGES, "results")


def test_the_wheel_holds_every_file_of_the_packages(tmp_path: Path) -> None:
    """Also templates, scripts of the page, shipped runs, verdicts and facts.

    It is built from a copy, since a build leaves files beside what it builds. What a
    fresh environment makes of it is seen by `make wheel-check`.
    """
    pytest.importorskip("setuptools", "77")
    waste = shutil.ignore_patterns("__pycache__", ".*")
    for name in INSTALLED:
        shutil.copytree(ROOT / name, tmp_path / name, ignore=waste)
    for name in ("reasonscope.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    folders = (tmp_path / name for name in INSTALLED)
    files = [file for folder in folders for file in folder.rglob("*") if file.is_file()]
    expected = {file.relative_to(tmp_path).as_posix() for file in files}
    code = "from setuptools.build_meta import build_wheel; build_wheel('dist')"
    subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True
    )
    (wheel,) = tmp_path.glob("dist/*.whl")
    held = {name for name in ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert held == expected | {"reasonscope.py"}

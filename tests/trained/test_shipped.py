"""The shipped runs."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from circuits import study as studies
from tests.toy import SEEDS
from trained import store
from trained.errors import BadInput
from trained.store import Run
from trained.trainer import Engine
from trained.training import train

NewRun = Callable[..., Run]


@pytest.fixture
def shipped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, new_run: NewRun) -> Run:
    """One run in the zoo, called `lion`."""
    monkeypatch.setattr(store, "SHIPPED", tmp_path / "checkpoints")
    return new_run("checkpoints/lion")


def test_shipped_runs_are_found_by_name(shipped: Run) -> None:
    assert store.shipped_names() == ("lion",)
    assert store.shipped("lion").path == shipped.path
    assert store.open_run("lion").seeds == SEEDS


def test_a_run_is_found_by_path(new_run: NewRun) -> None:
    run = new_run("mine")
    assert store.open_run(str(run.path)).path == run.path


@pytest.mark.usefixtures("shipped")
def test_a_path_goes_before_a_shipped_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, new_run: NewRun
) -> None:
    mine = new_run("lion")
    monkeypatch.chdir(tmp_path)
    assert store.open_run("lion").path.resolve() == mine.path.resolve()


@pytest.mark.usefixtures("shipped")
def test_an_unknown_name_is_refused_with_the_shipped_ones() -> None:
    for find in (store.shipped, store.open_run):
        with pytest.raises(BadInput, match=r"'tiger'; choose from: lion$"):
            find("tiger")


def test_an_ordinary_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"is not a run: it has no manifest\.json"):
        store.open_run(str(tmp_path))


@pytest.mark.parametrize("name", store.shipped_names())
def test_every_shipped_run_opens_and_is_small(name: str) -> None:
    run = store.shipped(name)
    assert run.seeds
    size = sum(file.stat().st_size for file in run.path.rglob("*") if file.is_file())
    assert size < 5e6


@pytest.mark.parametrize(
    ("study", "arm_name"),
    [("recall", "samples-affine-full-gd-1"), ("analogy", "linear")],
)
def test_a_shipped_model_is_what_training_gives(
    study: str, arm_name: str, tmp_path: Path
) -> None:
    shipped = store.shipped(study)
    found = studies.find(study)
    arms = found.arms(found.config(shipped.manifest["config"]))
    (arm,) = [arm for arm in arms if arm.name == arm_name]
    again = Run.create(tmp_path / "again", shipped.manifest)
    train(again, [arm], engine=Engine())
    for name, weights in shipped.weights(arm_name).items():
        torch.testing.assert_close(
            again.weights(arm_name)[name], weights, rtol=1e-3, atol=1e-4
        )

"""The shipped runs."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from circuits.study import find
from tests.toy import SEEDS
from trained import store
from trained.errors import BadInput
from trained.store import Run
from trained.trainer import Engine
from trained.training import train
from trained.zoo import shipped_names

NewRun = Callable[..., Run]


@pytest.fixture
def zoo(new_run: NewRun) -> Path:
    """A zoo with one run, called `lion`."""
    return new_run("checkpoints/lion").path.parent


def test_shipped_runs_are_found_by_name(zoo: Path) -> None:
    assert shipped_names(zoo) == ("lion",)
    assert store.shipped("lion", zoo).path == zoo / "lion"
    assert store.open_run("lion", zoo).seeds == SEEDS


def test_a_run_is_found_by_path(new_run: NewRun) -> None:
    run = new_run("mine")
    assert store.open_run(str(run.path)).path == run.path


def test_a_path_goes_before_a_shipped_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, new_run: NewRun, zoo: Path
) -> None:
    mine = new_run("lion")
    monkeypatch.chdir(tmp_path)
    assert store.open_run("lion", zoo).path.resolve() == mine.path.resolve()


def test_an_unknown_name_is_refused_with_the_shipped_ones(zoo: Path) -> None:
    for look_up in (store.shipped, store.open_run):
        with pytest.raises(BadInput, match=r"'tiger'; choose from: lion$"):
            look_up("tiger", zoo)


def test_an_ordinary_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"is not a run: it has no manifest\.json"):
        store.open_run(str(tmp_path))


@pytest.mark.parametrize("name", shipped_names())
def test_every_shipped_run_opens_and_is_small(name: str) -> None:
    run = store.shipped(name)
    assert run.seeds
    size = sum(file.stat().st_size for file in run.path.rglob("*") if file.is_file())
    assert size < 8e6


@pytest.mark.parametrize("study", ["analogy", "bridge"])
def test_a_shipped_model_is_what_training_gives(study: str, tmp_path: Path) -> None:
    shipped = store.shipped(study)
    found = find(study)
    arms = found.arms(found.config_of(shipped.manifest["config"]))
    quickest = min(arms, key=lambda arm: shipped.record(arm.name)["seconds"])
    again = Run.create(tmp_path / "again", shipped.manifest)
    train(again, [quickest], engine=Engine(device="cpu"))
    assert (
        again.record(quickest.name)["data_hash"]
        == (shipped.record(quickest.name)["data_hash"])
    )
    one, other = (run.weights(quickest.name) for run in (shipped, again))
    assert all(torch.allclose(one[key], other[key], atol=1e-5) for key in one)

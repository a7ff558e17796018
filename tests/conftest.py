"""One thread, tiny models and the hand-wired ones."""

# ruff: noqa: F401, I001
# Others' code first: what is imported while the hook of jaxtyping runs a module of ours
# is compiled anew, for the hook looks for bytecode under another name.
import beartype.door
import matplotlib.figure
import pandas
import pyarrow.parquet
import rich.console
import rich.table
import scipy.stats
import sklearn.linear_model
import sklearn.model_selection
import transformer_lens.model_bridge
import transformers.modeling_utils

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from jaxtyping import config as axes

from circuits import progress
from tests import ground_truth, toy
from trained.store import Run

CHECKED = 2000
"""Calls of a test whose axes are checked."""
STUDIES = "tests/circuits/studies/"
DEVICE = "tests/device/"


def pytest_configure() -> None:
    """Not set but computed: see `FirstCalls`."""
    axes.__class__ = FirstCalls


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes long is begun first, so that no worker is left alone with it."""
    slow = {item.path for item in items if any(item.iter_markers("slow"))}

    def is_short(item: pytest.Item) -> bool:
        long = item.nodeid.startswith(STUDIES) or item.path.suffix == ".ipynb"
        return not long and item.path not in slow

    items.sort(key=is_short)


class FirstCalls(type(axes)):
    """Has axes checked in a test's first calls of ours, of some hundred thousand.

    A check takes longer than the call of most small functions: those of a whole
    training took about half of its time, and said the same at every step.
    """

    calls = 0

    @property
    def jaxtyping_disable(self) -> bool:
        """What jaxtyping asks at every call."""
        self.calls += 1
        return self.calls > CHECKED


def pytest_runtest_logstart() -> None:
    """Every test has its own first calls, those of its fixtures among them."""
    axes.calls = 0


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A file is one worker's; so are all files of a study, which share trained runs.

    What is tried on the stand-in device has a process of its own anyway.
    """
    from xdist.scheduler import LoadFileScheduling

    class ByRun(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            if nodeid.startswith(STUDIES):
                return nodeid.removeprefix(STUDIES).split("/")[0]
            if nodeid.startswith(DEVICE):
                return nodeid
            return super()._split_scope(nodeid)

    return ByRun(config, log) if config.option.dist == "loadfile" else None


@pytest.fixture(autouse=True, scope="session")
def _hears_ctrl_c() -> None:
    """A shell starts what it puts into the background deaf to Ctrl-C."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> Iterator[None]:
    """Two busy cores: threads would only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True, scope="session")
def _no_word_of_progress() -> None:
    """Tests read what is said, and on a busy machine everything takes long."""
    progress._LINE._refresh = 0


@pytest.fixture
def new_run(tmp_path: Path) -> Callable[..., Run]:
    """(name, seeds) -> a run to train in."""

    def make(name: str = "run", seeds: tuple[int, ...] = toy.SEEDS) -> Run:
        return toy.start_run(tmp_path / name, seeds)

    return make


@pytest.fixture(scope="session")
def copy_head() -> ground_truth.GroundTruth:
    return ground_truth.copy_head_model()


@pytest.fixture(scope="session")
def two_hop() -> ground_truth.GroundTruth:
    return ground_truth.two_hop_model()


@pytest.fixture(scope="session")
def uninformed() -> ground_truth.GroundTruth:
    return ground_truth.uninformed_model()


@pytest.fixture(scope="session")
def tiny_decoder() -> ground_truth.Decoder:
    config = ground_truth.DecoderConfig(
        d_vocab=11, d_model=8, n_layers=2, n_heads=2, n_ctx=6, init_std=0.3
    )
    source = torch.Generator().manual_seed(0)
    return ground_truth.Decoder(config, generator=source)

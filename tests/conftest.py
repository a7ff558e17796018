"""One thread, tiny models and the hand-wired ones."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from tests import ground_truth, toy
from trained.store import Run


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

"""Tiny runs of the study, trained once per session."""

from contextlib import contextmanager

import pytest
import torch

from trained.analogy import end_to_end, gpt
from trained.analogy.arms import arms
from trained.analogy.config import Config
from trained.config import as_dict
from trained.store import Run
from trained.trainer import Engine
from trained.training import train

TINY = Config(
    n_entities=12,
    d_model=64,
    head_steps=800,
    relu_entities=4,
    gpt_entities=4,
    gpt_width=24,
    gpt_layers=2,
    gpt_heads=2,
    linear_layers=4,
    linear_width=64,
)
SEEDS = (0, 1)


def trained(path, config):
    manifest = {"study": "analogy", "config": as_dict(config), "seeds": list(SEEDS)}
    run = Run.create(path, {**manifest, "preset": "quick", "device": "cpu"})
    with short_stages():
        train(run, arms(config), engine=Engine(batching="loop"))
    return run


@contextmanager
def short_stages():
    """A tenth of the steps of GPT-2, and one core."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpt, "MAX_STEPS", 20)
        patch.setattr(end_to_end, "MAX_STEPS", 40)
        yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("analogy"), TINY)


@pytest.fixture(scope="module", autouse=True)
def _short_stages():
    """Readers rebuild the arms, so they must see the stages that were trained."""
    with short_stages():
        yield

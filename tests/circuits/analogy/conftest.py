"""Tiny runs of the study, trained once per session."""

import pytest

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
    head_steps=1500,
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
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpt, "MAX_STEPS", 40)
        patch.setattr(end_to_end, "MAX_STEPS", 60)
        train(run, arms(config), engine=Engine())
    return run


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("analogy"), TINY)


@pytest.fixture(autouse=True)
def _short_stages(monkeypatch):
    """Readers rebuild the arms, so they must see the stages that were trained."""
    monkeypatch.setattr(gpt, "MAX_STEPS", 40)
    monkeypatch.setattr(end_to_end, "MAX_STEPS", 60)

"""The whole study at a tiny size, trained once; and models whose circuit is known."""

from pathlib import Path

import pytest
import torch

from circuits.confirm import open_lab
from circuits.studies.lego import STUDY
from circuits.studies.lego.lab import LegoLab
from circuits.studies.lego.lab.models import Specimen
from tests.lego_models import N_VARIABLES, wired
from trained.config import as_dict
from trained.lego.config import (
    Attention,
    Config,
    Features,
    Folded,
    SelfTraining,
    Standard,
    Theory,
    Trial,
)
from trained.store import Run
from trained.trainer import Engine
from trained.training import train

TINY = Config(
    groups=("C3", "S3"),
    extra_groups=("C4",),
    n_variables=24,
    train_length=3,
    lengths=(3, 6, 20),
    folded=Folded(
        d_mlp=24,
        ffn_steps=60,
        ffn_rate=0.02,
        ffn_batch=64,
        budgets=(5, 40),
        steps=40,
        batch=32,
        masked_steps=3,
        record_every=20,
    ),
    self_training=SelfTraining(lengths=(6,), steps=3, base_steps=20),
    standard=Standard(
        variants=("plain", "positions"),
        groups=("C3", "S3"),
        n_variables=24,
        epochs=2,
        kept=(1,),
        n_sentences=64,
        batch=32,
        d_token=8,
        d_mlp=16,
        rounds=(6, 10),
        round_steps=2,
        n_round=16,
        null_seeds=1,
    ),
    theory=Theory(
        groups=("C3", "S3"),
        feature_groups=("D4",),
        n_variables=24,
        length=12,
        grid=(24, 30, 36),
        grid_groups=("C3", "S3"),
        clips=(4.0,),
        record_every=5,
        features=Features(value_steps=60, grid_steps=60, variable_steps=10, kept=10),
        attention=Attention(
            steps=40,
            batch=32,
            rounds=1,
            weak_steps=10,
            gentle_steps=20,
            rule_steps=20,
            round_steps=10,
            longer_steps=10,
        ),
    ),
    test=Trial(n_sentences=8, n_short=20, n_reach=20, n_law=8),
    twins=True,
)

KNOWN = Config(
    groups=("C3", "S3"),
    n_variables=N_VARIABLES,
    train_length=4,
    lengths=(4, 10),
    folded=Folded(budgets=(1,), steps=1),
    self_training=SelfTraining(lengths=()),
    theory=Theory(groups=()),
    test=Trial(n_sentences=40),
)


def manifest(config: Config, seeds: list[int]) -> dict[str, object]:
    return {
        "study": "lego",
        "preset": "quick",
        "config": as_dict(config),
        "seeds": seeds,
        "device": "cpu",
        "environment": {},
    }


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> LegoLab:
    """A trained run, as tiny as can be."""
    run = Run.create(tmp_path_factory.mktemp("lego"), manifest(TINY, [0, 1]))
    train(run, STUDY.arms(TINY), engine=Engine(batching="vmap"))
    found = open_lab(run)
    assert isinstance(found, LegoLab)
    return found


@pytest.fixture
def bare(tmp_path: Path) -> LegoLab:
    """A run without models: test sentences for hand-wired ones."""
    return LegoLab(STUDY, Run.create(tmp_path, manifest(KNOWN, [0])))


@pytest.fixture
def perfect() -> Specimen:
    """A model that attends to its two targets and applies g to y."""
    return Specimen("C3", 0, wired())


@pytest.fixture
def weak() -> Specimen:
    """The same with attention that longer chains dilute."""
    return Specimen("C3", 0, wired(score=2.8))


@pytest.fixture
def silent() -> Specimen:
    """No circuit: the FFN says nothing."""
    model = wired(score=2.8)
    with torch.no_grad():
        model.block.mlp.W_out.zero_()
    return Specimen("C3", 0, model)

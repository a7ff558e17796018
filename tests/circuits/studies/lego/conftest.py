"""The whole study at a tiny size, trained once; and a model whose circuit is known."""

import pytest

from circuits.studies.lego.specimen import Specimen
from tests.lego_models import N_VARIABLES, wired
from trained.config import as_dict
from trained.lego import arms as module
from trained.lego import standard_arm as standard_module
from trained.lego.arms import arms
from trained.lego.config import Config
from trained.store import Run
from trained.trainer import Engine
from trained.training import train

TINY = Config(
    groups=("C3", "S3"),
    extra_groups=("C4",),
    n_variables=24,
    train_length=3,
    lengths=(3, 6, 20),
    d_mlp=24,
    ffn_steps=100,
    budgets=(5, 40),
    steps=40,
    n_sentences=8,
    self_lengths=(6,),
    self_steps=3,
    masked_steps=3,
    standard=("plain", "positions"),
    standard_epochs=1,
    theory_groups=(),
)


@pytest.fixture(scope="session")
def config() -> Config:
    return TINY


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    path = tmp_path_factory.mktemp("lego")
    manifest = {"study": "lego", "config": as_dict(TINY), "seeds": [0, 1]}
    made = Run.create(path, manifest)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "FFN_RATE", 0.02)
        patch.setattr(module, "FFN_BATCH", 64)
        patch.setattr(module, "BATCH", 32)
        patch.setattr(module, "POSITION_STEPS", 20)
        patch.setattr(module, "BASE_STEPS", 20)
        patch.setattr(module, "RECORD_EVERY", 20)
        patch.setattr(standard_module, "N_SENTENCES", 64)
        chosen = [arm for arm in arms(TINY) if "theory" not in arm.name]
        train(made, chosen, engine=Engine())
    return made


@pytest.fixture
def perfect() -> Specimen:
    """A model that attends to its two targets and applies g to y."""
    return Specimen("C3", 0, wired(), N_VARIABLES)


@pytest.fixture
def weak() -> Specimen:
    """The same with attention that longer chains dilute."""
    return Specimen("C3", 0, wired(score=2.8), N_VARIABLES)

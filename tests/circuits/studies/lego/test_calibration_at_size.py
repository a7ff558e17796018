"""What the shipped run has no room for: claims about d, positions and rounds."""

from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from circuits.claims import judge
from circuits.studies.lego import STUDY
from circuits.studies.lego.lab import LegoLab
from circuits.studies.lego.substitutes import SUBSTITUTES
from tests.circuits.studies.lego.conftest import manifest
from trained.arm import Arm
from trained.lego.config import Trial
from trained.lego.presets import QUICK
from trained.store import Run

SIZE = replace(
    QUICK,
    theory=replace(QUICK.theory, grid=(30, 54, 96), grid_groups=("C4", "S3")),
    test=Trial(n_sentences=10, n_short=30, n_reach=30, n_law=10),
)

SCALED = (
    *("lego.length.theory.*", "lego.conc.eps.d-grid", "lego.conc.logd"),
    *("lego.conc.contrast.theory", "lego.self.all-lengths", "lego.ffn.copy"),
    *("lego.conc.fig5", "lego.conc.dilution.joint"),
    *("lego.self.joint", "lego.self.joint.stages"),
)


class Unrun(LegoLab):
    """A lab of models that nothing was trained for."""

    def arm(self, name: str) -> Arm:
        return self.arms[name.partition("/")[0]]

    def shuffled(self) -> LegoLab:
        return self.untrained()

    def seeds_of(self, arm: str) -> tuple[int, ...]:
        return self.arm(arm).seeds(self.seeds)


@pytest.fixture(scope="module")
def unrun(tmp_path_factory: pytest.TempPathFactory) -> Unrun:
    folder: Path = tmp_path_factory.mktemp("unrun")
    return Unrun(STUDY, Run.create(folder, manifest(SIZE, [0, 1, 2])))


def test_what_is_planted_there_is_confirmed(unrun: Unrun) -> None:
    (planted,) = (s for s in SUBSTITUTES if s.name == "planted")
    lab = planted.make(unrun)
    for claim in STUDY.claims_at(SIZE):
        if any(fnmatchcase(claim.id, pattern) for pattern in SCALED):
            verdict = judge(claim, lab)
            assert verdict.passed, (claim.id, verdict.reason)


def test_untrained_models_there_confirm_nothing(unrun: Unrun) -> None:
    for claim in STUDY.claims_at(SIZE):
        if any(fnmatchcase(claim.id, pattern) for pattern in SCALED):
            assert not judge(claim, unrun.untrained()).passed, claim.id

"""One thread, tiny models, the hand-wired ones, and two small studies."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch

from circuits import study as studies
from circuits.claims import Claim, Control, Observed
from circuits.command import cli
from tests import ground_truth, toy
from trained.store import Run
from trained.training import restore


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


SIZE_CLAIM = Claim(
    id="toy.size",
    statement="The second layer has a size.",
    source="Section 1",
    kind="behaviour",
    expected=">= 0",
    control=Control("nothing", "<= 0"),
)
"""Holds for every net."""

OPEN_CLAIM = replace(SIZE_CLAIM, id="toy.open", expected="< 0", gated=False)
"""Never holds, and does not count."""


@pytest.fixture
def toy_claims() -> list[Claim]:
    """The claims of both toy studies; a test may change the list."""
    return [SIZE_CLAIM, OPEN_CLAIM]


@pytest.fixture
def toy_studies(
    monkeypatch: pytest.MonkeyPatch, toy_claims: list[Claim]
) -> tuple[str, str]:
    """Two small studies, `toy` and `other`, in place of the real ones."""
    slugs = ("toy", "other")
    monkeypatch.setattr(studies, "STUDIES", slugs)
    monkeypatch.setattr(cli, "STUDIES", slugs)

    def sizes(run: Run) -> list[float]:
        config = studies.find(run.study).config(run.manifest["config"])
        arm = toy.study_arms(config)[0]
        models = [restore(run, arm, seed) for seed in run.seeds]
        return [float(model.second.detach().square().sum()) for model in models]

    def observe(run: Run) -> dict[str, Observed]:
        return {c.id: Observed.of(sizes(run), [0.0]) for c in toy_claims}

    def draw(run: Run) -> object:
        from matplotlib.figure import Figure

        figure = Figure()
        figure.subplots().plot(sizes(run))
        return figure

    for slug in slugs:
        parts = {
            f"trained.{slug}.config": {"Config": toy.Config, "PRESETS": toy.PRESETS},
            f"trained.{slug}.arms": {"arms": toy.study_arms},
            f"circuits.studies.{slug}.claims": {
                "TITLE": f"The {slug} paper",
                "claims": lambda _config: tuple(toy_claims),
            },
            f"circuits.studies.{slug}.evidence": {"observe": observe},
            f"circuits.studies.{slug}.figures": {"FIGURES": {"loss": draw}},
        }
        for name, fields in parts.items():
            module = ModuleType(name)
            vars(module).update(fields)
            monkeypatch.setitem(sys.modules, name, module)
    return slugs

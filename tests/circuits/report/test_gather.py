"""Runs on the page: judged or remembered, with figures and attention."""

import base64
import json
from dataclasses import replace
from functools import reduce
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
from matplotlib.figure import Figure
from torch import Tensor

from circuits.command.reporting import add_report_options, run_report
from circuits.command.request import Parser
from circuits.confirm import confirm_run, open_lab
from circuits.lab import Lab
from circuits.report import attention, gather
from circuits.report.attention import attention_views
from circuits.report.figures import made
from circuits.report.page import render
from circuits.study import STUDIES, Request, find
from circuits.training import prepare, train_run
from tests import toy
from trained.arm import Arm, Stage, adam
from trained.config import as_dict
from trained.courses import drive
from trained.decoder import Decoder, DecoderConfig
from trained.errors import BadInput
from trained.seeding import generator
from trained.store import Run
from trained.task import Batch
from trained.trainer import Engine
from trained.training import train


@pytest.fixture
def run(tmp_path: Path) -> Run:
    started = prepare(Request("tests.toy:STUDY", device="cpu", out=tmp_path / "runs"))
    train_run(started)
    return started


def test_a_run_is_judged_and_drawn(run: Run) -> None:
    opened = gather.open_target(str(run.path))
    assert isinstance(opened, Lab)
    found = gather.from_lab(opened, str(run.path))
    assert found.title == "The toy paper"
    assert found.score.score == 1.0
    (figure,) = found.figures
    assert figure.title == "The toy study's one figure."
    assert (
        figure.made == "preset quick; seeds 301, 302, 303; width 4; steps 3; rate 0.05"
    )
    assert len(figure.numbers.splitlines()) == 4
    assert found.attention == ()
    command = found.judged.leaves[0].command
    assert command == f"reasonscope probe {run.path} --only toy.size"
    assert "toy.size" in render([found])


def test_a_caption_names_the_studys_sizes_or_what_else_a_figure_is_made_from(
    run: Run,
) -> None:
    lab = open_lab(run)
    own = {"wide": ("width", "rate")}
    lab.study = replace(lab.study, sizes=("steps",), figure_sizes=own)
    assert made(lab, "a", Figure()) == "preset quick; seeds 301, 302, 303; steps 3"
    assert made(lab, "wide", Figure()).endswith("303; width 4; rate 0.05")
    theory = Figure()
    theory.set_label("theory, nothing is trained")
    assert made(lab, "a", theory) == "theory, nothing is trained"


@pytest.mark.parametrize("slug", STUDIES)
def test_every_study_says_its_mechanism_and_sizes_that_it_has(slug: str) -> None:
    study = find(slug)
    assert study.mechanism.count(". ") == 2
    config = as_dict(study.preset("quick").config)
    assert study.figure_sizes.keys() <= study.figures_part.keys()
    for name in chain(study.sizes, *study.figure_sizes.values()):
        value = reduce(lambda part, key: part[key], name.split("."), config)
        assert isinstance(value, int | float | list)


def test_verdicts_that_are_still_those_of_the_code_are_not_measured_again(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = confirm_run(run).as_dict()
    lab = open_lab(run)
    monkeypatch.setattr(gather, "confirm_lab", lambda _lab: pytest.fail("measured"))
    assert gather.verdicts_of(lab) == kept


def test_figures_drawn_side_by_side_make_the_same_paper(run: Run) -> None:
    confirm_run(run)
    ((found,),) = drive(None, [gather.drawing(run.path)])
    whole = gather.from_lab(open_lab(run), str(run.path))
    assert found.judged == whole.judged
    assert found.where == whole.where == str(run.path)
    numbers = [figure.numbers for figure in found.figures]
    assert numbers == [figure.numbers for figure in whole.figures] != []


def test_verdicts_of_other_code_are_measured_again(run: Run) -> None:
    confirm_run(run)
    file = run.path / "verdicts.json"
    stale = {**json.loads(file.read_text()), "code_sha256": "0", "verdicts": []}
    file.write_text(json.dumps(stale))
    assert len(gather.verdicts_of(open_lab(run))["verdicts"]) == 2


def test_a_bad_target_is_refused_before_another_is_judged(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gather, "from_lab", lambda *_: pytest.fail("judged"))
    parser = Parser("report")
    add_report_options(parser)
    words = [str(run.path), "nowhere", "-o", str(tmp_path / "page.html")]
    with pytest.raises(BadInput, match="unknown run or zoo run"):
        run_report(parser.parse_args(words))


def prompts(seed: int, _step: int = 0) -> Batch:
    tokens = torch.randint(5, (4, 3), generator=generator(seed, "prompts"))
    return Batch(tokens, tokens[:, 0], roles={"copied": torch.zeros(4, 1).long()})


def miss(model: Decoder, batch: Batch) -> Tensor:
    logits = model(batch.tokens)[:, -1]
    return torch.nn.functional.cross_entropy(logits, batch.targets)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    config = DecoderConfig(d_vocab=5, d_model=8, n_layers=2, n_heads=2, n_ctx=3)
    stage = Stage("fit", steps=2, optimiser=adam(0.01), loss=miss, data=prompts)

    def build(seed: int) -> Decoder:
        return Decoder(config, generator=generator(seed, "decoder"))

    arm = Arm("gpt", build, (stage,), held_out=prompts, save_steps=(0, 2))
    twin = replace(arm, name="gpt-shuffled")
    run = toy.start_run(tmp_path / "run", seeds=(0, 1), study="tests.toy:STUDY")
    train(run, [arm, twin], engine=Engine())
    study: Any = replace(toy.STUDY, arms_part=lambda _config: (arm, twin))
    return Lab(study, run)


def test_the_attention_of_every_step_layer_and_head_is_shown(lab: Lab) -> None:
    (view,) = attention_views(lab)
    assert view["arm"] == "gpt"
    assert (view["step"], view["layer"], view["head"]) == ([0, 2], [0, 1], [0, 1])
    assert view["query"][0].endswith(" copied")
    levels = torch.tensor(list(base64.b64decode(view["weights"])))
    shown = levels.view(2, 2, 2, 3, 3) / 255
    expected = lab.models("gpt", 2).pattern(1).select(seed=0).values
    torch.testing.assert_close(shown[1, 1], expected, atol=1 / 255, rtol=0)


def test_what_has_no_room_is_left_out(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "MOST_WEIGHTS", 71)
    assert attention_views(lab) == []

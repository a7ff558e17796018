"""A claim that a null confirms is named; so is what was planted and missed."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from circuits.claims import Claim, Null
from circuits.command.cli import main
from circuits.conditions import Each
from circuits.confirm import open_lab
from circuits.lab import Lab
from circuits.report.calibration import Calibration, calibrate, print_calibrations
from circuits.study import Request, Substitute
from circuits.training import prepare, train_run
from tests import toy

STEPS = ("steps=150", "twins=true")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    out: Path = tmp_path_factory.mktemp("runs")
    request = Request("tests.toy:STUDY", assignments=STEPS, out=out, device="cpu")
    run = prepare(request)
    train_run(run)
    return open_lab(run)


FITS = Claim(
    "toy.fits",
    "Trained nets fit unseen inputs better than a constant.",
    source="Section 1",
    kind="behaviour",
    conditions=(Each("error", "<= 2", lambda lab: lab.errors("net")),),
    nulls=(Null("a constant", measure=lambda _lab: [3.0]),),
)
ALWAYS = replace(
    FITS,
    id="toy.always",
    conditions=(Each("error", ">= 0", lambda lab: lab.errors("net")),),
    nulls=(Null("a constant", measure=lambda _lab: [-1.0]),),
)
"""True of any net, trained or not."""
CAUSE = replace(
    FITS,
    id="toy.cause",
    kind="causal",
    conditions=(Each("effect", ">= 1", lambda lab: [lab.cause] * 3),),
    nulls=(Null("untrained", measure=lambda _lab: [0.0]),),
    preconditions=(Each("error", "<= 2", lambda lab: lab.errors("net")),),
)
PLANTED = Substitute("by hand", "planted", lambda lab: lab.other(), ("toy.*",))
IMPOSTOR = Substitute("lookup", "impostor", lambda lab: lab.other(cause=0.0))
CAREFUL = Substitute("copy", "impostor", lambda lab: lab.other())


def calibrated(lab: Lab, *claims: Claim, also: tuple[Substitute, ...]) -> Calibration:
    study = replace(toy.study(*claims), substitutes_part=also)
    return calibrate(lab.other(study=study))


def test_a_sound_study_is_as_expected(lab: Lab) -> None:
    found = calibrated(lab, FITS, CAUSE, also=(PLANTED, IMPOSTOR))
    assert found.as_expected
    assert found.rates("behaviour") == {"sensitivity": 1.0, "specificity": 1.0}
    assert found.rates("signal") == {"sensitivity": None, "specificity": None}
    assert found.unmasked == {"lookup": ["toy.cause"]}


def test_a_claim_that_a_null_confirms_is_named(lab: Lab) -> None:
    found = calibrated(lab, ALWAYS, FITS, also=())
    assert found.fooled == [("toy.always", "untrained"), ("toy.always", "shuffled")]
    assert not found.as_expected
    assert found.rates("behaviour")["specificity"] == 0.5


def test_a_claim_that_only_its_null_saves_is_told(lab: Lab) -> None:
    saved = replace(ALWAYS, nulls=(Null("any", measure=lambda _lab: [1.0]),))
    found = calibrated(lab, saved, also=())
    assert found.fooled == []
    assert found.held_by_null == [
        ("toy.always", "untrained"),
        ("toy.always", "shuffled"),
    ]


def test_what_is_ours_or_mathematics_may_hold_anywhere(lab: Lab) -> None:
    own, sums = replace(ALWAYS, origin="ours"), replace(ALWAYS, kind="theory")
    assert calibrated(lab, own, also=()).as_expected
    assert calibrated(lab, sums, also=()).as_expected


def test_an_impostor_that_no_causal_claim_finds_out_is_named(lab: Lab) -> None:
    found = calibrated(lab, FITS, CAUSE, also=(CAREFUL,))
    assert found.unmasked == {"copy": []}
    assert not found.as_expected


def test_a_planted_mechanism_that_is_missed_is_named(lab: Lab) -> None:
    deaf = replace(PLANTED, make=lambda lab: lab.untrained())
    found = calibrated(lab, FITS, also=(deaf,))
    assert found.missed == [("toy.fits", "by hand")]


def test_the_table_shows_rates_and_names(lab: Lab) -> None:
    page = Console(width=150, record=True)
    with page.capture() as capture:
        print_calibrations(page, [calibrated(lab, ALWAYS, also=(CAREFUL,))])
    text = capture.get()
    for words in ("FOOLED: toy.always is confirmed on untrained", "NOT FOUND OUT"):
        assert words in text
    assert "behaviour" in text


def test_the_verb_calibrates_a_run_and_writes_the_table(
    lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "calibration.json"
    # The toy study's one paper claim is true of any net.
    assert main(["calibrate", str(lab.run.path), "--json", str(file)]) == 1
    (entry,) = json.loads(file.read_text())
    assert entry["fooled"] == [["toy.size", "untrained"], ["toy.size", "shuffled"]]
    assert "FOOLED: toy.size" in capsys.readouterr().out

"""Bad input: one line, exit code 2, and every file as it was."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from trained import zoo

from .conftest import TOY, Refuse

pytestmark = pytest.mark.usefixtures("elsewhere")


# Bad input: the command line.


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("confirm chess", "unknown study 'chess'; choose from: recall"),
        ("train chess", "unknown study 'chess'"),
        ("confirm recall chess", "unknown study 'chess'"),
        (
            "confirm recall --set depth=3",
            "unknown config key 'depth'; choose from: ",
        ),
        ("confirm recall --set n_subjects", "not of the form key=value"),
        ("confirm recall --only lego.*", "unknown claims 'lego.*'"),
        ("confirm recall --model smollm2 --only lego.*", "unknown claims 'lego.*'"),
        (
            "sweep recall --grid temperature=.1,.2 --only lego.*",
            "unknown claims 'lego.*'",
        ),
        ("diff a.json b.json", "cannot read a.json: No such file"),
        ("confirm recall --set n_subjects=many", "expected a whole number"),
        ("confirm recall --set temperature=warm", "expected a number"),
        ("confirm recall --set full_steps=2.5", "full_steps=2.5: expected a whole"),
        ("train recall --set n_subjects=6", "6 subjects: the affine table needs"),
        ("train recall --set n_examples=9", "n_examples=9"),
        ("train recall --set n_relations=1", "n_relations=1"),
        ("train recall --set temperature=-1", "temperature: -1.0 is outside"),
        ("train recall --set temperature=nan", "temperature: nan is outside"),
        ("train recall --set n_test=0", "n_test=0"),
        ("train recall --set samples.sizes=", "samples.sizes=()"),
        ("train recall --set samples.modes=sgd", "unknown sample mode 'sgd'"),
        ("train recall --preset huge", "unknown preset 'huge'; choose from: quick"),
        ("train recall --device tpu", "unknown device 'tpu'; choose from: auto, cpu"),
        ("train recall --device cuda", "device 'cuda' is not present"),
        ("train recall --seeds 0", "--seeds 0: give at least one seed"),
        ("train recall --seeds many", "--seeds many: give a number"),
        ("train recall --seeds -3", "--seeds -3: give a number"),
        ("train recall --seeds 3,3", "--seeds 3,3: give at least one seed, and none"),
        ("train recall --jobs 0", "--jobs 0: give at least 1"),
        ("train recall --jobs two", "invalid int value: 'two'"),
        ("train recall --colour red", "unrecognized arguments: --colour"),
        ("train", "required: STUDY"),
        ("dance", "invalid choice: 'dance'"),
        ("probe nowhere", "unknown run or zoo run 'nowhere'"),
        ("probe", "required: RUN"),
        ("figure attention nowhere -o x.png", "unknown run or zoo run 'nowhere'"),
        ("figure attention nowhere -o x.gif", "unknown figure format '.gif'"),
        ("figure attention nowhere -o x", "unknown figure format ''"),
        ("figure attention nowhere", "required: -o/--output"),
    ],
)
def test_a_bad_command_line_is_refused(
    refuse: Refuse, monkeypatch: pytest.MonkeyPatch, arguments: str, message: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert message in refuse(*arguments.split())


# Bad input: runs.


@pytest.mark.parametrize("verb", [("probe",), ("figure", "loss")])
def test_an_untrained_run_is_refused(refuse: Refuse, verb: tuple[str, ...]) -> None:
    from circuits.study import Request
    from circuits.training import prepare

    run = prepare(Request(TOY))
    message = refuse(*verb, str(run.path), *output(verb))
    assert "train" in message


def output(verb: tuple[str, ...]) -> tuple[str, ...]:
    return ("-o", "x.png") if verb[0] == "figure" else ()


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def pickle_in_place(file: Path) -> None:
    torch.save({"second": torch.zeros(2, 4)}, file)


def foreign(file: Path) -> None:
    """A file such as Hugging Face writes."""
    save_file({"wte.weight": torch.zeros(5, 5)}, file, {"format": "pt"})


def of_another_study(file: Path) -> None:
    foreign = sorted((zoo.SHIPPED / "recall").glob("*/weights-*.safetensors"))
    shutil.copy(foreign[0], file)


WEIGHTS = "net/weights-3.safetensors"
DAMAGES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "no manifest": ("manifest.json", Path.unlink),
    "truncated manifest": ("manifest.json", truncate),
    "empty manifest": ("manifest.json", lambda file: file.write_text("")),
    "manifest of nothing": ("manifest.json", lambda file: file.write_text("{}")),
    "manifest that is a list": ("manifest.json", lambda file: file.write_text("[3]")),
    "truncated record": ("net/arm.json", truncate),
    "no weights": (WEIGHTS, Path.unlink),
    "truncated weights": (WEIGHTS, truncate),
    "pickled weights": (WEIGHTS, pickle_in_place),
    "foreign weights": (WEIGHTS, foreign),
    "weights of another study": (WEIGHTS, of_another_study),
}


@pytest.mark.parametrize("verb", [("probe",), ("figure", "loss")])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_run_is_refused(
    refuse: Refuse, toy_run: Path, damage: str, verb: tuple[str, ...]
) -> None:
    name, harm = DAMAGES[damage]
    harm(toy_run / name)
    message = refuse(*verb, str(toy_run), *output(verb))
    assert toy_run.name in message


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"study": "chess"}, "unknown study 'chess'"),
        ({"config": {"depth": 3}}, "unknown config key 'depth'"),
        ({"config": {"width": 0}}, "width=0: choose 1 to 99"),
        ({"config": {"width": "wide"}}, "width='wide': expected a whole number"),
        ({"config": {"width": 9}}, "was changed since arm net was trained"),
        ({"seeds": [0, 7]}, "has the seeds [301, 302, 303], not [0, 7]"),
    ],
)
def test_a_manifest_that_does_not_fit_is_refused(
    refuse: Refuse, toy_run: Path, change: dict[str, object], message: str
) -> None:
    file = toy_run / "manifest.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    assert message in refuse("probe", str(toy_run))


def test_a_run_with_weights_of_another_study_is_refused_by_a_real_study(
    refuse: Refuse, toy_run: Path
) -> None:
    shutil.copytree(zoo.SHIPPED / "recall", "mine")
    (last,) = Path("mine", "full-affine").glob("weights-[!0]*")
    shutil.copy(toy_run / WEIGHTS, last)
    message = refuse("figure", "attention", "mine", "-o", "x.png")
    assert f"reasonscope: {last} was changed since it was written" in message


def test_an_unknown_kind_of_figure_is_refused(refuse: Refuse, toy_run: Path) -> None:
    message = refuse("figure", "loose", str(toy_run), "-o", "x.png")
    assert "unknown figure of toy 'loose'; choose from: loss" in message

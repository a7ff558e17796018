"""The command: exit codes, what is printed and what is left on disk."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from circuits import progress
from circuits.command.cli import main
from circuits.command.listing import largest
from circuits.study import STUDIES, find
from trained import zoo
from trained.config import keys

Refuse = Callable[..., str]


def contents(folder: Path) -> dict[Path, bytes]:
    return {f: f.read_bytes() for f in folder.rglob("*") if f.is_file()}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The default place for runs is the working directory."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def refuse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Refuse:
    """Checks that a command is refused in one line and leaves all files as they are."""

    def check(*arguments: str) -> str:
        before = contents(tmp_path)
        capsys.readouterr()
        assert main(arguments) == 2
        written = capsys.readouterr()
        assert written.out == ""
        assert written.err.startswith("reasonscope: ")
        assert written.err.count("\n") == 1
        assert "Traceback" not in written.err
        assert contents(tmp_path) == before
        return written.err

    return check


TOY = "tests.toy:STUDY"


@pytest.fixture
def toy_run(capsys: pytest.CaptureFixture[str]) -> Path:
    """A trained run of the toy study."""
    assert main(["train", TOY, "--jobs", "1"]) == 0
    return Path(capsys.readouterr().out.strip())


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


# list


def test_list_names_studies_presets_and_claims(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["list"]) == 0
    written = capsys.readouterr()
    assert written.err == ""
    for slug in STUDIES:
        assert f"{slug}: " in written.out
        assert f"{slug}." in written.out
    assert "--preset quick" in written.out


def test_list_gives_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", TOY, "--json", "-"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)
    assert entry["study"] == "toy"
    assert entry["title"] == "The toy paper"
    assert entry["presets"]["quick"] == {"seeds": 3, "cost": "a blink"}
    assert "head.depth" in entry["config"]
    first, second = entry["claims"]
    assert first["claim"] == "toy.size"
    assert first["weight"] == 3
    assert first["conditions"] == [{"name": "size", "rule": "each", "expected": ">= 0"}]
    assert first["nulls"] == [{"name": "nothing", "expected": "not >= 0"}]
    assert second["origin"] == "ours"


def test_listing_and_refusing_need_no_heavy_library(tmp_path: Path) -> None:
    code = (
        "import sys, time\n"
        "from circuits.command.cli import main\n"
        "codes = [main(['list', 'recall']), main(['list']),"
        " main(['confirm', 'recall', '--set', 'x=1'])]\n"
        "heavy = {'torch', 'numpy', 'matplotlib', 'sklearn', 'transformer_lens',"
        " 'nnsight', 'pandas', 'scipy'}\n"
        "print()\n"
        "print(codes, sorted(heavy & sys.modules.keys()), time.process_time())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path
    )
    (answer,) = [line for line in done.stdout.splitlines() if line.startswith("[0")]
    assert answer.startswith("[0, 0, 2] [] ")
    assert float(answer.split()[-1]) < 1.0


def test_help_is_given(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leaving:
        main(["--help"])
    assert leaving.value.code == 0
    text = capsys.readouterr().out
    for verb in ("list", "confirm", "train", "probe", "figure"):
        assert verb in text


# train, probe, confirm, figure


def test_train_prints_the_path_of_the_run_and_nothing_else(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["train", TOY, "--out", "here", "--jobs", "1", "--seeds", "3"]) == 0
    written = capsys.readouterr()
    path = Path(written.out.strip())
    assert written.out == f"{path}\n"
    assert path.parent == Path("here")
    manifest = json.loads((path / "manifest.json").read_text())
    assert manifest["seeds"] == [301, 302, 303]
    assert (path / "net" / "arm.json").is_file()
    assert (path / "twin" / "arm.json").is_file()


def test_probe_judges_a_trained_run(
    toy_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["probe", str(toy_run), "--json", "deep/verdicts.json"]) == 0
    assert "paper score: 100% confirmed" in capsys.readouterr().out
    written = json.loads(Path("deep/verdicts.json").read_text())
    assert written["study"] == "toy"
    assert [v["passed"] for v in written["verdicts"]] == [True, False]


def test_confirm_is_train_then_probe(
    toy_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["probe", str(toy_run), "--json", "probed.json"]) == 0
    assert main(["confirm", TOY, "--json", "confirmed.json", "--jobs", "1"]) == 0
    probed, confirmed = (
        json.loads(Path(name).read_text()) for name in ("probed.json", "confirmed.json")
    )
    for verdict in (*confirmed["verdicts"], *probed["verdicts"]):
        del verdict["seconds"]
    assert confirmed["verdicts"] == probed["verdicts"]
    assert toy_run.name in capsys.readouterr().out.replace("\n", "")


@pytest.mark.parametrize(
    ("study", "code", "word"),
    [("STUDY", 0, "confirmed"), ("REFUTED", 1, "refuted"), ("FOOLED", 1, "inconcl")],
)
def test_the_exit_code_says_whether_the_papers_claims_are_confirmed(
    capsys: pytest.CaptureFixture[str], study: str, code: int, word: str
) -> None:
    assert main(["confirm", f"tests.toy:{study}", "--jobs", "1"]) == code
    assert word in capsys.readouterr().out


def test_a_part_of_the_claims_is_judged_on_demand(
    toy_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["probe", str(toy_run), "--only", "toy.neg*"]) == 0
    written = capsys.readouterr().out
    assert "negative" in written
    assert "size" not in written
    assert main(["probe", str(toy_run), "--only", "toy.x"]) == 2
    assert "unknown claims 'toy.x'; choose from: toy.size" in capsys.readouterr().err


def test_several_studies_give_a_list() -> None:
    studies = ["tests.toy:OTHER", TOY]
    assert main(["confirm", *studies, "--json", "all.json", "--jobs", "1"]) == 0
    assert [o["study"] for o in json.loads(Path("all.json").read_text())] == [
        "other",
        "toy",
    ]


def test_several_studies_end_with_a_summary(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["confirm", "tests.toy:OTHER", TOY, "--jobs", "1"]) == 0
    *_, heading, first, second = capsys.readouterr().out.splitlines()
    assert heading.split()[:3] == ["study", "score", "confirmed"]
    assert (first.split()[0], second.split()[:2]) == ("other", ["toy", "100%"])


def test_the_report_of_a_confirmation_is_the_last_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["confirm", TOY, "--jobs", "1", "--report", "deep/page.html"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "deep/page.html"
    assert "toy.size" in Path("deep/page.html").read_text()


@pytest.mark.slow
def test_a_real_study_is_trained_judged_and_reported_by_processes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As `make demo` does it; its deep linear networks take a second."""
    small = ["--set", "parts=linear", "--set", "linear.width=32", "--seeds", "2"]
    options = ["--device", "cpu", "--jobs", "2", "--report", "page.html"]
    assert main(["confirm", "analogy", *small, *options, "--json", "two.json"]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "page.html"
    page = Path("page.html").read_text()
    assert all(part in page for part in ("analogy.depth.linear.two", "<svg", "<figure"))
    (run,) = Path("runs").iterdir()
    assert main(["probe", str(run), "--json", "one.json"]) == 1
    one, two = (json.loads(Path(f"{name}.json").read_text()) for name in ("one", "two"))
    for verdict in (*one["verdicts"], *two["verdicts"]):
        verdict.pop("seconds")
    assert one["verdicts"] == two["verdicts"]
    words = {verdict["verdict"] for verdict in two["verdicts"]}
    assert "not tested" in words != {"not tested"}


def test_words_leave_standard_output_to_the_json(
    toy_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["probe", str(toy_run), "--json", "-"]) == 0
    written = capsys.readouterr()
    assert json.loads(written.out)["study"] == "toy"
    assert "paper score" in written.err


def test_one_claim_is_told_whole(
    toy_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["probe", str(toy_run), "--json", "v.json"]) == 0
    capsys.readouterr()
    for target in (str(toy_run), "v.json"):
        assert main(["claim", "toy.size", target]) == 0
        words = capsys.readouterr().out
        for part in ("toy.size: confirmed", "by replicate", "nulls", "repeat: "):
            assert part in words
        assert main(["claim", "toy.smell", target]) == 2
        assert "unknown claim" in capsys.readouterr().err


def test_the_bare_command_greets(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert capsys.readouterr().out.count("\n  reasonscope ") == 3


def test_a_shell_can_complete(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "zsh"]) == 0
    assert "(recall analogy bridge symbols lego)" in capsys.readouterr().out
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    for typed, found in {"conf": "confirm", "confirm br": "bridge"}.items():
        words = f"COMP_WORDS=(reasonscope {typed}); COMP_CWORD={typed.count(' ') + 1}"
        answer = '_shtab_reasonscope; echo "${COMPREPLY[@]}"'
        bash = ["bash", "-c", f"{script}\n{words}; {answer}"]
        done = subprocess.run(bash, capture_output=True, text=True)
        assert done.stdout.split() == [found], done.stderr
    assert main(["completion", "elvish"]) == 2


def test_all_figures_are_drawn_at_once(
    toy_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["figure", "all", str(toy_run), "-o", "drawn"]) == 0
    files = capsys.readouterr().out.splitlines()
    assert files
    assert all(Path(file).is_file() for file in files)
    assert main(["figure", "loss", str(toy_run), "-o", "LOSS.PNG"]) == 0


def test_list_shows_what_can_be_set_and_drawn(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["list", "recall"]) == 0
    words = capsys.readouterr().out
    for part in ("    n_subjects: ", "    prompts: Figure 3", "a small trained run"):
        assert part in words


def test_every_key_that_can_be_set_is_listed_with_its_meaning(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["list", *STUDIES]) == 0
    lines = capsys.readouterr().out.splitlines()
    for study in map(find, STUDIES):
        for presets in (study.presets, study.needs_language().presets):
            for key in keys(largest(presets)):
                assert any(line.startswith(f"    {key}: ") for line in lines), key
                assert f"    {key}" not in lines


def test_a_group_of_the_config_is_reached(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", TOY, "--jobs", "1", "--set", "head.depth=2"]) == 0
    manifest = Path(capsys.readouterr().out.strip()) / "manifest.json"
    assert json.loads(manifest.read_text())["config"]["head"] == {"depth": 2}


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leaving:
        main(["--version"])
    assert leaving.value.code == 0
    assert capsys.readouterr().out.startswith("reasonscope 0.")


def test_the_same_request_reuses_the_trained_run(
    toy_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(toy_run)
    assert main(["train", TOY, "--jobs", "1"]) == 0
    written = capsys.readouterr()
    assert written.out.strip() == str(toy_run)
    assert written.err == ""
    assert contents(toy_run) == before


def test_another_request_gets_another_directory(
    toy_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", TOY, "--jobs", "1", "--set", "width=5"]) == 0
    other = Path(capsys.readouterr().out.strip())
    assert other != toy_run
    assert json.loads((other / "manifest.json").read_text())["config"]["width"] == 5
    assert set(toy_run.parent.iterdir()) == {toy_run, other}


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_a_figure_is_drawn_from_a_run(
    toy_run: Path, capsys: pytest.CaptureFixture[str], suffix: str
) -> None:
    file = Path("figures", f"loss.{suffix}")
    assert main(["figure", "loss", str(toy_run), "-o", str(file)]) == 0
    assert capsys.readouterr().out.strip() == str(file)
    assert file.stat().st_size > 500


def test_confirm_can_draw_every_figure(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["confirm", TOY, "--figures", "--jobs", "1"]) == 0
    file = Path(capsys.readouterr().out.splitlines()[-1])
    assert file.name == "loss.png"
    assert file.is_file()


def test_progress_is_told_in_plain_lines_without_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    monkeypatch.setattr(progress._LINE, "_refresh", 0.001)
    main(["train", TOY, "--jobs", "1"])
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("toy: training 0 of 2 arms, 0 s so far")


DIVERGING = "tests.faults.diverging:STUDY"


def test_a_seed_that_fails_is_named_and_the_other_studies_are_judged(
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = ["--jobs", "1", "--seeds", "0,1,4", "--json", "x.json"]
    assert main(["confirm", DIVERGING, TOY, *options]) == 3
    said = capsys.readouterr().err
    last = said.splitlines()[-1]
    assert "Traceback" not in said
    assert last.startswith("reasonscope: not trained: net: seed 1: its loss is not")
    assert "repeat to take these up again" in last
    assert json.loads(Path("x.json").read_text())["study"] == "toy"
    (run,) = Path("runs").glob("diverging-*")
    assert json.loads((run / "net" / "arm.json").read_text())["seeds"] == [0, 4]
    assert main(["probe", str(run)]) == 2
    assert "is not trained yet: net" in capsys.readouterr().err
    assert main(["probe", str(run), "--partial", "--json", "y.json"]) in (0, 1)
    assert "arm net lacks seed 1: its loss is not finite" in Path("y.json").read_text()
    assert main(["train", DIVERGING, "--jobs", "1", "--seeds", "0,1,4"]) == 3

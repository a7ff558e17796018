"""What the command says of itself: the studies, help, a greeting, completion."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from circuits.command.cli import main
from circuits.command.listing import largest
from circuits.study import STUDIES, find
from trained.config import keys

from .conftest import TOY

pytestmark = pytest.mark.usefixtures("elsewhere")


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


def test_the_bare_command_greets(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    greeting = capsys.readouterr().out
    assert greeting.count("\n  reasonscope ") == 3
    assert max(map(len, greeting.splitlines())) <= 60


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


def test_list_shows_what_can_be_set_and_drawn(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert main(["list", "recall"]) == 0
    words = capsys.readouterr().out
    for part in ("    prompts: Figure 3", "a small trained run"):
        assert part in words
    assert re.search(r"^    n_subjects: .* \[8\]$", words, re.MULTILINE)


def test_every_key_that_can_be_set_is_listed_with_its_meaning(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert main(["list", *STUDIES]) == 0
    lines = capsys.readouterr().out.splitlines()
    for study in map(find, STUDIES):
        for presets in (study.presets, study.needs_language().presets):
            for key in keys(largest(presets)):
                told = re.compile(rf"    {re.escape(key)}: \S")
                assert any(map(told.match, lines)), key


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leaving:
        main(["--version"])
    assert leaving.value.code == 0
    assert capsys.readouterr().out.startswith("reasonscope 0.")


@pytest.mark.parametrize("columns", ["60", "80", "120"])
@pytest.mark.parametrize("studies", [[], ["lego"]])
def test_list_fits_any_width(
    columns: str,
    studies: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert main(["list", *studies]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= int(columns)


def test_the_overview_is_short_and_names_every_claim_of_the_papers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert main(["list"]) == 0
    written = capsys.readouterr().out
    assert written.count("\n") < 120
    for study in map(find, STUDIES):
        for claim in study.claims_at(largest(study.presets)):
            assert (claim.id in written) == (claim.origin == "paper")

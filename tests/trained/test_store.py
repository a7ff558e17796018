"""Runs on disk: whole or not at all, and readable or refused in one line."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from tests.toy import SEEDS, Net, net_arm, net_stage
from trained import files, store
from trained.errors import BadInput
from trained.store import Run, read_json, read_tensors, write_json, write_tensors
from trained.trainer import Engine
from trained.training import restore, train

NewRun = Callable[..., Run]
ARM = net_arm(net_stage(steps=2), save_steps=(0,))


@pytest.fixture
def run(new_run: NewRun) -> Run:
    run = new_run()
    train(run, [ARM], engine=Engine(batching="vmap"))
    return run


def refusal(call: Callable[..., object], *arguments: object) -> str:
    """The one line with which a call is refused."""
    with pytest.raises(BadInput) as error:
        call(*arguments)
    message = str(error.value)
    assert message
    assert "\n" not in message
    return message


# Files.


def test_tensors_and_metadata_come_back(tmp_path: Path) -> None:
    tensors = {"a": torch.arange(6).reshape(2, 3).T, "b": torch.tensor(1.5)}
    write_tensors(tmp_path / "deep" / "x.safetensors", tensors, {"steps": [0, 2]})
    back, metadata = read_tensors(tmp_path / "deep" / "x.safetensors")
    assert back.keys() == tensors.keys()
    assert all(torch.equal(back[name], tensors[name]) for name in tensors)
    assert metadata == {"steps": [0, 2]}


def test_writing_leaves_no_other_file(tmp_path: Path) -> None:
    write_tensors(tmp_path / "x.safetensors", {"a": torch.zeros(2)})
    write_json(tmp_path / "x.json", {"a": 1})
    assert {file.name for file in tmp_path.iterdir()} == {"x.json", "x.safetensors"}


def test_an_interrupted_write_leaves_the_old_tensors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "x.safetensors"
    write_tensors(file, {"a": torch.zeros(2)})

    def half(_tensors: object, path: Path, **_: object) -> None:
        Path(path).write_bytes(b"half a file")
        raise KeyboardInterrupt

    monkeypatch.setattr(files, "save_file", half)
    with pytest.raises(KeyboardInterrupt):
        write_tensors(file, {"a": torch.ones(2)})
    assert torch.equal(read_tensors(file)[0]["a"], torch.zeros(2))


def test_a_full_disk_leaves_the_old_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "x.json"
    write_json(file, {"a": 1})

    def full(_descriptor: int) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        write_json(file, {"a": 2})
    assert read_json(file) == {"a": 1}


def test_a_value_that_json_cannot_hold_leaves_the_old_json(tmp_path: Path) -> None:
    write_json(tmp_path / "x.json", {"a": 1})
    with pytest.raises(TypeError):
        write_json(tmp_path / "x.json", {"a": object()})
    assert read_json(tmp_path / "x.json") == {"a": 1}


@pytest.mark.parametrize("length", [0, 4, 40, -1])
def test_a_truncated_file_of_tensors_is_refused(tmp_path: Path, length: int) -> None:
    file = tmp_path / "x.safetensors"
    write_tensors(file, {"a": torch.randn(50)}, {"step": 3})
    file.write_bytes(file.read_bytes()[:length])
    assert str(file) in refusal(read_tensors, file)


def test_a_missing_file_of_tensors_is_refused(tmp_path: Path) -> None:
    assert "gone.safetensors" in refusal(read_tensors, tmp_path / "gone.safetensors")


def test_a_pickle_is_refused_unread(tmp_path: Path) -> None:
    torch.save({"a": torch.zeros(2)}, tmp_path / "x.safetensors")
    assert "x.safetensors" in refusal(read_tensors, tmp_path / "x.safetensors")


def test_a_file_with_metadata_of_another_program_is_refused(tmp_path: Path) -> None:
    save_file({"a": torch.zeros(2)}, tmp_path / "x.safetensors", {"format": "pt"})
    assert "x.safetensors" in refusal(read_tensors, tmp_path / "x.safetensors")


@pytest.mark.parametrize(
    "content", [b"", b"{", b'{"a": 1', b"\xff\xfe", b"[1, 2]", b"3", b"null", b'"text"']
)
def test_broken_json_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.json").write_bytes(content)
    assert "x.json" in refusal(read_json, tmp_path / "x.json")


# Runs.


def test_a_run_says_what_was_asked_for(new_run: NewRun) -> None:
    run = new_run()
    opened = Run.open(run.path)
    assert opened.manifest["schema"] == store.SCHEMA
    assert (opened.study, opened.seeds) == ("toy", SEEDS)
    assert not opened.is_done("net")


def test_a_run_that_exists_is_come_back_to(new_run: NewRun) -> None:
    run = new_run()
    before = run.manifest
    again = Run.create(run.path, {**before, "environment": {"torch": "newer"}})
    assert again.manifest == before


@pytest.mark.parametrize(
    "change", [{"study": "chess"}, {"config": {"width": 5}}, {"claims_sha256": "0"}]
)
def test_a_run_that_was_started_otherwise_is_refused(
    new_run: NewRun, change: dict[str, object]
) -> None:
    run = new_run()
    (key,) = change
    message = refusal(Run.create, run.path, {**run.manifest, **change})
    assert f"was started with another {key}" in message


def test_a_directory_without_a_manifest_is_no_run(tmp_path: Path) -> None:
    assert "no manifest.json" in refusal(Run.open, tmp_path)
    assert str(tmp_path) in refusal(Run.open, tmp_path)


def test_a_path_that_does_not_exist_is_no_run(tmp_path: Path) -> None:
    assert "nowhere" in refusal(Run.open, tmp_path / "nowhere")


@pytest.mark.parametrize("content", ['{"schema": 1', "[]", "7", '{"schema": 1}'])
def test_a_broken_manifest_is_refused(new_run: NewRun, content: str) -> None:
    run = new_run()
    (run.path / "manifest.json").write_text(content)
    assert "manifest.json" in refusal(Run.open, run.path)


def test_a_finished_arm_keeps_no_unfinished_state(run: Run) -> None:
    assert {file.name for file in (run.path / "net").iterdir()} == {
        "arm.json",
        "metrics.safetensors",
        "weights-0.safetensors",
        "weights-2.safetensors",
    }


def test_weights_have_a_leading_seed_axis(run: Run) -> None:
    shapes = {name: tuple(t.shape) for name, t in run.weights("net").items()}
    assert shapes == {"first": (3, 3, 4), "second": (3, 4), "shift": (3, 3)}


def test_an_unknown_arm_is_refused_with_the_finished_ones(run: Run) -> None:
    for read in (run.record, run.weights, run.metrics):
        assert refusal(read, "web") == ("unknown finished arm 'web'; choose from: net")


def test_an_arm_of_an_untrained_run_is_refused(new_run: NewRun) -> None:
    assert "train the run first" in refusal(new_run().weights, "net")


def test_an_unknown_step_is_refused_with_the_saved_ones(run: Run) -> None:
    message = refusal(run.weights, "net", 1)
    assert message == "unknown saved step of net '1'; choose from: 0, 2"


def test_an_unknown_seed_is_refused_with_the_trained_ones(run: Run) -> None:
    message = refusal(restore, run, ARM, 2)
    assert message == "arm net has no seed 2; it has [0, 1, 4]"


def test_truncated_weights_are_refused(run: Run) -> None:
    file = run.path / "net" / "weights-2.safetensors"
    file.write_bytes(file.read_bytes()[:-8])
    assert str(file) in refusal(restore, run, ARM, 0)
    assert restore(run, ARM, 0, step=0) is not None


@pytest.mark.parametrize("name", ["weights-2", "metrics"])
def test_one_changed_byte_is_refused(run: Run, name: str) -> None:
    file = run.path / "net" / f"{name}.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    read = run.metrics if name == "metrics" else run.weights
    assert f"{file} was changed since it was written" in refusal(read, "net")


def test_a_file_that_is_not_in_the_record_is_refused(run: Run) -> None:
    file = run.path / "net" / "arm.json"
    record = read_json(file)
    record["saved_steps"].append(7)
    file.write_text(json.dumps(record))
    assert "is not in the record of arm net" in refusal(run.weights, "net")


def test_missing_weights_are_refused(run: Run) -> None:
    file = run.path / "net" / "weights-2.safetensors"
    file.unlink()
    assert str(file) in refusal(restore, run, ARM, 0)


def stacked(model: nn.Module, n_seeds: int) -> dict[str, torch.Tensor]:
    return {
        name: torch.stack([tensor] * n_seeds)
        for name, tensor in model.state_dict().items()
    }


FOREIGN = {
    "another architecture": stacked(nn.Linear(2, 2), 3),
    "another width": stacked(Net(0, width=5), 3),
    "other seeds": stacked(Net(0), 2),
    "no seed axis": {"first": torch.tensor(0.0)},
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_weights_of_another_model_are_refused(run: Run, kind: str) -> None:
    run.save_weights("net", 2, FOREIGN[kind])
    run.finish("net", {"step": torch.zeros(1)}, run.record("net"))
    message = refusal(restore, run, ARM, 4)
    assert message == f"{run.path}/net holds another model's weights"


def nan(tensor: torch.Tensor) -> torch.Tensor:
    return tensor * float("nan")


@pytest.mark.parametrize(
    ("change", "message"),
    [(nan, "first of this seed is not a number"), (torch.Tensor.half, "torch.float16")],
)
def test_weights_that_are_no_numbers_or_of_another_type_are_refused(
    run: Run, change: Callable[[torch.Tensor], torch.Tensor], message: str
) -> None:
    weights = {name: change(t) for name, t in run.weights("net").items()}
    run.save_weights("net", 2, weights)
    run.finish("net", {"step": torch.zeros(1)}, run.record("net"))
    assert message in refusal(restore, run, ARM, 4)


def edit_json(file: Path, **changes: object) -> None:
    file.write_text(json.dumps({**read_json(file), **changes}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seeds": []}, "seeds must be whole numbers"),
        ({"seeds": [0, 0, 4]}, "none twice"),
        ({"saved_steps": []}, "saved_steps must be whole numbers"),
        ({"saved_steps": ["../../x"]}, "saved_steps must be whole numbers"),
        ({"saved_steps": [True]}, "saved_steps must be whole numbers"),
        ({"files": {"../x": "0" * 64}}, "'../x' is not a file beside it"),
        ({"files": {"weights-2.safetensors": 3}}, "with a sha256"),
        ({"failed": [3]}, "'failed' does not give a reason per seed"),
        ({"failed": {"x": "y"}}, "'failed' does not give a reason per seed"),
    ],
)
def test_a_record_that_makes_no_sense_is_refused(
    run: Run, changes: dict[str, object], message: str
) -> None:
    edit_json(run.path / "net" / "arm.json", **changes)
    assert message in refusal(run.weights, "net")


@pytest.mark.parametrize("name", ["..", "../net", "/etc", "a/b", ""])
def test_the_name_of_an_arm_is_no_path(run: Run, name: str) -> None:
    assert "cannot be the name of an arm" in refusal(run.weights, name)


@pytest.mark.parametrize("schema", [1, 3, None, "2"])
def test_a_run_of_another_schema_is_not_come_back_to(
    new_run: NewRun, schema: object
) -> None:
    run = new_run()
    asked = {k: v for k, v in run.manifest.items() if k != "schema"}
    edit_json(run.path / "manifest.json", schema=schema)
    message = refusal(Run.create, run.path, asked)
    assert f"schema {schema}; this version reads 2" in message


def test_a_manifest_that_was_edited_after_training_is_refused(run: Run) -> None:
    assert run.verify("net", SEEDS) == 3
    edit_json(run.path / "manifest.json", preset="paper")
    assert "was changed since arm net was trained" in refusal(run.verify, "net", SEEDS)


def test_a_broken_record_of_an_arm_is_refused(run: Run) -> None:
    file = run.path / "net" / "arm.json"
    file.write_text(json.dumps(read_json(file))[:-5])
    assert str(file) in refusal(restore, run, ARM, 0)

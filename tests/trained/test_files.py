"""Whole files, full disks and litter."""

import errno
import os
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError

from trained import files
from trained.files import PARTIAL, content_hash, sweep, write_json, write_tensors

FULL = "Error while serializing: I/O error: No space left on device (os error 28)"


@pytest.mark.parametrize(
    ("said", "kind"), [(FULL, OSError), ("header too large", SafetensorError)]
)
def test_a_full_disk_is_an_error_of_the_system_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, kind: type[Exception]
) -> None:
    def fail(_tensors: object, path: Path, **_: object) -> None:
        path.write_bytes(b"half a file")
        raise SafetensorError(said)

    monkeypatch.setattr(files, "save_file", fail)
    with pytest.raises(kind) as error:
        write_tensors(tmp_path / "x.safetensors", {"a": torch.zeros(2)})
    if isinstance(error.value, OSError):
        assert error.value.errno == errno.ENOSPC
        assert "x.safetensors" in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_two_writers_never_share_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def spy(_descriptor: int) -> None:
        seen.extend(file.name for file in tmp_path.glob(f"*{PARTIAL}"))

    monkeypatch.setattr(os, "fsync", spy)
    for _ in range(2):
        write_json(tmp_path / "x.json", 1)
    assert len(set(seen)) == 2


def test_litter_is_swept_when_it_is_old(tmp_path: Path) -> None:
    old, new = (tmp_path / "deep" / f"{n}{PARTIAL}" for n in ("old", "new"))
    kept = tmp_path / "deep" / "x.json"
    write_json(kept, 1)
    for file in (old, new):
        file.write_text("half")
    os.utime(old, (0, 0))
    sweep(tmp_path, age=3600.0)
    assert not old.exists()
    assert new.exists()
    sweep(tmp_path)
    assert not new.exists()
    assert kept.exists()


def test_a_directory_is_forced_to_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = []

    def spy(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").resolve())

    monkeypatch.setattr(os, "fsync", spy)
    write_json(tmp_path / "x.json", 1)
    assert synced[-1] == tmp_path.resolve()


@pytest.mark.parametrize(
    "other",
    [
        {"a": torch.tensor([1.0, 2.5])},
        {"b": torch.tensor([1.0, 2.0])},
        {"a": torch.tensor([[1.0, 2.0]])},
        {"a": torch.tensor([1.0, 2.0]).view(torch.int32)},
    ],
)
def test_the_hash_of_content_sees_every_change(other: dict[str, torch.Tensor]) -> None:
    tensors = {"a": torch.tensor([1.0, 2.0])}
    assert content_hash(other) != content_hash(tensors)
    assert content_hash({"a": tensors["a"].clone()}) == content_hash(tensors)
    assert content_hash({"a": torch.tensor(1.0, dtype=torch.bfloat16)})

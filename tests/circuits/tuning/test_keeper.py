"""What took long is stored once, and not believed when it was edited."""

from pathlib import Path

import pytest
import torch

from circuits.tuning.keeper import Keeper, Missing
from trained.errors import BadInput


def test_measured_once(tmp_path: Path) -> None:
    calls: list[Path | None] = []

    def make(folder: Path | None) -> dict[str, torch.Tensor]:
        calls.append(folder)
        if folder is not None:
            (folder / "state-0.safetensors").write_text("under way")
        return {"value": torch.tensor([1.0, torch.nan])}

    for _ in range(2):
        found = Keeper(tmp_path).kept("joint, seed 3", make)
        assert found["value"][0] == 1
    assert calls == [tmp_path / "joint-seed-3"]
    assert [f.name for f in tmp_path.iterdir()] == ["joint-seed-3.safetensors"]
    # Who only reads finds it, and nothing else.
    reader = Keeper(tmp_path, only_reads=True)
    assert reader.kept("joint, seed 3", make)["value"][0] == 1
    with pytest.raises(Missing, match="'joint, seed 4' was not measured there"):
        reader.kept("joint, seed 4", make)
    # Nothing is kept where there is no place.
    assert Keeper().kept("joint", make).keys() == {"value"}
    assert calls[-1] is None


def test_two_names_of_one_tensor_are_kept(tmp_path: Path) -> None:
    same = torch.arange(6.0).view(2, 3).T
    for _ in range(2):
        found = Keeper(tmp_path).kept("a", lambda _folder: {"x": same, "y": same})
        assert torch.equal(found["x"], same)
        assert torch.equal(found["y"], same)


def test_an_edited_file_is_refused(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path)
    keeper.kept("a", lambda _folder: {"x": torch.arange(9.0)})
    file = tmp_path / "a.safetensors"
    file.write_bytes(file.read_bytes()[:-4] + b"\0\0\0\0")
    with pytest.raises(BadInput, match="changed since it was written"):
        keeper.kept("a", lambda _folder: {})


def test_what_fails_is_not_stored_and_keeps_its_state(tmp_path: Path) -> None:
    def fail(folder: Path | None) -> dict[str, torch.Tensor]:
        assert folder is not None
        (folder / "state-0.safetensors").write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Keeper(tmp_path).kept("a", fail)
    assert (tmp_path / "a" / "state-0.safetensors").exists()
    assert not (tmp_path / "a.safetensors").exists()

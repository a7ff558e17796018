import sys

import pytest
import torch

from circuits.models import files
from circuits.models import open as pretrained
from circuits.models.files import cache_folder, converted
from tests.tiny_gguf import write_tiny_llama
from trained.errors import BadInput


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("REASONSCOPE_CACHE", str(folder))
    return folder


@pytest.fixture
def gguf(tmp_path):
    path = tmp_path / "tiny.gguf"
    return path, write_tiny_llama(path)


@torch.no_grad()
def test_a_gguf_file_opens_with_the_weights_it_was_written_with(gguf):
    path, original = gguf
    model = pretrained.open(path, device="cpu")
    prompts = model.prompts(["abc", "cab.d"])

    assert prompts.tokens[0, -2:].tolist() == [model.token("ab"), model.token("c")]
    expected = original(
        input_ids=prompts.tokens[1:], attention_mask=prompts.mask[1:]
    ).logits
    logits = model(prompts.tokens, prompts.mask)
    torch.testing.assert_close(logits[1:], expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("begins", [True, False])
def test_texts_begin_as_the_file_says(tmp_path, begins):
    path = tmp_path / "tiny.gguf"
    write_tiny_llama(path, add_bos=begins)
    model = pretrained.open(path, device="cpu")
    bos = [model.tokenizer.bos_token_id] if begins else []
    expected = [*bos, model.token("ab"), model.token("c")]
    assert model.prompts(["abc"]).tokens[0].tolist() == expected


def test_a_file_is_converted_once_for_each_dtype(gguf, cache, monkeypatch):
    path, _ = gguf
    folder = converted(path, torch.float32)
    half = converted(path, torch.float16)
    assert {folder, half} == set(cache.iterdir())

    monkeypatch.delattr(files, "_convert")
    assert converted(path, torch.float32) == folder


def test_a_failed_conversion_leaves_nothing(gguf, cache, monkeypatch):
    path, _ = gguf

    def fail(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(files, "_publish", fail)
    with pytest.raises(KeyboardInterrupt):
        converted(path, torch.float32)
    assert list(cache.iterdir()) == []


def test_another_process_may_convert_the_same_file_meanwhile(gguf, cache):
    path, _ = gguf
    folder = converted(path, torch.float32)
    partial = cache / "partial"
    partial.mkdir()
    (partial / "config.json").touch()
    files._publish(partial, folder)

    assert (folder / "model.safetensors").is_file()


def test_a_file_with_another_hash_is_refused(tmp_path):
    path = tmp_path / "x.gguf"
    path.write_bytes(b"other")
    with pytest.raises(BadInput, match="not the expected file"):
        converted(path, torch.float32, sha256="0" * 64)


def test_a_broken_file_is_one_clear_error(tmp_path):
    pytest.importorskip("gguf")
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"not a model")
    with pytest.raises(BadInput, match=r"cannot read .*broken\.gguf"):
        converted(path, torch.float32)


def test_without_the_gguf_package_the_error_says_what_to_run(tmp_path, monkeypatch):
    path = tmp_path / "x.gguf"
    path.write_bytes(b"GGUF")
    monkeypatch.setitem(sys.modules, "gguf", None)
    monkeypatch.setattr(files, "find_spec", lambda _name: None)
    with pytest.raises(BadInput, match="needs the package gguf: run `make setup-llm`"):
        converted(path, torch.float32)


def test_the_cache_is_where_the_environment_says(tmp_path, monkeypatch):
    monkeypatch.delenv("REASONSCOPE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "reasonscope"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder().parts[-2:] == (".cache", "reasonscope")

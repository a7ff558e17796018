"""Steps that may cost digits: close to the exact ones, and only where asked for."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests import toy
from trained.errors import BadInput
from trained.fast import FAST, losses_by, matmul_precision
from trained.store import Run
from trained.trainer import Engine, Observer, Trainer
from trained.training import begin_arm, train

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")


def trained(folder: Path, *fast: str, device: str = "cpu") -> Tensor:
    """The first weights of a small net after a few steps."""
    arm = toy.net_arm(toy.net_stage(steps=5))
    engine = Engine(device=device, fast=fast)
    trainer = Trainer(arm, (0, 1), engine, folder, Observer())
    trainer.train()
    assert torch.get_float32_matmul_precision() == "highest"
    return next(iter(trainer.ensemble.parameters.values())).detach().cpu()


def test_half_precision_is_close_and_not_the_same(tmp_path: Path) -> None:
    exact = trained(tmp_path / "exact")
    half = trained(tmp_path / "half", "bf16")
    assert half.dtype == torch.float32
    assert not torch.equal(half, exact)
    torch.testing.assert_close(half, exact, atol=0.05, rtol=0.0)


def test_an_arm_that_was_begun_in_another_way_is_refused(
    new_run: Callable[..., Run],
) -> None:
    run, arm = new_run(), toy.net_arm(toy.net_stage(steps=5))
    begin_arm(run, arm, engine=Engine())
    with pytest.raises(BadInput, match=r"begun with fast=\[\], not \['bf16'\]"):
        train(run, [arm], engine=Engine(fast=("bf16",)))
    train(run, [arm], engine=Engine())


COMPILED = """
import sys
from functools import partial
from pathlib import Path
import torch
from tests.trained.test_fast import trained
exact = trained(Path(sys.argv[1]) / "exact")
torch.compile = partial(torch.compile, backend="aot_eager", fullgraph=True)
torch.testing.assert_close(trained(Path(sys.argv[1]) / "compiled", "compile"), exact)
"""


@pytest.mark.slow
def test_a_step_is_captured_whole_and_is_the_same(tmp_path: Path) -> None:
    # In a process without run-time type checks, which no compiler sees through; and
    # without the code generator, which takes a minute on a CPU.
    command = [sys.executable, "-c", COMPILED, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def test_double_precision_stays() -> None:
    given = torch.ones(2, dtype=torch.float64)
    losses = losses_by(lambda _quantity, _data: given, ("bf16",), "cpu")
    assert losses(toy.squared_error, {}).dtype == torch.float64


@needs_cuda
@pytest.mark.parametrize("name", FAST)
def test_every_way_on_cuda(name: str, tmp_path: Path) -> None:
    exact = trained(tmp_path / "exact", device="cuda")
    fast = trained(tmp_path / "fast", name, device="cuda")
    torch.testing.assert_close(fast, exact, atol=0.05, rtol=0.0)


def test_tf32_lasts_as_long_as_the_block() -> None:
    with matmul_precision(("tf32",)):
        assert torch.get_float32_matmul_precision() == "high"
    with matmul_precision(()):
        assert torch.get_float32_matmul_precision() == "highest"


@pytest.mark.parametrize(
    ("fast", "words"),
    [
        ("tf16", "unknown way to be fast 'tf16'; choose from: tf32, bf16"),
        ("tf32", "--fast tf32 needs a CUDA device, not cpu"),
        ("graphs", "--fast graphs needs a CUDA device, not cpu"),
    ],
)
def test_what_cannot_be_is_refused(fast: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        Engine(fast=(fast,))

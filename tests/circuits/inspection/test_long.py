"""Long prompts: nothing grows with the square of the length or with the vocabulary."""

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from circuits.inspection import budget
from circuits.inspection.budget import bytes_needed
from circuits.inspection.inspect import inspect
from circuits.inspection.one_pass import SHOWN
from circuits.models.language_model import LanguageModel
from tests.word_models import word_model
from trained.errors import BadInput

LENGTH = 600
SIGNALS = ("lens", "attention", "alignment")


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    names = [f" {chr(97 + a)}{chr(97 + b)}" for a in range(26) for b in range(26)]
    return word_model(names + [f"{n}x" for n in names])


@pytest.fixture(scope="module")
def text(model: LanguageModel) -> str:
    words = [w for w in model.tokenizer.get_vocab() if w.endswith("x") and len(w) == 4]
    return "".join(sorted(words)[:LENGTH])


class Largest(TorchDispatchMode):
    """The most numbers that any tensor held."""

    def __init__(self) -> None:
        super().__init__()
        self.size = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        found = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(found):
            if isinstance(leaf, torch.Tensor):
                self.size = max(self.size, leaf.untyped_storage().nbytes() // 4)
        return found


def test_no_tensor_holds_a_pattern_or_all_logits(
    model: LanguageModel, text: str
) -> None:
    words = text.split()
    roles = {"one": words[7], "two": words[400]}
    with Largest() as largest:
        found = inspect(model, text, signals=SIGNALS, roles=roles)
    length = len(found.tokens)
    assert length == LENGTH
    assert largest.size < length * length
    assert largest.size < length * model.d_vocab
    assert len(found.shown) <= SHOWN
    assert {7, 400, length - 1} <= {*found.shown}
    assert found.logit.values.shape[1] == length
    # The control: a whole pattern is seen as one.
    with Largest() as control:
        inspect(model, text, signals=("attention",), positions=[*range(256)])
    assert control.size > 256 * length


def test_what_is_shown_of_a_long_prompt_is_what_all_of_it_shows(
    model: LanguageModel, text: str
) -> None:
    short = text[: 40 * 4]
    whole, some = (
        inspect(model, short, answer=" ab", positions=places)
        for places in (list(range(40)), [3, 17])
    )
    assert len(whole.tokens) == 40
    assert some.shown == (3, 17, 39)
    for row, other in zip(some.lens.tokens, whole.lens.tokens, strict=True):
        assert row == tuple(other[place] for place in some.shown)
    assert some.attention is not None
    assert whole.attention is not None
    names = some.attention.patterns.labels
    assert names["head"] == whole.attention.patterns.labels["head"]
    part = whole.attention.patterns.values[:, some.shown][:, :, some.shown]
    torch.testing.assert_close(some.attention.patterns.values, part)
    assert len(inspect(model, short).shown) == SHOWN


def test_what_does_not_fit_is_refused_in_a_line(
    model: LanguageModel, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = bytes_needed(model, LENGTH, SHOWN, 1)
    monkeypatch.setattr(budget, "free_bytes", lambda _device: needed + 1)
    inspect(model, text)
    monkeypatch.setattr(budget, "free_bytes", lambda _device: needed - 1)
    with pytest.raises(BadInput, match=r"a prompt of 600 tokens needs about .* GB"):
        inspect(model, text)
    monkeypatch.setattr(budget, "free_bytes", lambda _device: None)
    inspect(model, text)


def test_a_long_sweep_asks_for_positions(
    model: LanguageModel, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "MOST_CELLS", 1000)
    words = text.split()
    asked = {
        "corrupt": text.replace(words[3], words[4], 1),
        "answer": " ab",
        "corrupt_answer": " ac",
        "signals": ("patching",),
    }
    with pytest.raises(BadInput, match=r"1200 cells .* takes about .*--positions"):
        inspect(model, text, **asked)
    found = inspect(model, text, positions=[3, "last"], **asked).patching
    assert found is not None
    assert found.values.shape == (2, 2)
    assert float(found.select(position="last").values[-1]) == pytest.approx(1, abs=1e-4)
    with pytest.raises(BadInput, match="names 257 tokens; give at most 256"):
        inspect(model, text, positions=[*range(257)])

"""Models after lessons: what they learn, and that they are then what they were."""

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from circuits.models import open as pretrained
from circuits.models.language_model import LanguageModel
from circuits.models.open import behind
from circuits.tuning import course
from circuits.tuning.facts import Curriculum, Fact
from circuits.tuning.parts import trainable
from circuits.tuning.settings import Tuning
from circuits.tuning.tuned import Lesson, exact, taught
from tests.alive import bytes_alive
from tests.word_models import word_model, word_tokenizer
from trained.errors import BadInput, Incomplete

NEEDS_PEFT = pytest.mark.skipif(find_spec("peft") is None, reason="needs peft")
NAMES = ["Ada", "Ben", "Cleo", "Dan", "Eva", "Finn"]
COLOURS = ["red", "blue", "green", "grey", "white", "black"]
FACTS = [
    Fact(f"<s>{name} likes", f" {colour}")
    for name, colour in zip(NAMES, COLOURS, strict=True)
]
LISTS = {"first": FACTS[:2], "second": FACTS[2:4], "unseen": FACTS[4:]}
ONCE = Curriculum("once", (("first", "second"),))
APART = Curriculum("apart", (("first",), ("second",)))
SHORT = Tuning(epochs=16, batch_size=4, lr=0.01)
TEXTS = [fact.prompt + fact.answer for fact in FACTS]


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return word_model(TEXTS)


def weights(model: LanguageModel) -> dict[str, torch.Tensor]:
    return {k: v.clone() for k, v in behind(model.module)[1].state_dict().items()}


def after(model: LanguageModel, lesson: Lesson, folder: Path | None = None) -> dict:
    """The weights after a lesson."""
    with taught(model, lesson, folder=folder) as found:
        return weights(found.model)


@pytest.mark.parametrize(
    ("backend", "layers"),
    [
        ("hf", "all"),
        ("hf", "last:1"),
        pytest.param("hf", "lora:4", marks=NEEDS_PEFT),
        ("nnsight", "last:1"),
    ],
)
def test_it_learns_and_then_is_what_it_was(
    model: LanguageModel, backend: str, layers: str
) -> None:
    opened = pretrained.wrap(model.module, model.tokenizer, backend=backend)
    before = weights(opened)
    lesson = Lesson(ONCE, LISTS, 0, replace(SHORT, layers=layers))
    with taught(opened, lesson) as found:
        assert found.fits == {"first": 1, "second": 1}
        assert exact(found.model, LISTS["unseen"]).tolist() == [0, 0]
        assert found.model.name == "model after once"
        hf = behind(found.model.module)[1]
        assert not any(p.requires_grad for p in hf.parameters())
        prompts = found.model.prompts([fact.prompt for fact in LISTS["first"]])
        said = found.model(prompts.tokens, prompts.mask)[:, -1].argmax(-1).tolist()
        assert said == [model.token(fact.answer) for fact in LISTS["first"]]
        if layers == "last:1":
            same = {k: torch.equal(v, before[k]) for k, v in hf.state_dict().items()}
            assert same == {k: "layers.1." not in k for k in before}
    assert exact(opened, LISTS["first"]).mean() < 1
    now = weights(opened)
    assert now.keys() == before.keys()
    assert all(torch.equal(now[name], before[name]) for name in now)


def test_premises_are_asked_when_their_phase_ends(model: LanguageModel) -> None:
    """What was taught first may be forgotten at the end, and was learned once."""
    tuning = replace(SHORT, lr=0.03)
    with taught(model, Lesson(APART, LISTS, 0, tuning)) as found:
        assert found.fits == {"first": 1, "second": 1}
        assert exact(found.model, LISTS["first"]).mean() < 1


def test_parts_and_recomputed_blocks_give_the_same(model: LanguageModel) -> None:
    """Accumulation and checkpointing cost time and change nothing."""
    single = replace(SHORT, epochs=2)
    plain = after(model, Lesson(ONCE, LISTS, 0, single))
    lean = replace(single, accumulate=3, checkpointing=True)
    other = after(model, Lesson(ONCE, LISTS, 0, lean))
    for name in plain:
        torch.testing.assert_close(other[name], plain[name], atol=2e-4, rtol=1e-3)


def test_seeds_order_the_facts(model: LanguageModel) -> None:
    single = replace(SHORT, batch_size=1, epochs=1)
    first, again, other = (
        after(model, Lesson(ONCE, LISTS, seed, single)) for seed in (0, 0, 1)
    )
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)


@pytest.mark.parametrize("layers", ["all", pytest.param("lora:4", marks=NEEDS_PEFT)])
def test_killed_and_taken_up_it_ends_with_the_same_bits(
    model: LanguageModel, layers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(course, "SAVE_SECONDS", 0.0)
    monkeypatch.setattr(course, "SAVE_COST", 0.0)
    lesson = Lesson(APART, LISTS, 0, replace(SHORT, epochs=4, layers=layers))

    def trained(folder: Path | None) -> list[torch.Tensor]:
        with taught(model, lesson, folder=folder) as found:
            hf = behind(found.model.module)[1]
            return [p.detach().clone() for p in hf.parameters()]

    whole = trained(None)
    before = weights(model)
    # In the second phase: steps of the first one are not repeated.
    taken = []
    take = course.Course._take

    def killed(self: course.Course, *args: object) -> None:
        taken.append(self._index)
        if len(taken) == 6:
            raise KeyboardInterrupt
        take(self, *args)

    monkeypatch.setattr(course.Course, "_take", killed)
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path)
    assert all(torch.equal(v, before[k]) for k, v in weights(model).items())
    resumed = trained(tmp_path)
    assert taken == [0, 0, 0, 0, 1, 1, 1, 1, 1]
    assert all(torch.equal(a, b) for a, b in zip(whole, resumed, strict=True))


@pytest.mark.parametrize(
    ("dtype", "layers", "most"),
    [
        (torch.float32, "all", 12),
        (torch.bfloat16, "all", 10),
        pytest.param(torch.bfloat16, "lora:1", 2.3, marks=NEEDS_PEFT),
    ],
)
def test_bytes_per_parameter(dtype: torch.dtype, layers: str, most: float) -> None:
    """All tensors that are alive after a step, whoever holds them, and its gradients.

    Where only some are trained, the others have their weights only.
    """
    held = bytes_alive()
    wide = {"hidden_size": 256, "intermediate_size": 512}
    opened = word_model(TEXTS, **wide)
    hf = opened.module.to(dtype)
    count = sum(p.numel() for p in hf.parameters())
    tuning = replace(SHORT, layers=layers)
    seen = []

    class Watched(course.LeanAdamW):
        def step(self, *args: float) -> float:
            # Weights, gradients and moments are all there.
            seen.append(bytes_alive() - held)
            return super().step(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(course, "LeanAdamW", Watched)
        model = pretrained.wrap(hf, opened.tokenizer)
        with taught(model, Lesson(ONCE, LISTS, 0, replace(tuning, epochs=2))):
            pass
    # A hundredth for prompts and the like.
    assert max(seen) <= 1.01 * most * count
    assert max(seen) >= 0.7 * most * count or layers != "all"


def test_what_cannot_be_trained_is_refused(model: LanguageModel) -> None:
    bridged = pretrained.wrap(model.module, model.tokenizer, backend="bridge")
    with (
        pytest.raises(BadInput, match="backend hf or nnsight"),
        taught(bridged, Lesson(ONCE, LISTS, 0, SHORT)),
    ):
        pass
    halved = word_model(TEXTS).module.half()
    with pytest.raises(BadInput, match="bfloat16"), trainable(halved, SHORT, 0):
        pass
    with pytest.raises(BadInput, match="unknown list of facts 'first'"):
        Lesson(ONCE, {}, 0, SHORT)
    with pytest.raises(BadInput, match="layers=some: all, last:N or lora:R"):
        Tuning(layers="some")


def test_a_loss_that_is_no_number_ends_it(model: LanguageModel) -> None:
    before = weights(model)
    lesson = Lesson(ONCE, LISTS, 0, replace(SHORT, lr=1e30))
    with (
        pytest.raises(Incomplete, match=r"not finite at step \d of phase 1"),
        taught(model, lesson),
    ):
        pass
    assert all(torch.equal(v, before[k]) for k, v in weights(model).items())


def test_tuned_weights_can_be_kept_and_opened(
    model: LanguageModel, tmp_path: Path
) -> None:
    lesson = Lesson(ONCE, LISTS, 0, replace(SHORT, keep=True))
    with taught(model, lesson, folder=tmp_path) as found:
        tuned = weights(found.model)
    opened = pretrained.open(tmp_path / "model", device="cpu")
    assert all(torch.equal(v, tuned[k]) for k, v in weights(opened).items())
    assert len(word_tokenizer(TEXTS)) == len(opened.tokenizer)

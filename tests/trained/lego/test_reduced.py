import pytest
import torch

from trained.lego.action import action
from trained.lego.reduced import ReducedModel, feature_ratio, reduced_loss
from trained.lego.sentences import Sentences, draw_sentences, table_of
from trained.lego.theory_model import loss_floor


def sentences(text: str, length: int) -> Sentences:
    return draw_sentences(
        table_of(action(text)),
        50,
        length,
        n_variables=40,
        generator=torch.Generator().manual_seed(0),
    )


def attending(text: str, sharpness: float, ratio: float | None = None) -> ReducedModel:
    model = ReducedModel(action(text), 100, ratio).requires_grad_(False)
    model.alpha.fill_(sharpness)
    model.beta.fill_(sharpness)
    return model


@pytest.mark.parametrize(
    ("text", "ratio"), [("C6", 1.0), ("S3", 1.25), ("S4", 19 / 9), ("S5", 97 / 28)]
)
def test_feature_ratio_by_hand(text: str, ratio: float) -> None:
    assert feature_ratio(action(text)) == pytest.approx(ratio)


@pytest.mark.parametrize("text", ["C6", "S4"])
def test_perfect_attention_gives_the_clip_and_zeros(text: str) -> None:
    model, given = attending(text, 30.0), sentences(text, 3)
    logits = model(given)
    right = given.values[:, 1:, None]
    torch.testing.assert_close(
        logits.gather(-1, right), torch.full(right.shape, model.clip)
    )
    assert float(logits.scatter(-1, right, 0.0).abs().max()) < 1e-3
    assert float(reduced_loss(model, given)) == pytest.approx(loss_floor(100), rel=1e-3)


def test_long_chains_need_sharp_attention() -> None:
    given = sentences("S4", 30)
    for sharpness, solved in ((12.0, True), (0.0, False)):
        right = attending("S4", sharpness)(given).argmax(-1) == given.values[:, 1:]
        assert bool(right.all()) is solved


def test_pattern_sees_no_future_answer() -> None:
    pattern = attending("C6", 1.0).pattern(3)
    torch.testing.assert_close(pattern.sum(-1), torch.ones(3))
    assert pattern[0, 4] == 0
    assert pattern[0, 5] == 0
    assert float(pattern[0, 0]) == pytest.approx(float(pattern[0, 3]))

"""Prompts of different lengths, the tokens that play a role, and the readout."""

from typing import Any

import pytest
import torch
from tokenizers.processors import TemplateProcessing

from circuits.models.language_model import LanguageModel, Side, from_hf
from tests.random_models import D_VOCAB, N_CTX, letter_tokenizer, random_model
from trained.errors import BadInput


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    """GPT-2: its learned positions show whether padding shifts them."""
    return from_hf(random_model("gpt2"), letter_tokenizer(), "tiny")


@pytest.fixture(scope="module")
def with_start() -> LanguageModel:
    """A tokenizer that puts a token before every text."""
    tokenizer = letter_tokenizer()
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    return from_hf(random_model("llama"), tokenizer, "tiny")


def test_the_sizes_are_the_models(model: LanguageModel) -> None:
    sizes = (model.n_layers, model.n_heads, model.d_model, model.d_vocab, model.n_ctx)
    assert sizes == (3, 4, 32, D_VOCAB, N_CTX)


def test_prompts_are_padded_on_the_asked_for_side(model: LanguageModel) -> None:
    left = model.prompts(["abc", "a"])
    right = model.prompts(["abc", "a"], side="right")
    assert left.tokens.tolist() == [[3, 4, 5], [0, 0, 3]]
    assert right.tokens.tolist() == [[3, 4, 5], [3, 0, 0]]
    assert left.mask.tolist() == [[True] * 3, [False, False, True]]
    assert right.mask.tolist() == [[True] * 3, [True, False, False]]
    assert (left.last.tolist(), right.last.tolist()) == ([2, 2], [2, 0])
    assert left.targets.tolist() == [-1, -1]


def test_answers_become_targets(model: LanguageModel) -> None:
    assert model.prompts(["abc", "a"], ["d", " "]).targets.tolist() == [6, 38]


@pytest.mark.parametrize(
    ("side", "places"), [("left", [[4], [6]]), ("right", [[4], [3]])]
)
def test_a_role_is_the_last_token_of_its_phrases_last_occurrence(
    model: LanguageModel, side: Side, places: list[list[int]]
) -> None:
    texts, phrases = ["ab ab c", "ab c"], ["ab", "b c"]
    prompts = model.prompts(texts, roles={"subject": phrases}, side=side)
    assert prompts.role("subject").tolist() == places
    rows = torch.arange(2)[:, None]
    letters = prompts.tokens[rows, prompts.role("subject")]
    assert letters.tolist() == [[4], [5]]


def test_a_start_token_is_counted(with_start: LanguageModel) -> None:
    prompts = with_start.prompts(["ab", "abcd"], ["c", "e"], roles={"r": ["a", "bc"]})
    assert prompts.tokens.tolist() == [[0, 0, 1, 3, 4], [1, 3, 4, 5, 6]]
    assert prompts.role("r").tolist() == [[3], [3]]
    assert prompts.targets.tolist() == [5, 7]


@torch.no_grad()
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_padded_prompt_has_the_logits_it_has_alone(
    model: LanguageModel, side: Side
) -> None:
    texts = ["the cat sat", "a dog"]
    prompts = model.prompts(texts, side=side)
    together = model(prompts.tokens, prompts.mask)
    for row, text in enumerate(texts):
        alone = model(model.prompts([text]).tokens)[0]
        torch.testing.assert_close(
            together[row, prompts.mask[row]], alone, rtol=1e-5, atol=1e-5
        )
    # Without the mask the same tokens mean something else.
    if side == "left":
        assert (model(prompts.tokens)[1, -1] - together[1, -1]).abs().max() > 0.1


@torch.no_grad()
@pytest.mark.parametrize("family", ["gpt2", "gemma2", "phi"])
def test_the_readout_is_that_of_the_model(family: str) -> None:
    model = from_hf(random_model(family), letter_tokenizer(), family)
    tokens = model.prompts(["the cat"]).tokens
    states = model.module(tokens, output_hidden_states=True).hidden_states[-1]
    # transformers stores the last residual behind the final norm.
    behind = LanguageModel(**{**vars(model), "readout": _without_norm(model)})
    torch.testing.assert_close(behind.readout.logits(states), model(tokens))


def _without_norm(model: LanguageModel) -> Any:
    readout = model.readout
    return type(readout)(
        lambda h: h, readout.unembedding, readout.bias, readout.soft_cap
    )


def test_a_soft_cap_worked_by_hand() -> None:
    readout = _without_norm(from_hf(random_model("gemma2"), None, "gemma"))
    column = torch.zeros(32)
    assert readout.soft_cap == 3.0
    assert not readout.logits(column).any()
    far = readout.logits(1e6 * readout.unembedding[:, 7])[7]
    assert far.item() == pytest.approx(3.0)


# What is refused


@pytest.mark.parametrize(
    ("texts", "options", "message"),
    [
        ([], {}, "there are no prompts"),
        (["ab", ""], {}, "a prompt is empty"),
        (
            ["a" * (N_CTX + 1)],
            {},
            f"has {N_CTX + 1} tokens; tiny reads at most {N_CTX}",
        ),
        (["ab"], {"answers": ["a", "b"]}, "1 prompts but 2 answers"),
        (["ab"], {"answers": []}, "1 prompts but 0 answers"),
        (["ab"], {"answers": ["bc"]}, r"'bc' must be one token of tiny; it is \['b', "),
        (["ab"], {"answers": [""]}, r"'' must be one token of tiny; it is \[\]"),
        (["ab"], {"roles": {"x": []}}, "1 prompts but 0 x"),
        (["ab"], {"roles": {"x": ["c"]}}, "'c' is not in the prompt 'ab'"),
        (["ab"], {"roles": {"x": [""]}}, "'' is not in the prompt 'ab'"),
    ],
)
def test_bad_prompts_are_refused(
    model: LanguageModel, texts: list[str], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadInput, match=message):
        model.prompts(texts, **options)


def test_more_tokens_than_the_model_reads_are_refused(model: LanguageModel) -> None:
    with pytest.raises(BadInput, match=f"33 tokens; tiny reads at most {N_CTX}"):
        model(torch.zeros(1, N_CTX + 1, dtype=torch.int64))

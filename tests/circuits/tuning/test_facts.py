import math
from types import SimpleNamespace

import pytest
import torch

from circuits.tuning.facts import CHUNK, Fact, answer_scores, encode
from tests.random_models import D_VOCAB, letter_tokenizer, random_model
from trained.errors import BadInput

TOKENIZER = letter_tokenizer()
FACTS = [Fact("ab", "cd"), Fact("hello ", "w"), Fact("x", "yz.")]


def bigrams(table):
    """A model whose logits depend on the current token only."""

    def model(input_ids, **_options):
        return SimpleNamespace(logits=table[input_ids])

    return model


def test_answers_follow_prompts_and_padding_is_on_the_right():
    batch = encode(TOKENIZER, FACTS)
    words = [TOKENIZER.decode(row[real]) for row, real in zip(*batch[:2], strict=True)]
    assert [word.replace(" ", "") for word in words] == ["abcd", "hellow", "xyz."]
    assert batch.answers.sum(1).tolist() == [2, 1, 3]
    assert batch.mask.int().diff(dim=1).max() == 0


def test_scores_of_a_bigram_model_worked_by_hand():
    # p(c | b) = 1/2 and p(d | c) = 1/4, everything else even.
    a, b, c, d = TOKENIZER.convert_tokens_to_ids(list("abcd"))
    rest = D_VOCAB - 1
    table = torch.zeros(D_VOCAB, D_VOCAB)
    table[b, c] = math.log(rest)
    table[c, d] = math.log(rest / 3)
    table[c, a] = 9.0
    table[c] = table[c].where(torch.arange(D_VOCAB) != a, table[c, d] + 1)
    p_d = table[c].softmax(0)[d].item()

    scores = answer_scores(bigrams(table), encode(TOKENIZER, [Fact("ab", "cd")]))
    assert scores.logprob.item() == pytest.approx(math.log(0.5) + math.log(p_d))
    assert scores.rank.item() == 1
    assert scores.exact.item() == 0  # d is only second after c

    alone = answer_scores(bigrams(table), encode(TOKENIZER, [Fact("ab", "c")]))
    assert alone.exact.item() == 1


def test_a_model_that_knows_nothing_has_the_middle_rank_and_no_match():
    even = bigrams(torch.zeros(D_VOCAB, D_VOCAB))
    scores = answer_scores(even, encode(TOKENIZER, FACTS))
    assert scores.rank.tolist() == [(D_VOCAB + 1) / 2] * 3
    assert scores.exact.tolist() == [0, 0, 0]
    assert scores.logprob.tolist() == pytest.approx(
        [-n * math.log(D_VOCAB) for n in (2, 1, 3)]
    )


@torch.no_grad()
@pytest.mark.parametrize("family", ["gpt2", "llama", "gemma2"])
def test_scores_do_not_depend_on_the_company(family):
    model = random_model(family)
    facts = FACTS * (CHUNK // 2)
    together = answer_scores(model, encode(TOKENIZER, facts))
    for i, fact in enumerate(FACTS):
        alone = answer_scores(model, encode(TOKENIZER, [fact]))
        for one, all_of_them in zip(alone, together, strict=True):
            torch.testing.assert_close(one[0], all_of_them[i], atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_the_exact_match_is_what_greedy_decoding_writes():
    model = random_model("llama")
    prompt = TOKENIZER("hello", return_tensors="pt")["input_ids"]
    written = model.generate(
        prompt, max_new_tokens=3, do_sample=False, pad_token_id=0, eos_token_id=None
    )[0, prompt.shape[1] :]
    batch = encode(TOKENIZER, [Fact("hello", "abc")])
    batch.tokens[batch.answers] = written
    assert answer_scores(model, batch).exact.item() == 1
    batch.tokens[0, -1] = (written[-1] + 1) % D_VOCAB
    assert answer_scores(model, batch).exact.item() == 0


@pytest.mark.parametrize("facts", [[], [Fact("", "a")], [Fact("a", "")]])
def test_facts_without_tokens_are_refused(facts):
    with pytest.raises(BadInput, match=r"empty|has no token"):
        encode(TOKENIZER, facts)

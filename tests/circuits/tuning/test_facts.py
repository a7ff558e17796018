import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional

from circuits.tuning.facts import CHUNK, Fact, answer_scores, encode, rows_to_run
from tests.random_models import D_VOCAB, letter_tokenizer, random_model
from trained.errors import BadInput

TOKENIZER = letter_tokenizer()
FACTS = [Fact("ab", "cd"), Fact("hello ", "w"), Fact("x", "yz.")]


class Bigrams(nn.Module):
    """A model whose logits depend on the current token only."""

    def __init__(self, table):
        super().__init__()
        self.head = nn.Linear(*table.T.shape, bias=False)
        self.head.weight.data = table.T

    def get_output_embeddings(self):
        return self.head

    def forward(self, input_ids, **_options):
        one_hot = functional.one_hot(input_ids, D_VOCAB).float()
        return SimpleNamespace(logits=self.head(one_hot).detach())


def whole_scores(model, tokenizer, fact):
    """Log-probability, rank and exact match of one fact, from all its logits."""
    prompt = tokenizer(fact.prompt)["input_ids"]
    answer = tokenizer(fact.answer, add_special_tokens=False)["input_ids"]
    with torch.no_grad():
        logits = model(torch.tensor([prompt + answer])).logits[0].float()
    before = logits[len(prompt) - 1 : -1]
    logprob = sum(
        row.log_softmax(0)[t].item() for row, t in zip(before, answer, strict=True)
    )
    rank = 1 + (before[0] > before[0, answer[0]]).sum().item()
    return logprob, rank, float(before.argmax(-1).tolist() == answer)


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

    scores = answer_scores(Bigrams(table), encode(TOKENIZER, [Fact("ab", "cd")]))
    assert scores.logprob.item() == pytest.approx(math.log(0.5) + math.log(p_d))
    assert scores.rank.item() == 1
    assert scores.exact.item() == 0  # d is only second after c

    alone = answer_scores(Bigrams(table), encode(TOKENIZER, [Fact("ab", "c")]))
    assert alone.exact.item() == 1


def test_a_model_that_knows_nothing_has_the_middle_rank_and_no_match():
    even = Bigrams(torch.zeros(D_VOCAB, D_VOCAB))
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


LETTERS = "abcdefghijklmnopqrstuvwxyz"
MIXED = [
    Fact(LETTERS[: 1 + 7 * i % 23], LETTERS[: 1 + i % 3]) for i in range(3 * CHUNK)
]
SHARED = [Fact("hello", word) for word in ("a", "b", "ab", "abc", "b")] + [
    Fact("hell", "o"),
    Fact("x", "yz"),
]


@pytest.mark.parametrize("family", ["gpt2", "llama", "gemma2", "granite"])
def test_scores_are_those_of_whole_passes_fact_by_fact(family):
    model, facts = random_model(family), MIXED + SHARED
    scores = answer_scores(model, encode(TOKENIZER, facts))
    expected = zip(*(whole_scores(model, TOKENIZER, f) for f in facts), strict=True)
    for found, want in zip(scores, expected, strict=True):
        torch.testing.assert_close(found, torch.tensor(want).float(), atol=1e-5, rtol=0)


def test_what_begins_another_row_is_not_run_again():
    rows, row_of = rows_to_run(encode(TOKENIZER, SHARED))
    texts = [TOKENIZER.decode(row).replace(" ", "") for row in rows]
    assert texts == ["xy", "helloab"]
    assert row_of.tolist() == [1, 1, 1, 1, 1, 1, 0]


@torch.no_grad()
def test_only_what_is_read_is_run_and_unembedded():
    model, seen, unembedded = random_model("llama"), [], []
    model.get_input_embeddings().register_forward_hook(
        lambda _m, inputs, _out: seen.append(inputs[0].numel())
    )
    model.get_output_embeddings().register_forward_hook(
        lambda _m, _in, out: unembedded.append(len(out))
    )
    answer_scores(model, encode(TOKENIZER, SHARED))
    # Two rows of 7, the longest; after x, y, hell, hello, helloa and helloab.
    assert (seen, unembedded) == ([2 * 7], [6])
    seen.clear()
    batch = encode(TOKENIZER, MIXED)
    answer_scores(model, batch)
    assert sum(seen) < 0.7 * batch.tokens.numel()


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

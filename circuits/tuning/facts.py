"""Facts for a language model: a prompt and the answer that should follow it.

    Fact("The capital of France is", " Paris")

An answer may be several tokens long. It is tokenised apart from its prompt, as it
would be generated, so it begins with the space that separates them.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from trained.errors import BadInput
from trained.interrupts import Holding

CHUNK = 16
"""Facts in one forward pass of a measurement."""


class Fact(NamedTuple):
    """A prompt and its answer."""

    prompt: str
    answer: str


Lists = Mapping[str, Sequence[Fact]]
"""Facts by the name of their list."""


@dataclass(frozen=True)
class Curriculum:
    """The order in which lists are trained on: phases, each of one or more lists.

    Curriculum("joint", (("similarity", "attribution"),))
    Curriculum("SA", (("similarity",), ("attribution",)))
    """

    name: str
    phases: tuple[tuple[str, ...], ...]

    @property
    def trained(self) -> set[str]:
        """The lists that some phase trains on."""
        return {name for phase in self.phases for name in phase}


class FactBatch(NamedTuple):
    """Tokenised facts, padded on the right; axes [fact, pos]."""

    tokens: Tensor
    mask: Tensor
    """True at real tokens."""
    answers: Tensor
    """True at tokens of the answer."""


class Scores(NamedTuple):
    """How well a model gives each answer; axes [fact].

    Attributes:
        logprob: log p(answer | prompt), summed over the answer's tokens, in nats.
        rank: of the answer's first token, 1 for the most probable; ties share the
            middle of their ranks.
        exact: 1 if greedy decoding gives the answer, else 0.
    """

    logprob: Tensor
    rank: Tensor
    exact: Tensor


def encode(tokenizer: Any, facts: Sequence[Fact]) -> FactBatch:
    """Tokenise facts and pad them to one length."""
    if not facts:
        raise BadInput("a list of facts is empty")
    prompts = [tokenizer(fact.prompt)["input_ids"] for fact in facts]
    answers = [
        tokenizer(fact.answer, add_special_tokens=False)["input_ids"] for fact in facts
    ]
    for fact, prompt, answer in zip(facts, prompts, answers, strict=True):
        if not prompt or not answer:
            raise BadInput(f"{fact} has no token in its prompt or its answer")
    rows = [p + a for p, a in zip(prompts, answers, strict=True)]
    tokens = torch.zeros(len(facts), max(map(len, rows)), dtype=torch.long)
    mask, is_answer = torch.zeros_like(tokens).bool(), torch.zeros_like(tokens).bool()
    for i, (row, prompt) in enumerate(zip(rows, prompts, strict=True)):
        tokens[i, : len(row)] = torch.tensor(row)
        mask[i, : len(row)] = True
        is_answer[i, len(prompt) : len(row)] = True
    return FactBatch(tokens, mask, is_answer)


def answer_scores(model: Any, facts: FactBatch) -> Scores:
    """How well a model gives each answer; facts are on the host, and so are scores."""
    fact, place = facts.answers.nonzero(as_tuple=True)
    rows, row_of = rows_to_run(facts)
    labels = facts.tokens[fact, place]
    logprob, above, level = _said(model, rows, row_of[fact], place - 1, labels)
    zeros = torch.zeros(len(facts.tokens))
    first = fact.diff(prepend=fact.new_tensor([-1])) > 0
    wrong = zeros.index_add(0, fact, (above + level > 1).to(zeros))
    return Scores(
        logprob=zeros.index_add(0, fact, logprob),
        rank=(above + (level + 1) / 2)[first],
        exact=(wrong == 0).to(zeros),
    )


def rows_to_run(
    facts: FactBatch,
) -> tuple[list[tuple[int, ...]], Int[Tensor, " fact"]]:
    """Rows of tokens, by length, and for each fact one that begins with its own.

    An answer's last token need not be run, and what begins another row not again: all
    answers of one token that a prompt is asked for are read from one row.
    """
    lengths = (facts.mask.sum(1) - 1).tolist()
    pairs = zip(facts.tokens.tolist(), lengths, strict=True)
    inputs = [tuple(row[:length]) for row, length in pairs]
    longest: tuple[int, ...] = ()
    holders = {}
    for own in sorted(set(inputs), reverse=True):
        # What begins with `own` comes right before it in this order.
        if longest[: len(own)] != own:
            longest = own
        holders[own] = longest
    rows = sorted(dict.fromkeys(holders.values()), key=len)
    numbers = {row: number for number, row in enumerate(rows)}
    return rows, torch.tensor([numbers[holders[own]] for own in inputs])


@torch.no_grad()
def _said(
    model: Any,
    rows: Sequence[tuple[int, ...]],
    row: Int[Tensor, " token"],
    place: Int[Tensor, " token"],
    labels: Int[Tensor, " token"],
) -> Float[Tensor, "3 token"]:
    """What is said of labels after places of rows: see `_placed`."""
    found = torch.empty(3, len(labels))
    for start in range(0, len(rows), CHUNK):
        several = rows[start : start + CHUNK]
        own = ((row >= start) & (row < start + CHUNK)).nonzero().squeeze(1)
        # Answers to one prompt share the logits after it.
        both = torch.stack([row[own] - start, place[own]])
        spots, spot = torch.unique(both, dim=1, return_inverse=True)
        logits = _logits_at(model, several, *spots)
        found[:, own] = _placed(logits, spot.to(logits.device), labels[own]).cpu()
    return found


def _logits_at(
    model: Any,
    rows: Sequence[tuple[int, ...]],
    row: Int[Tensor, " spot"],
    place: Int[Tensor, " spot"],
) -> Float[Tensor, "spot d_vocab"]:
    """The logits after some places of rows, which are padded on the right."""
    device = next(model.parameters()).device
    tokens = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.long)
    mask = torch.zeros_like(tokens).bool()
    for number, own in enumerate(rows):
        tokens[number, : len(own)] = torch.tensor(own)
        mask[number, : len(own)] = True
    with unembedding_at(model, row.to(device), place.to(device)):
        return logits_of(model, tokens.to(device), mask.to(device)).float()


def _placed(
    logits: Float[Tensor, "spot d_vocab"],
    spot: Int[Tensor, " token"],
    labels: Int[Tensor, " token"],
) -> Float[Tensor, "3 token"]:
    """The log-probability of labels; how many logits are above theirs, how many equal.

    A few at a time: many answers may be asked for after one spot.
    """
    total, found = logits.logsumexp(1), []
    pairs = zip(*(torch.split(t, CHUNK) for t in (spot, labels.to(spot))), strict=True)
    for at, label in pairs:
        several = logits[at]
        own = several.gather(1, label[:, None])
        counts = (several > own).sum(1), (several == own).sum(1)
        found.append(torch.stack([own.squeeze(1) - total[at], *counts]))
    return torch.cat(found, 1)


@contextmanager
def unembedding_at(
    model: Any, fact: Int[Tensor, " place"], place: Int[Tensor, " place"]
) -> Iterator[None]:
    """Unembed some places only: the logits are [place, d_vocab]."""

    def narrow(_module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (inputs[0][fact, place],)

    with Holding() as held:
        held.add(model.get_output_embeddings().register_forward_pre_hook, narrow)
        yield


def logits_of(
    model: Any, tokens: Int[Tensor, "fact pos"], mask: Bool[Tensor, "fact pos"]
) -> Float[Tensor, "..."]:
    """What a transformers model says to right-padded tokens."""
    answer = model(input_ids=tokens, attention_mask=mask.long(), use_cache=False)
    logits: Tensor = answer.logits
    return logits

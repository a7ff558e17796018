"""Facts for a language model: a prompt and the answer that should follow it.

    Fact("The capital of France is", " Paris")

An answer may be several tokens long. It is tokenised apart from its prompt, as it
would be generated, so it begins with the space that separates them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from trained.errors import BadInput

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
    """How well a model gives each answer."""
    chunks = zip(*(torch.split(tensor, CHUNK) for tensor in facts), strict=True)
    parts = [_scores(model, FactBatch(*chunk)) for chunk in chunks]
    return Scores(*(torch.cat(column) for column in zip(*parts, strict=True)))


def _scores(model: Any, facts: FactBatch) -> Scores:
    fact, logits, labels = _at_answers(model, facts)
    own = logits.gather(1, labels[:, None])
    above, level = (logits > own).sum(1), (logits == own).sum(1)
    logprob = (own - logits.logsumexp(1, keepdim=True)).squeeze(1)
    zeros = logits.new_zeros(len(facts.tokens))
    first = fact.diff(prepend=fact.new_tensor([-1])) > 0
    wrong = zeros.index_add(0, fact, (above + level > 1).to(zeros))
    return Scores(
        logprob=zeros.index_add(0, fact, logprob),
        rank=(above + (level + 1) / 2)[first].to(zeros),
        exact=(wrong == 0).to(zeros),
    )


def _at_answers(model: Any, facts: FactBatch) -> tuple[Tensor, Tensor, Tensor]:
    """For every token of an answer its fact, the logits before it, and itself."""
    logits = logits_of(model, facts.tokens, facts.mask)
    fact, place = facts.answers.nonzero(as_tuple=True)
    return fact, logits[fact, place - 1].float(), facts.tokens[fact, place]


def logits_of(
    model: Any, tokens: Int[Tensor, "fact pos"], mask: Bool[Tensor, "fact pos"]
) -> Float[Tensor, "..."]:
    """What a transformers model says to right-padded tokens."""
    answer = model(input_ids=tokens, attention_mask=mask.long(), use_cache=False)
    logits: Tensor = answer.logits
    return logits

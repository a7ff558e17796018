"""Facts for a language model: a prompt and the answer that should follow it.

    Fact("The capital of France is", " Paris")

An answer may be several tokens long. It is tokenised apart from its prompt, as it
would be generated, so it begins with the space that separates them.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from .errors import BadInput

CHUNK = 16
"""Facts in one forward pass of a measurement."""


class Fact(NamedTuple):
    """A prompt and its answer."""

    prompt: str
    answer: str


class FactBatch(NamedTuple):
    """Tokenised facts, padded on the right; axes [*seed, fact, pos]."""

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


def answer_loss(model: Any, facts: FactBatch) -> Float[Tensor, ""]:
    """-log p of the answers' tokens, each given all tokens before it; their mean."""
    _, logits, labels = _at_answers(model, facts)
    return functional.cross_entropy(logits, labels)


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
    logits = model(
        input_ids=facts.tokens, attention_mask=facts.mask.long(), use_cache=False
    ).logits
    fact, place = facts.answers.nonzero(as_tuple=True)
    return fact, logits[fact, place - 1].float(), facts.tokens[fact, place]


class ResumedBatch(NamedTuple):
    """Facts, and the residual stream after the frozen blocks."""

    facts: FactBatch
    residual: Tensor
    """[*seed, fact, pos, d_model]"""


def block_list(model: nn.Module) -> tuple[str, nn.ModuleList]:
    """The blocks of a transformers model, and the name that they have in it."""
    config: Any = model.config
    n_layers: int = config.num_hidden_layers
    found = [
        (name, module)
        for name, module in model.named_modules()
        if isinstance(module, nn.ModuleList) and len(module) == n_layers
    ]
    if len(found) != 1:
        raise BadInput(
            f"{type(model).__name__} has {len(found)} lists of {n_layers} blocks, not "
            "one; leave last_layers out"
        )
    return found[0]


@torch.no_grad()
def run_frozen(model: nn.Module, facts: FactBatch, n_frozen: int) -> ResumedBatch:
    """Run the frozen blocks, which come first, on every fact."""
    seen: list[Tensor] = []

    def keep(_block: nn.Module, inputs: tuple[Any, ...]) -> None:
        seen.append(inputs[0].cpu())

    device = next(model.parameters()).device
    hook = block_list(model)[1][n_frozen].register_forward_pre_hook(keep)
    try:
        for tokens, mask, _ in zip(
            *(torch.split(t, CHUNK) for t in facts), strict=True
        ):
            _logits(model, tokens.to(device), mask.to(device))
    finally:
        hook.remove()
    return ResumedBatch(facts, torch.cat(seen))


def resumed_loss(model: Any, batch: ResumedBatch, n_frozen: int) -> Float[Tensor, ""]:
    """The `answer_loss` of the facts, from the residual after the frozen blocks."""
    facts = batch.facts
    fact, place = facts.answers.nonzero(as_tuple=True)
    frozen = list(block_list(model)[1])[:n_frozen]
    with (
        _answering(frozen, batch.residual),
        _only_at(model.get_output_embeddings(), fact, place - 1),
    ):
        logits = _logits(model, facts.tokens, facts.mask)
    return functional.cross_entropy(logits.float(), facts.tokens[fact, place])


def _logits(model: Any, tokens: Tensor, mask: Tensor) -> Tensor:
    answer = model(input_ids=tokens, attention_mask=mask.long(), use_cache=False)
    logits: Tensor = answer.logits
    return logits


@contextmanager
def _answering(blocks: Sequence[nn.Module], residual: Tensor) -> Iterator[None]:
    """Let blocks answer with a given residual instead of computing."""

    def answer(*_args: Any, **_options: Any) -> Tensor:
        return residual

    with ExitStack() as stack:
        for block in blocks:
            block.forward = answer
            stack.callback(delattr, block, "forward")
        yield


@contextmanager
def _only_at(
    unembedding: nn.Module, fact: Int[Tensor, " place"], place: Int[Tensor, " place"]
) -> Iterator[None]:
    """Unembed some places only: the logits are [place, d_vocab]."""

    def narrow(_module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (inputs[0][fact, place],)

    hook = unembedding.register_forward_pre_hook(narrow)
    try:
        yield
    finally:
        hook.remove()

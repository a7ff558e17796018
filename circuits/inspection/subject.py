"""The prompt under inspection: its tokens and the answer that is followed."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.models.language_model import LanguageModel
from circuits.models.prompts import Prompts

TOP = 5
"""Most likely next tokens that are reported."""


@dataclass(frozen=True)
class Subject:
    """A model, a prompt and the token whose fate is followed through the layers."""

    model: LanguageModel
    text: str
    prompts: Prompts
    answer: int
    answer_source: str
    """`asked for`, or `the model's own` if no answer was given."""
    top: tuple[tuple[str, float], ...]
    """The model's most likely next tokens and their probabilities."""

    @property
    def tokens(self) -> list[str]:
        """The prompt's tokens as text."""
        return [self.show(token) for token in self.prompts.tokens[0].tolist()]

    @property
    def places(self) -> tuple[str, ...]:
        """Labels for the prompt's positions, each different."""
        return tuple(f"{i} {token}" for i, token in enumerate(self.tokens))

    def show(self, token: int) -> str:
        """A token as text, with white space made visible."""
        return visible(self.model.tokenizer.decode([token]))


def visible(text: str) -> str:
    r"""White space that a reader can see.

    >>> visible(" Paris"), visible("\n")
    ('·Paris', '\\n')
    """
    escaped = text.replace("\n", "\\n").replace("\t", "\\t")
    return escaped.replace(" ", "·")


@torch.no_grad()
def look_at(model: LanguageModel, text: str, answer: str | None = None) -> Subject:
    """Run the model once on a prompt and settle which answer is followed."""
    prompts = model.prompts([text])
    chosen = None if answer is None else model.token(answer)
    probabilities = _next(model, prompts)
    values, tokens = probabilities.topk(min(TOP, len(probabilities)))
    top = tuple(
        (visible(model.tokenizer.decode([token])), value)
        for token, value in zip(tokens.tolist(), values.tolist(), strict=True)
    )
    source = "the model's own" if chosen is None else "asked for"
    followed = int(tokens[0]) if chosen is None else chosen
    return Subject(model, text, prompts, followed, source, top)


def _next(model: LanguageModel, prompts: Prompts) -> Float[Tensor, " d_vocab"]:
    logits = model(prompts.tokens, prompts.mask)
    return logits[0, prompts.last[0]].float().softmax(-1)

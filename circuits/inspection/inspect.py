"""One prompt through the signals that were asked for: readings and JSON."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from circuits.interventions.passes import answer_logits
from circuits.models.language_model import LanguageModel
from probes.measurement import Measurement
from trained.errors import BadInput, unknown
from trained.task import Batch

from .alignment import alignment_with_last
from .attention import AttentionReading, read_attention
from .lens import LensReading, lens
from .patching import patch
from .request import DEFAULT_SIGNALS, SIGNALS
from .subject import answered, show, shown_tokens

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCHEMA = 1

FEWEST_TOKENS = 3
"""The first is where attention rests, the last is what looks."""

TOP = 5
"""Most likely next tokens that are reported."""


@dataclass(frozen=True)
class Inspection:
    """The readings of one prompt; a signal that was not asked for is None.

    The answer's rank and log-probability by layer are always read.
    """

    model: LanguageModel
    text: str
    prompt: Batch
    """With the answer that is followed."""
    answer_source: str
    """`asked for`, or `the model's own` if no answer was given."""
    top: tuple[tuple[str, float], ...]
    """The model's most likely next tokens and their probabilities."""
    lens: LensReading
    attention: AttentionReading | None = None
    alignment: Measurement | None = None
    patching: Measurement | None = None

    @property
    def answer(self) -> str:
        """The answer that is followed, with visible white space."""
        return show(self.model, int(self.prompt.targets[0]))

    def figures(self) -> "dict[str, Figure]":
        """Every figure of the readings, by name."""
        from .figures import all_figures

        return dict(all_figures(self))

    def as_dict(self) -> dict[str, Any]:
        """The object that the command writes."""
        found: dict[str, Any] = {
            "schema": SCHEMA,
            "model": self.model.name,
            "prompt": self.text,
            "tokens": shown_tokens(self.model, self.prompt),
            "answer": self.model.tokenizer.decode(self.prompt.targets),
            "answer_source": self.answer_source,
            "top_tokens": [{"token": t, "probability": p} for t, p in self.top],
            "layers": list(self.lens.rank.labels["layer"]),
            "answer_rank": self.lens.rank.values[:, 0].tolist(),
            "answer_logprob": self.lens.log_prob.values[:, 0].tolist(),
            "lens_top_tokens": [list(row) for row in self.lens.tokens],
        }
        if self.attention is not None:
            found["attention"] = {
                "axes": ["layer", "head", "key"],
                "last_row": self.attention.last_row.values.tolist(),
                "strongest_heads": list(self.attention.patterns.labels["head"]),
            }
        for name in ("alignment", "patching"):
            grid = getattr(self, name)
            if grid is not None:
                found[name] = {"axes": list(grid.axes), "values": grid.values.tolist()}
        return found


def inspect(
    model: LanguageModel,
    prompt: str,
    *,
    answer: str | None = None,
    corrupt: str | None = None,
    signals: Collection[str] = DEFAULT_SIGNALS,
) -> Inspection:
    """Take the readings that are asked for on one prompt.

    Args:
        model: a language model.
        prompt: its text, at least three tokens.
        answer: the token to follow; None for what the model says.
        corrupt: a prompt with as many tokens and another answer: what restores the
            answer when it is patched from the prompt into this one?
        signals: of "lens", "attention", "alignment" and "patching".
    """
    for signal in signals:
        if signal not in SIGNALS:
            raise unknown("signal", signal, SIGNALS)
    given = model.prompts([prompt], None if answer is None else [answer])
    n_tokens = given.tokens.shape[1]
    if n_tokens < FEWEST_TOKENS:
        raise BadInput(
            f"the prompt {prompt!r} has {n_tokens} tokens; give at "
            f"least {FEWEST_TOKENS}, so that the last has something to look at"
        )
    own = answered(model, given)
    return Inspection(
        model=model,
        text=prompt,
        prompt=own,
        answer_source="the model's own" if answer is None else "asked for",
        top=_next_tokens(model, own),
        lens=lens(model, own),
        attention=read_attention(model, own) if "attention" in signals else None,
        alignment=alignment_with_last(model, own) if "alignment" in signals else None,
        patching=None if corrupt is None else _patched(model, own, corrupt),
    )


def _patched(model: LanguageModel, clean: Batch, text: str) -> Measurement:
    corrupt = model.prompts([text])
    if corrupt.tokens.shape != clean.tokens.shape:
        raise BadInput(
            f"the corrupt prompt has {corrupt.tokens.shape[1]} tokens, the prompt "
            f"{clean.tokens.shape[1]}: patching needs as many"
        )
    return patch(model, clean, corrupt, "resid_post")


@torch.no_grad()
def _next_tokens(model: LanguageModel, prompt: Batch) -> tuple[tuple[str, float], ...]:
    found = answer_logits(model, prompt)[0].float().softmax(-1)
    best = found.topk(min(TOP, len(found)))
    texts = [show(model, token) for token in best.indices.tolist()]
    return tuple(zip(texts, best.values.tolist(), strict=True))

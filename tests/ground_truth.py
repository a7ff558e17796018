"""Models wired by hand, whose circuit is known, and one where it is absent.

An intervention that finds these circuits and no others can be trusted elsewhere. All
are attention-only Decoders without norms or biases. Their residual is a row of named
subspaces: `token` and `position` hold one-hot embeddings, the others are written by
heads and read by later heads or the unembedding.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformer_lens import HookedRootModule
from transformer_lens.hook_points import HookPoint

from trained.decoder import Attention, Decoder, DecoderConfig

SHARPNESS = 30.0
"""Score of the key a wired head looks for; the others score 0."""
LOGIT = 10.0
"""What the answer's logit exceeds the others by."""


@dataclass(frozen=True)
class WiredHead:
    """A head that carries the answer from position `key` to position `query`."""

    layer: int
    head: int
    query: int
    key: int


@dataclass(frozen=True)
class GroundTruth:
    """A wired model, prompts with the answers at their last position, the circuit."""

    model: Decoder
    tokens: Int[Tensor, "batch pos"]
    targets: Int[Tensor, " batch"]
    circuit: tuple[WiredHead, ...]
    idle: tuple[tuple[int, int], ...]
    """(layer, head) of heads that write, but nothing that reaches the answer."""
    subspaces: Mapping[str, slice]


def copy_head_model() -> GroundTruth:
    """One layer; head 0 copies the token at position 1, head 1 is idle.

    Eight tokens, prompts of four different ones: [5, 2, 7, 0] -> 2. Head 0 finds
    position 1 by its position embedding from everywhere and moves `token` to
    `answer`, which the unembedding reads. Head 1 attends uniformly and adds the mean
    `token` to `scratch`, which nothing reads.
    """
    n, n_pos = 8, 4
    model, space = _blank(
        n, n_pos, n_layers=1, widths={"answer": n, "scratch": n}, d_head=n
    )
    attention = model.blocks[0].attn
    _look(attention, 0, space["position"], [0, 1, 1, 1])
    _move(attention, 0, space["token"], space["answer"], torch.eye(n))
    _move(attention, 1, space["token"], space["scratch"], torch.eye(n))
    model.unembedding.data[space["answer"]] = LOGIT * torch.eye(n)
    draws = torch.rand(32, n, generator=torch.Generator().manual_seed(0))
    tokens = draws.argsort(dim=-1)[:, :n_pos]
    circuit = (WiredHead(layer=0, head=0, query=3, key=1),)
    return GroundTruth(model, tokens, tokens[:, 1], circuit, ((0, 1),), space)


def two_hop_model(n: int = 6) -> GroundTruth:
    """Two layers that compose a_i -> b_(i+1) -> c_(i+3) for prompts [a, r1, r2].

    Tokens: a_i = i, b_i = n + i, c_i = 2n + i, r1 = 3n, r2 = 3n + 1. In layer 0,
    head 0 at r1 reads a and writes its bridge to `bridge`; in layer 1, head 0 at r2
    reads `bridge` at r1 and writes the object to `answer`. So after block 0 the
    answer hangs on position 1 alone; a patch of position 0 comes too late. The
    unembedding reads `bridge` as b tokens and `answer` as c tokens: the logit lens
    shows b at r1 before c at r2. Head 1 of both layers is idle.
    """
    model, space = _two_hop_blank(n)
    a_rows = slice(0, n)
    first, second = (block.attn for block in model.blocks)
    _look(first, 0, space["position"], [0, 0, 2])
    _move(first, 0, a_rows, space["bridge"], torch.eye(n).roll(1, dims=1))
    _look(second, 0, space["position"], [0, 0, 1])
    _move(second, 0, space["bridge"], space["answer"], torch.eye(n).roll(2, dims=1))
    for attention in (first, second):
        _move(attention, 1, a_rows, space["scratch"], torch.eye(n))
    tokens, targets = _two_hop_prompts(n)
    circuit = (WiredHead(0, 0, query=1, key=0), WiredHead(1, 0, query=2, key=1))
    return GroundTruth(model, tokens, targets, circuit, ((0, 1), (1, 1)), space)


def uninformed_model(n: int = 6) -> GroundTruth:
    """The shapes, prompts and targets of `two_hop_model`, with no circuit.

    Every head attends uniformly and moves `position` only, so what is written is the
    same for all prompts; r2 itself votes for c_0. The answer is always c_0: right for
    one prompt in n.
    """
    model, space = _two_hop_blank(n)
    for block in model.blocks:
        for head in range(2):
            _move(
                block.attn, head, space["position"], space["scratch"], torch.eye(3, n)
            )
    r2, c_0 = 3 * n + 1, 2 * n
    model.unembedding.data[r2, c_0] = LOGIT
    tokens, targets = _two_hop_prompts(n)
    idle = tuple((layer, head) for layer in range(2) for head in range(2))
    return GroundTruth(model, tokens, targets, (), idle, space)


def matching_model(n_symbols: int = 24, n_labels: int = 3) -> GroundTruth:
    """One layer; head 0 finds the key of the query's symbol by W_Q W_K^T = cI.

    Prompts [(s, l), (s', l'), (s'', l''), s'] -> l': three symbols with three labels,
    then one of the symbols alone. The query matches its symbol and itself, by halves,
    and head 0 writes the labels that it reads to `answer`. Head 1 is idle: it attends
    uniformly and writes to `scratch`, which nothing reads.
    """
    widths = {"symbol": n_symbols, "label": n_labels, "answer": n_labels, "scratch": 1}
    n_tokens = n_symbols * (n_labels + 1)
    model, space = _identity_blank(n_tokens, widths, n_out=n_labels)
    ids = torch.arange(n_tokens)
    symbol, label = ids % n_symbols, ids // n_symbols
    model.W_E.data[ids, symbol] = 1
    labelled = label < n_labels
    model.W_E.data[ids[labelled], n_symbols + label[labelled]] = 1
    attention = model.blocks[0].attn
    attention.W_Q.data[0] = SHARPNESS * torch.eye(model.config.d_model)
    attention.W_K.data[0] = torch.eye(model.config.d_model)
    _move(attention, 0, space["label"], space["answer"], torch.eye(n_labels))
    _move(attention, 1, slice(0, 1), space["scratch"], torch.eye(1))
    model.unembedding.data[space["answer"]] = LOGIT * torch.eye(n_labels)
    source = torch.Generator().manual_seed(0)
    symbols = torch.rand(32, n_symbols, generator=source).argsort(-1)[:, :3]
    labels = torch.rand(32, n_labels, generator=source).argsort(-1)[:, :3]
    asked = torch.randint(3, (32, 1), generator=source)
    query = symbols.gather(1, asked) + n_labels * n_symbols
    tokens = torch.cat([symbols + n_symbols * labels, query], dim=1)
    targets = labels.gather(1, asked)[:, 0]
    return GroundTruth(model, tokens, targets, (), ((0, 1),), space)


def copying_model(n: int = 24) -> GroundTruth:
    """One layer; head 0 attends uniformly and copies what it reads by W_V W_O = cI.

    Prompts [x, x, x, y] -> x: three quarters of what the head reads are x, and it
    speaks four times as loud as y's own residual. Head 1 writes nothing.
    """
    model, space = _identity_blank(n, {"token": n}, n_out=n)
    model.W_E.data[:] = torch.eye(n)
    attention = model.blocks[0].attn
    attention.W_V.data[0] = 4 * torch.eye(n)
    attention.W_O.data[0] = torch.eye(n)
    model.unembedding.data[:] = LOGIT * torch.eye(n)
    x = torch.arange(n)
    tokens = torch.stack([x, x, x, (x + 1) % n], dim=1)
    return GroundTruth(model, tokens, x, (), ((0, 1),), space)


class OneQueryModel(HookedRootModule):
    """Only the last token asks, as in the papers' minimal blocks; random weights."""

    def __init__(self, n_tokens: int = 16, seed: int = 0) -> None:
        super().__init__()
        source = torch.Generator().manual_seed(seed)
        self.embedding = nn.Parameter(torch.randn(n_tokens, 8, generator=source))
        attention = nn.ModuleDict({"hook_pattern": HookPoint()})
        self.blocks = nn.ModuleList([nn.ModuleDict({"attn": attention})])
        self.hook_logits = HookPoint()
        self.setup()

    def forward(
        self, tokens: Int[Tensor, "batch pos"]
    ) -> Float[Tensor, "batch 1 d_vocab"]:
        """The logits after the last token."""
        states = self.embedding[tokens]
        scores = states[:, None, -1:] @ states[:, None].mT
        pattern = self.blocks[0]["attn"]["hook_pattern"](scores.softmax(-1))
        read = (pattern @ states[:, None])[:, 0]
        return self.hook_logits(read @ self.embedding.mT)


def accuracy(truth: GroundTruth, logits: Float[Tensor, "batch pos d_vocab"]) -> float:
    """Share of prompts whose largest logit at the last position is the target."""
    return (logits[:, -1].argmax(dim=-1) == truth.targets).double().mean().item()


def _two_hop_blank(n: int) -> tuple[Decoder, dict[str, slice]]:
    widths = {"bridge": n, "answer": n, "scratch": n}
    model, space = _blank(3 * n + 2, 3, n_layers=2, widths=widths, d_head=n)
    model.unembedding.data[space["bridge"], n : 2 * n] = LOGIT * torch.eye(n)
    model.unembedding.data[space["answer"], 2 * n : 3 * n] = LOGIT * torch.eye(n)
    return model, space


def _two_hop_prompts(
    n: int,
) -> tuple[Int[Tensor, "batch pos"], Int[Tensor, " batch"]]:
    subjects = torch.arange(n)
    relations = torch.tensor([3 * n, 3 * n + 1]).expand(n, 2)
    tokens = torch.cat([subjects[:, None], relations], dim=1)
    return tokens, 2 * n + (subjects + 3) % n


def _blank(
    d_vocab: int, n_pos: int, *, n_layers: int, widths: Mapping[str, int], d_head: int
) -> tuple[Decoder, dict[str, slice]]:
    """A model of zero weights, except one-hot embeddings, and its subspaces."""
    space, start = {}, 0
    for name, width in {"token": d_vocab, "position": n_pos, **widths}.items():
        space[name] = slice(start, start + width)
        start += width
    config = DecoderConfig(
        d_vocab=d_vocab,
        d_model=start,
        n_layers=n_layers,
        n_heads=2,
        n_ctx=n_pos,
        d_head=d_head,
        d_mlp=0,
        norm="none",
        biases="none",
        head="untied",
        score_scale=1.0,
    )
    model = Decoder(config, generator=torch.Generator().manual_seed(0))
    for parameter in model.parameters():
        parameter.data.zero_()
    model.W_E.data[:, space["token"]] = torch.eye(d_vocab)
    model.W_pos.data[:, space["position"]] = torch.eye(n_pos)
    return model, space


def _identity_blank(
    n_tokens: int, widths: Mapping[str, int], *, n_out: int
) -> tuple[Decoder, dict[str, slice]]:
    """One layer of zero weights without positions; heads as wide as the residual."""
    space, start = {}, 0
    for name, width in widths.items():
        space[name] = slice(start, start + width)
        start += width
    config = DecoderConfig(
        d_vocab=n_tokens,
        d_model=start,
        n_layers=1,
        n_heads=2,
        n_ctx=4,
        d_vocab_out=n_out,
        d_head=start,
        d_mlp=0,
        positions="none",
        norm="none",
        biases="none",
        head="untied",
        score_scale=1.0,
    )
    model = Decoder(config, generator=torch.Generator().manual_seed(0))
    for parameter in model.parameters():
        parameter.data.zero_()
    return model, space


def _look(
    attention: Attention, head: int, position: slice, keys: Sequence[int]
) -> None:
    """Let each position attend to the one given for it; uses n_pos of d_head."""
    n_pos = len(keys)
    wanted = torch.nn.functional.one_hot(torch.tensor(keys), n_pos)
    attention.W_Q.data[head, position, :n_pos] = SHARPNESS * wanted.float()
    attention.W_K.data[head, position, :n_pos] = torch.eye(n_pos)


def _move(
    attention: Attention,
    head: int,
    read: slice,
    write: slice,
    table: Float[Tensor, "read write"],
) -> None:
    """Let a head map one subspace of what it attends to into another."""
    width = table.shape[0]
    attention.W_V.data[head, read, :width] = torch.eye(width)
    attention.W_O.data[head, :width, write] = table

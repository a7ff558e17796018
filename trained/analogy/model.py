"""The study's own models: the one-layer block and the deep linear network.

The block is attention over two tokens, a value map and a feature layer:

    s = softmax(X^T W z_r),   h = V X s,   f_k = (scale / m) sum_r act(<w_kr, h>)

for a prompt X = [z_e, z_r] of frozen orthonormal embeddings; no residual, no
positions, no norm (`scale` stands in for it). Section 3 of "Feature Resemblance".
`LinearBlock` keeps only the mean w_k of a class's m neurons: the linear model depends
on nothing else, and the mean moves as if its rate were 1 / m of each neuron's.
`ReluBlock` keeps all neurons. GPT-2 is the shared decoder.
"""

from collections.abc import Sequence
from typing import cast

import torch
from einops import einsum, rearrange
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn
from transformer_lens import HookedRootModule
from transformer_lens.hook_points import HookPoint

from .config import Linear

ATTENTION = ("blocks.0.attn.*",)
"""The parameters W and V, as a stage names them."""
HEAD = ("head",)


class _Attention(nn.Module):
    """One query, the last token; values are hooked before they are mixed."""

    def __init__(self, d_model: int, std: float, generator: Generator) -> None:
        super().__init__()
        self.W_KQ = nn.Parameter(
            std * torch.randn(d_model, d_model, generator=generator)
        )
        self.W_V = nn.Parameter(
            std * torch.randn(d_model, d_model, generator=generator)
        )
        self.hook_attn_scores, self.hook_pattern = HookPoint(), HookPoint()
        self.hook_v = HookPoint()

    def forward(
        self, x: Float[Tensor, "batch pos d_model"]
    ) -> Float[Tensor, "batch 1 d_model"]:
        query = x[:, -1] @ self.W_KQ.mT
        scores = einsum(x, query, "batch pos d, batch d -> batch pos")
        scores = self.hook_attn_scores(rearrange(scores, "batch pos -> batch 1 1 pos"))
        pattern = self.hook_pattern(scores.softmax(-1))
        values = self.hook_v(rearrange(x @ self.W_V.mT, "batch pos d -> batch pos 1 d"))
        return einsum(pattern, values, "batch h q k, batch k h d -> batch q d")


class _Layer(nn.Module):
    """The attention with the hook point of its output."""

    def __init__(self, d_model: int, std: float, generator: Generator) -> None:
        super().__init__()
        self.attn = _Attention(d_model, std, generator)
        self.hook_resid_pre, self.hook_attn_out = HookPoint(), HookPoint()

    def forward(
        self, x: Float[Tensor, "batch pos d_model"]
    ) -> Float[Tensor, "batch 1 d_model"]:
        return self.hook_attn_out(self.attn(self.hook_resid_pre(x)))


class Block(HookedRootModule):
    """What the linear and the ReLU block share: everything below the feature layer."""

    W_E: Tensor

    def __init__(
        self,
        d_vocab: int,
        d_model: int,
        *,
        scale: float,
        std: float,
        generator: Generator,
    ) -> None:
        super().__init__()
        self.scale = scale
        draw = torch.randn(d_model, d_vocab, generator=generator)
        embedding = torch.linalg.qr(draw).Q.mT.contiguous()
        # A function of the seed alone, so a stored run need not hold it.
        self.register_buffer("W_E", embedding, persistent=False)
        layers = nn.ModuleList([_Layer(d_model, std, generator)])
        self.blocks = cast(Sequence[_Layer], layers)
        self.hook_embed, self.hook_logits = HookPoint(), HookPoint()

    def forward(
        self, tokens: Int[Tensor, "batch pos"]
    ) -> Float[Tensor, "batch 1 d_vocab"]:
        """Logits of the answer."""
        return self.hook_logits(self.readout(self.features(tokens)))

    def features(
        self, tokens: Int[Tensor, "batch pos"]
    ) -> Float[Tensor, "batch 1 d_model"]:
        """The attended values h, which the feature layer reads."""
        return self.blocks[0](self.hook_embed(self.W_E[tokens]))

    def readout(
        self, features: Float[Tensor, "batch 1 d_model"]
    ) -> Float[Tensor, "batch 1 d_vocab"]:
        """Logits of the features."""
        raise NotImplementedError

    def value_vectors(
        self, entities: Int[Tensor, " entity"]
    ) -> Float[Tensor, "entity d_model"]:
        """V z of tokens: the representation that the paper compares."""
        return self.W_E[entities] @ self.blocks[0].attn.W_V.mT


class LinearBlock(Block):
    """Linear feature layer; `head` holds the mean neuron of every class."""

    def __init__(
        self,
        d_vocab: int,
        d_model: int,
        *,
        n_neurons: int,
        std: float,
        generator: Generator,
    ) -> None:
        scale = d_model**0.5
        super().__init__(d_vocab, d_model, scale=scale, std=std, generator=generator)
        draw = torch.randn(d_vocab, d_model, generator=generator)
        self.head = nn.Parameter(std * n_neurons**-0.5 * draw)
        self.setup()

    def readout(
        self, features: Float[Tensor, "batch 1 d_model"]
    ) -> Float[Tensor, "batch 1 d_vocab"]:
        """f_k = scale <w_k, h>."""
        return self.scale * features @ self.head.mT


class ReluBlock(Block):
    """ReLU feature layer with m neurons per class (Table 4)."""

    def __init__(
        self,
        d_vocab: int,
        d_model: int,
        *,
        n_neurons: int,
        scale: float,
        std: float,
        generator: Generator,
    ) -> None:
        super().__init__(d_vocab, d_model, scale=scale, std=std, generator=generator)
        draw = torch.randn(d_vocab, n_neurons, d_model, generator=generator)
        self.head = nn.Parameter(std * draw)
        self.setup()

    def readout(
        self, features: Float[Tensor, "batch 1 d_model"]
    ) -> Float[Tensor, "batch 1 d_vocab"]:
        """f_k = scale mean_r relu(<w_kr, h>)."""
        pre = features @ rearrange(self.head, "k r d -> d (k r)")
        post = rearrange(pre.relu(), "b q (k r) -> b q k r", r=self.head.shape[1])
        return self.scale * post.mean(-1)


class _Linear(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.W = nn.Parameter(torch.eye(width))
        self.hook_resid_pre, self.hook_resid_post = HookPoint(), HookPoint()

    def forward(
        self, x: Float[Tensor, "batch pos d_model"]
    ) -> Float[Tensor, "batch pos d_model"]:
        return self.hook_resid_post(self.hook_resid_pre(x) @ self.W.mT)


class DeepLinear(HookedRootModule):
    """f = W_L ... W_1 x: hidden layers that start as the identity, a fixed head.

    Inputs are orthonormal; the head has the first rows of the identity (Theorem 6).
    """

    W_E: Tensor
    head: Tensor

    def __init__(self, sizes: Linear, n_inputs: int, *, generator: Generator) -> None:
        super().__init__()
        width, n_labels = sizes.width, sizes.n_labels
        draw = torch.randn(width, n_inputs, generator=generator)
        inputs = torch.linalg.qr(draw).Q.mT.contiguous()
        self.register_buffer("W_E", inputs, persistent=False)
        self.register_buffer("head", torch.eye(n_labels, width), persistent=False)
        layers = nn.ModuleList([_Linear(width) for _ in range(sizes.layers - 1)])
        self.blocks = cast(Sequence[_Linear], layers)
        self.hook_logits = HookPoint()
        self.setup()

    def forward(
        self, tokens: Int[Tensor, "batch pos"]
    ) -> Float[Tensor, "batch pos label"]:
        """Logits of the labels of inputs given by number."""
        x = self.W_E[tokens]
        for block in self.blocks:
            x = block(x)
        return self.hook_logits(x @ self.head.mT)

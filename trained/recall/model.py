"""One attention layer over one-hot positions, then a quadratic associative memory.

    h = W_P (z_last + Z softmax(Z^T W_KQ z_last)),   f = V^T (W h)^2,   logits = Phi f

with z_i = (e_i ; phi(u_i)): positions are concatenated, the values and the residual
carry tokens only. Section 3 of "Fine-Tuning Dynamics of In-Context Factual Recall in
Transformers". Only the last query is ever used, so patterns have one query row.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F
from transformer_lens import HookedRootModule
from transformer_lens.hook_points import HookPoint

from trained.seeding import generator
from trained.softmax import over_keys
from trained.task import Batch

from .task import Table, Vocabulary


class RecallModel(HookedRootModule):
    """The paper's model; `W_KQ` and the memory are parameters."""

    def __init__(
        self,
        embedding: Float[Tensor, "d_vocab d_model"],
        n_positions: int,
        keys: Float[Tensor, "d_mlp d_model"],
        values: Float[Tensor, "d_mlp d_model"],
    ) -> None:
        super().__init__()
        self.W_E: Tensor
        self.register_buffer("W_E", embedding)
        width = n_positions + embedding.shape[1]
        block = Block(n_positions, width, keys=keys, values=values)
        self.blocks = nn.ModuleList([block])
        self.hook_embed = HookPoint()
        self.hook_logits = HookPoint()
        self.setup()

    def forward(
        self, tokens: Int[Tensor, "batch pos"]
    ) -> Float[Tensor, "batch 1 d_vocab"]:
        """Logits over the whole vocabulary after the last token."""
        embedded = self.hook_embed(self.W_E[tokens])
        return self.hook_logits(self.blocks[0](embedded) @ self.W_E.T)

    @property
    def W_KQ(self) -> nn.Parameter:
        """The merged key-query matrix, positions first, then the embedding."""
        return self.block.attn.W_KQ

    @property
    def memory(self) -> "QuadraticMemory":
        """The associative memory."""
        return self.block.mlp

    @property
    def n_examples(self) -> int:
        """The in-context examples that the positions have room for."""
        return (self.block.attn.n_positions - 3) // 2

    @property
    def block(self) -> "Block":
        """The one block."""
        block = self.blocks[0]
        assert isinstance(block, Block)
        return block

    @property
    def W_U(self) -> Float[Tensor, "d_model d_vocab"]:
        """The unembedding, for a logit lens."""
        return self.W_E.T


class Block(nn.Module):
    """Attention of the last token, then the memory."""

    def __init__(
        self, n_positions: int, width: int, *, keys: Tensor, values: Tensor
    ) -> None:
        super().__init__()
        self.attn = LastQueryAttention(n_positions, width, keys.dtype)
        self.mlp = QuadraticMemory(keys, values)
        self.hook_resid_pre = HookPoint()
        self.hook_attn_out = HookPoint()
        self.hook_resid_mid = HookPoint()
        self.hook_mlp_out = HookPoint()
        self.hook_resid_post = HookPoint()

    def forward(
        self, embedded: Float[Tensor, "batch pos d_model"]
    ) -> Float[Tensor, "batch 1 d_model"]:
        """The memory's answer to what the last token attended to."""
        residual = self.hook_resid_pre(embedded)
        attended = self.hook_attn_out(self.attn(residual))
        mid = self.hook_resid_mid(residual[:, -1:] + attended)
        # The memory's output replaces the residual: the paper has no second skip.
        return self.hook_resid_post(self.hook_mlp_out(self.mlp(mid)))


class LastQueryAttention(nn.Module):
    """The last token's attention by one merged key-query matrix."""

    def __init__(self, n_positions: int, width: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.n_positions = n_positions
        self.W_KQ = nn.Parameter(torch.zeros(width, width, dtype=dtype))
        self.hook_attn_scores = HookPoint()
        self.hook_pattern = HookPoint()

    def forward(
        self, residual: Float[Tensor, "batch pos d_model"]
    ) -> Float[Tensor, "batch 1 d_model"]:
        """What the last token attends to."""
        scores = self.hook_attn_scores(self.scores(residual)[:, None, None])
        pattern = self.hook_pattern(over_keys(scores))
        return (pattern[:, 0, 0, :, None] * residual).sum(1, keepdim=True)

    def scores(
        self, residual: Float[Tensor, "batch pos d_model"]
    ) -> Float[Tensor, "batch pos"]:
        """Z^T W_KQ z_last."""
        length, n = residual.shape[1], self.n_positions
        # z_last is one-hot in its position part, so that product is a column.
        query = self.W_KQ[:, length - 1] + residual[:, -1] @ self.W_KQ[:, n:].T
        # Products and sums: a batched matrix product of such thin matrices is slower.
        return query[:, :length] + (residual * query[:, None, n:]).sum(-1)


class QuadraticMemory(nn.Module):
    """f = V^T (W h)^2; rows of `W_in` are keys, rows of `W_out` their values."""

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        super().__init__()
        self.W_in = nn.Parameter(keys)
        self.W_out = nn.Parameter(values)
        self.hook_pre = HookPoint()
        self.hook_post = HookPoint()

    def forward(
        self, residual: Float[Tensor, "batch 1 d_model"]
    ) -> Float[Tensor, "batch 1 d_model"]:
        """The sum of the values, each weighted by its squared match."""
        pre = self.hook_pre(residual @ self.W_in.T)
        return self.hook_post(pre.square()) @ self.W_out


def constructed_memory(
    table: Table, embedding: Float[Tensor, "d_vocab d_model"]
) -> tuple[Float[Tensor, "d_mlp d_model"], Float[Tensor, "d_mlp d_model"]]:
    """Keys and values of Lemma 1's memory of all facts, width 3 n^2.

    For every pair (s, a), with rho the sum of phi(r) over the relations r(s) = a:
    phi(s)+rho -> phi(a); phi(a)+phi(s) -> rho; phi(a)+rho -> phi(s), in this order.
    Pairs without a relation are kept (rho = 0): without them the answer logits would
    differ before the relation is known, and Lemma 4 would fail.
    """
    n_relations, n = table.shape
    subject = embedding[:n, None].expand(n, n, -1)
    answer = embedding[None, n : 2 * n].expand(n, n, -1)
    fits = F.one_hot(table, n).to(embedding.dtype)
    relations = embedding[2 * n : 2 * n + n_relations]
    rho = torch.einsum("r s a, r d -> s a d", fits, relations)
    keys = torch.stack([subject + rho, answer + subject, answer + rho])
    values = torch.stack([answer, rho, subject])
    return keys.flatten(0, 2), values.flatten(0, 2)


def memory_neurons(table: Table) -> Int[Tensor, "use subject answer"]:
    """Indices of the memory's neurons: use 0 gives answers, 1 relations, 2 subjects."""
    n = table.shape[1]
    return torch.arange(3 * n * n).reshape(3, n, n)


def token_embedding(
    table: Table, seed: int, *, dtype: torch.dtype = torch.float32
) -> Float[Tensor, "d_vocab d_model"]:
    """The random orthogonal embedding of a seed, as wide as the vocabulary."""
    size = Vocabulary.of(table).size
    source = generator(seed, "recall", "embedding")
    gaussian = torch.randn(size, size, generator=source, dtype=torch.float64)
    return torch.linalg.qr(gaussian).Q.to(dtype)


def constructed_model(
    table: Table,
    n_examples: int,
    seed: int,
    *,
    spread: float = 0.02,
    dtype: torch.dtype = torch.float32,
) -> RecallModel:
    """The model with Lemma 1's memory.

    Args:
        table: the facts that it knows.
        n_examples: how many it has room for.
        seed: of the embedding and of the initial key-query matrix.
        spread: the standard deviation of that matrix.
        dtype: of all parameters.
    """
    embedding = token_embedding(table, seed, dtype=dtype)
    keys, values = constructed_memory(table, embedding)
    model = RecallModel(embedding, 2 * n_examples + 3, keys, values)
    return started(model, spread, seed)


@torch.no_grad()
def start(W_KQ: Tensor, spread: float, seed: int) -> None:
    """Write the random key-query matrix that full fine-tuning starts from."""
    source = generator(seed, "recall", "key-query")
    W_KQ.copy_(spread * torch.randn(W_KQ.shape, generator=source))


def started(model: RecallModel, spread: float, seed: int) -> RecallModel:
    """The model with the matrix that full fine-tuning starts from."""
    start(model.W_KQ, spread, seed)
    return model


def two_step_loss(
    model: RecallModel,
    data: dict[str, Batch],
    *,
    words: Vocabulary,
    temperature: float,
) -> Float[Tensor, ""]:
    """Cross-entropy of the relation plus that of the answer, each among its kind."""
    total = torch.zeros((), device=data["relation"].tokens.device)
    for step, classes in (("relation", words.relations), ("answer", words.answers)):
        logits = model(data[step].tokens)[:, 0, classes] / temperature
        total = total + F.cross_entropy(logits, data[step].targets - classes.start)
    return total


def direct_loss(
    model: RecallModel,
    data: dict[str, Batch],
    *,
    words: Vocabulary,
    temperature: float,
) -> Float[Tensor, ""]:
    """Cross-entropy of the answer without a written relation (Lemma 4)."""
    logits = model(data["relation"].tokens)[:, 0, words.answers] / temperature
    return F.cross_entropy(logits, data["answer"].targets - words.answers.start)


def fact_loss(
    model: RecallModel, batch: Batch, *, temperature: float
) -> Float[Tensor, ""]:
    """Cross-entropy of the third token over the whole vocabulary."""
    return F.cross_entropy(model(batch.tokens)[:, 0] / temperature, batch.targets)

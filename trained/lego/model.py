"""Our model, its attention in several branches: one layer, every product folded.

    score(q, k) = Q43[x4(q), x3(k)] + Q44[x4(q), x4(k)]      per head
    hidden(q)   = ReLU(sum_heads sum_k A(q, k) V(k) + b)
    logits(q)   = hidden(q) W_out + b_out, over variables (slot 4) and values (slot 5)

x3, x4 are the variables in slots 3 and 4 of a clause; a blank slot is the zero vector,
so a predicate is scored by Q43 only and an answer by Q44 only. V(k) adds one row for
every filled slot of clause k: value, output and first FFN matrices are one table.
One-hot tokens, no positions, no residual stream and no norm.

Several attentions share one frozen FFN: more steps, longer sentences, labels of an
earlier attention. A branch is an increment of the tables, trained from zero on top of
its parents. Adam does not know where zero is, so this is the same as training on from
the parents' weights, while the parents stay frozen and can label what it learns from.
"""

import copy
from dataclasses import dataclass
from typing import NamedTuple

import torch
from einops import einsum, rearrange
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor, nn
from torch.nn import functional as F
from transformer_lens import HookedRootModule
from transformer_lens.hook_points import HookPoint

from trained.errors import unknown
from trained.softmax import over_keys

from .task import Clauses, Prediction, Reader, Sentences, Tokens, Vocabulary

Pattern = Float[Tensor, "batch head query key"]
Values = Float[Tensor, "batch key head d_mlp"]

VALUE_STD = 0.2


class Places(NamedTuple):
    """Which clauses a forward pass reads as keys and as queries."""

    n_predicates: int
    """Predicates come first; the other clauses are answers."""
    queries: Int[Tensor, " query"]
    """Indices of the querying answers among the answers."""
    visible: Bool[Tensor, "query key"]
    """All predicates, and the answers up to the query itself."""


def places(clauses: Clauses, n_predicates: int | None, queries: slice) -> Places:
    """The keys and queries of a pass; by default half of the clauses are predicates."""
    n_clauses = clauses.shape[-2]
    n = n_clauses // 2 if n_predicates is None else n_predicates
    answers = torch.arange(n_clauses - n, device=clauses.device)
    chosen = answers[queries]
    causal = answers <= chosen[:, None]
    return Places(n, chosen, torch.cat([causal.new_ones(len(chosen), n), causal], 1))


class ByVariable(nn.Module):
    """Scores from the variables: the folded key-query tables Q43 and Q44."""

    def __init__(self, n_heads: int, n_variables: int) -> None:
        super().__init__()
        shape = (n_heads, n_variables, n_variables)
        self.Q43 = nn.Parameter(torch.zeros(shape))
        self.Q44 = nn.Parameter(torch.zeros(shape))

    def forward(self, clauses: Clauses, at: Places) -> Pattern:
        """Scores of every query to every clause, future answers included."""
        answers = clauses[:, at.n_predicates :, 3]
        query = answers[:, at.queries, None]
        predicates = clauses[:, None, : at.n_predicates, 2]
        to_predicates = self.Q43[:, query, predicates]
        to_answers = self.Q44[:, query, answers[:, None]]
        return torch.cat([to_predicates, to_answers], -1).movedim(0, 1)


class Uniform(nn.Module):
    """Equal scores: attention before it is trained."""

    def __init__(self, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads

    def forward(self, clauses: Clauses, at: Places) -> Pattern:
        """Zeros."""
        n_clauses = clauses.shape[1]
        shape = (len(clauses), self.n_heads, len(at.queries), n_clauses)
        return torch.zeros(shape, device=clauses.device)


class FoldedAttention(nn.Module):
    """Heads that retrieve clauses; their output is what the FFN's neurons receive."""

    def __init__(
        self, vocabulary: Vocabulary, *, n_heads: int, d_mlp: int, generator: Generator
    ) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        n = vocabulary
        self.key_query: nn.Module = Uniform(n_heads)
        self.W_V1 = _normal((n.n_variables, n_heads, d_mlp), VALUE_STD, generator)
        self.W_V2 = _normal((n.n_actions, n_heads, d_mlp), VALUE_STD, generator)
        self.W_V3 = _normal((n.n_variables, n_heads, d_mlp), VALUE_STD, generator)
        self.W_V4 = _normal((n.n_variables, n_heads, d_mlp), VALUE_STD, generator)
        self.W_V5 = _normal((n.n_values, n_heads, d_mlp), VALUE_STD, generator)
        self.hook_attn_scores, self.hook_pattern = HookPoint(), HookPoint()
        self.hook_v, self.hook_result = HookPoint(), HookPoint()

    def forward(
        self, clauses: Clauses, at: Places, key_query: nn.Module, values: Values | None
    ) -> Float[Tensor, "batch query d_mlp"]:
        """What the heads bring to every neuron."""
        pattern = self.pattern(clauses, at, key_query)
        if values is None:
            values = self.values(clauses, at.n_predicates)
        values = self.hook_v(values)
        # Per-head results are formed only for a listener: one product over keys and
        # heads is faster. A hook on them therefore always fires.
        if self.hook_result._forward_hooks or self.hook_result._backward_hooks:
            axes = "batch head query key, batch key head d -> batch query head d"
            return self.hook_result(einsum(pattern, values, axes)).sum(2)
        weights = rearrange(pattern, "batch head query key -> batch query (key head)")
        return weights @ rearrange(values, "batch key head d -> batch (key head) d")

    def pattern(self, clauses: Clauses, at: Places, key_query: nn.Module) -> Pattern:
        """Attention of every query to the clauses that it can see."""
        scores = key_query(clauses, at).masked_fill(~at.visible, -torch.inf)
        return self.hook_pattern(over_keys(self.hook_attn_scores(scores)))

    def values(self, clauses: Clauses, n_predicates: int) -> Values:
        """What every clause would bring to every neuron, head by head."""
        predicates, answers = clauses[:, :n_predicates], clauses[:, n_predicates:]
        action = predicates[..., 1] - self.vocabulary.first_action
        value = answers[..., 4] - self.vocabulary.first_value
        first = _rows(self.W_V1, predicates[..., 0])
        third = _rows(self.W_V3, predicates[..., 2])
        brought = first + _rows(self.W_V2, action) + third
        answered = _rows(self.W_V4, answers[..., 3]) + _rows(self.W_V5, value)
        whole = torch.cat([brought, answered], 1)
        return rearrange(
            whole, "batch key (head d) -> batch key head d", head=self.W_V1.shape[1]
        )


class FoldedMLP(nn.Module):
    """Neurons whose input weights are the attention's value tables."""

    def __init__(self, d_mlp: int, n_outputs: int, generator: Generator) -> None:
        super().__init__()
        self.b_in = nn.Parameter(torch.zeros(d_mlp))
        self.W_out = _normal((d_mlp, n_outputs), d_mlp**-0.5, generator)
        self.b_out = nn.Parameter(torch.zeros(n_outputs))
        self.hook_pre, self.hook_post = HookPoint(), HookPoint()

    def forward(
        self, attended: Float[Tensor, "batch query d_mlp"]
    ) -> Float[Tensor, "batch query output"]:
        """Logits of all variables, then of all values."""
        post = self.hook_post(self.hook_pre(attended + self.b_in).relu())
        return post @ self.W_out + self.b_out


class FoldedBlock(nn.Module):
    """Attention, then the FFN."""

    def __init__(
        self, vocabulary: Vocabulary, *, n_heads: int, d_mlp: int, generator: Generator
    ) -> None:
        super().__init__()
        self.attn = FoldedAttention(
            vocabulary, n_heads=n_heads, d_mlp=d_mlp, generator=generator
        )
        n_outputs = vocabulary.n_variables + vocabulary.n_values
        self.mlp = FoldedMLP(d_mlp, n_outputs, generator)
        self.hook_attn_out = HookPoint()

    def forward(
        self, clauses: Clauses, at: Places, key_query: nn.Module, values: Values | None
    ) -> Float[Tensor, "batch query output"]:
        """Logits of all variables, then of all values."""
        return self.mlp(self.hook_attn_out(self.attn(clauses, at, key_query, values)))


class FoldedModel(HookedRootModule):
    """The experiment model; its attention is uniform until `attend` gives it scores."""

    def __init__(
        self, vocabulary: Vocabulary, *, n_heads: int, d_mlp: int, generator: Generator
    ) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        block = FoldedBlock(
            vocabulary, n_heads=n_heads, d_mlp=d_mlp, generator=generator
        )
        self.blocks = nn.ModuleList([block])
        self.hook_logits = HookPoint()
        self.setup()

    def forward(
        self,
        tokens: Tokens,
        *,
        n_predicates: int | None = None,
        queries: slice = slice(None),
        key_query: nn.Module | None = None,
        values: Values | None = None,
    ) -> Prediction:
        """Predict the clause after every querying answer.

        Args:
            tokens: predicates, then answers.
            n_predicates: how many clauses are predicates; None: half of them.
            queries: which of the answers ask; all by default.
            key_query: scores to use in place of the model's own.
            values: the clauses' values, if they are known already.
        """
        clauses = self.vocabulary.slots(tokens)
        at = places(clauses, n_predicates, queries)
        own = self.block.attn.key_query
        logits = self.hook_logits(self.block(clauses, at, key_query or own, values))
        n = self.vocabulary.n_variables
        return Prediction(logits[..., :n], logits[..., n:])

    def attend(self, key_query: nn.Module) -> "FoldedModel":
        """Score clauses by this module from now on."""
        self.block.attn.key_query = key_query
        self.setup()
        return self

    @property
    def block(self) -> FoldedBlock:
        """The one block."""
        block = self.blocks[0]
        assert isinstance(block, FoldedBlock)
        return block

    @property
    def tables(self) -> ByVariable:
        """The key-query tables of a model that attends by variable."""
        tables = self.block.attn.key_query
        assert isinstance(tables, ByVariable), "this model does not attend by variable"
        return tables


@dataclass(frozen=True)
class Branch:
    """An attention: its parents' tables plus its own."""

    name: str
    parents: tuple[str, ...] = ()


UNIFORM = "uniform"
"""The attention before training: every visible clause alike."""


class _Summed(ByVariable):
    """Tables that are the sum of several; holds no parameters of its own."""

    def __init__(self, parts: list[ByVariable]) -> None:
        nn.Module.__init__(self)
        tables = [(part.Q43, part.Q44) for part in parts]
        self.Q43: Tensor = torch.stack([first for first, _ in tables]).sum(0)  # type: ignore[assignment]
        self.Q44: Tensor = torch.stack([second for _, second in tables]).sum(0)  # type: ignore[assignment]


class Branches(nn.Module):
    """A folded model with a choice of attentions."""

    def __init__(self, model: FoldedModel, branches: tuple[Branch, ...]) -> None:
        super().__init__()
        self.model = model
        self.branches = {branch.name: branch for branch in branches}
        n_variables, n_heads = model.block.attn.W_V1.shape[:2]
        self.key_query = nn.ModuleDict(
            {branch.name: ByVariable(n_heads, n_variables) for branch in branches}
        )

    def forward(self, sentences: Sentences, branch: str = UNIFORM) -> Prediction:
        """The prediction with one of the attentions."""
        return self.reader(branch)(sentences.tokens(self.model.vocabulary))

    def reader(self, branch: str) -> Reader:
        """The model as it reads with one of the attentions."""
        scores = self.attention(branch)

        def read(tokens: Tensor, **how: object) -> Prediction:
            return self.model(tokens, key_query=scores, **how)

        return read

    def pattern(self, sentences: Sentences, branch: str) -> Pattern:
        """Where one of the attentions looks."""
        words = self.model.vocabulary
        clauses = words.slots(sentences.tokens(words))
        at = places(clauses, None, slice(None))
        return self.model.block.attn.pattern(clauses, at, self.attention(branch))

    def attention(self, branch: str) -> nn.Module:
        """What scores the clauses in a branch."""
        if branch == UNIFORM:
            return self.model.block.attn.key_query
        if branch not in self.branches:
            raise unknown("branch", branch, self.branches)
        own = self.key_query[branch]
        line = [self.key_query[name] for name in self.branches[branch].parents]
        if not line:
            return own
        return _Summed([part for part in (*line, own) if isinstance(part, ByVariable)])

    def single(self, branch: str) -> FoldedModel:
        """A model of its own with the attention of one branch."""
        model, scores = copy.deepcopy(self.model), self.attention(branch)
        assert isinstance(scores, ByVariable)
        tables = ByVariable(*scores.Q43.shape[:2])
        with torch.no_grad():
            tables.Q43.copy_(scores.Q43)
            tables.Q44.copy_(scores.Q44)
        return model.attend(tables).eval()


def _rows(
    table: Float[Tensor, "row head d"], index: Int[Tensor, "batch clause"]
) -> Float[Tensor, "batch clause head_d"]:
    """Rows of a table; an embedding is several times faster than indexing."""
    return F.embedding(index, table.flatten(1))


def _normal(shape: tuple[int, ...], std: float, generator: Generator) -> nn.Parameter:
    return nn.Parameter(std * torch.randn(shape, generator=generator))

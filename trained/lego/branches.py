"""One FFN and several attentions that grow from one another.

The study compares attentions that share a frozen FFN: more steps, longer sentences,
labels of an earlier attention. A branch is an increment of the key-query tables,
trained from zero on top of its parents. Adam does not know where zero is, so this is
the same as training on from the parents' weights, while the parents stay frozen and
can label what the branch learns from.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from trained.errors import unknown

from .answers import Reader
from .folded import ByPosition, ByVariable, FoldedModel, Pattern, Prediction, places
from .sentences import Sentences


@dataclass(frozen=True)
class Branch:
    """An attention: its parents' tables plus its own, or positions alone."""

    name: str
    parents: tuple[str, ...] = ()
    by_position: int | None = None
    """The sentence length of an attention by position; None: by variable."""


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
            {
                branch.name: ByVariable(n_heads, n_variables)
                if branch.by_position is None
                else ByPosition(n_heads, branch.by_position)
                for branch in branches
            }
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
        tokens = sentences.tokens(self.model.vocabulary)
        at = places(tokens, None, slice(None))
        return self.model.block.attn.pattern(tokens, at, self.attention(branch))

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
        if isinstance(scores, ByVariable):
            tables = ByVariable(*scores.Q43.shape[:2])
            model.attend(tables)
            put_tables(model, {"Q43": scores.Q43, "Q44": scores.Q44})
        else:
            model.attend(copy.deepcopy(scores))
        return model.eval()


@torch.no_grad()
def put_tables(model: FoldedModel, tables: Mapping[str, Tensor]) -> None:
    """Overwrite some of a model's key-query tables."""
    for name, table in tables.items():
        getattr(model.tables, name).copy_(table)

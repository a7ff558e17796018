"""Fine-tuning of the whole key-query matrix on a fixed set of prompts (Figure 3).

An exact stand-in for `RecallModel` with the constructed memory: the same matrix and the
same attention, but the memory's logits come from their closed forms, whose cost does
not grow with the memory. Tests compare both with the real model. Readings of the figure
(temperature and initial spread) are copies in one model.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from trained.softmax import over_keys

from .model import start
from .task import Episodes, Vocabulary
from .theory import (
    answer_loss,
    pattern_counts,
    pattern_of_relation,
    quadratic_forms,
    relation_loss,
    right_pattern,
)


class WholeScores(nn.Module):
    """Several key-query matrices, without a memory."""

    def __init__(
        self,
        embedding: Float[Tensor, "d_vocab d_model"],
        n_examples: int,
        *,
        spreads: tuple[float, ...],
        seed: int,
    ) -> None:
        super().__init__()
        self.n_positions = 2 * n_examples + 3
        width = self.n_positions + embedding.shape[1]
        self.W_KQ = nn.Parameter(embedding.new_zeros(len(spreads), width, width))
        for matrix, spread in zip(self.W_KQ, spreads, strict=True):
            start(matrix, spread, seed)
        self.W_E: Tensor
        self.forms: Tensor
        self.register_buffer("W_E", embedding, persistent=False)
        forms = quadratic_forms(n_examples).to(embedding.dtype)
        self.register_buffer("forms", forms, persistent=False)

    def attention(
        self,
        tokens: Int[Tensor, "row key"],
        asking: Int[Tensor, " query"],
        which: Int[Tensor, " row"],
    ) -> Float[Tensor, "copy row key"]:
        """The last token's attention in every prompt.

        Args:
            tokens: the prompts.
            asking: their last tokens, as few as there are.
            which: which of these is a prompt's.
        """
        length, n = tokens.shape[1], self.n_positions
        # z_last is one-hot in its position part, so that product is a column.
        queries = self.W_KQ[..., n:] @ self.W_E[asking].T
        queries = queries + self.W_KQ[..., length - 1 : length]
        by_word = self.W_E @ queries[:, n:]
        by_place = queries[:, :length].mT
        scores = by_place[:, which] + by_word[:, tokens, which[:, None]]
        return over_keys(scores)

    def attentions(
        self, data: dict[str, Tensor]
    ) -> tuple[Float[Tensor, "copy row key"], Float[Tensor, "copy row key2"]]:
        """Of EoS at the first step, and of the written relation at the second."""
        tokens, which = data["tokens"], data["which"]
        first = self.attention(tokens[:, :-1], tokens[:1, -2], torch.zeros_like(which))
        return first, self.attention(tokens, data["asking"], which)


def prompt_quantities(episodes: Episodes) -> dict[str, Tensor]:
    """The data of the loss, and what permuting its answers needs."""
    words, relation = Vocabulary.of(episodes.table), episodes.relation
    asking, which = relation, torch.arange(len(relation))
    if len(relation) > words.n_relations:
        asking, which = torch.arange(words.n_relations), relation
    return {
        "tokens": episodes.answer_step().tokens,
        "asking": words.relations.start + asking,
        "which": which,
        "counts": pattern_counts(episodes),
        "pattern": torch.full_like(relation, right_pattern(episodes.n_examples)),
        "answer": torch.full_like(relation, episodes.n_examples),
        "patterns": pattern_of_relation(episodes),
        "relation": relation,
        "answers": episodes.answers,
    }


def shuffle_prompts(
    data: dict[str, Tensor], source: torch.Generator
) -> dict[str, Tensor]:
    """The same prompts with the answers of both steps permuted over them."""
    order = torch.randperm(len(data["relation"]), generator=source)
    relation, answer = data["relation"][order], data["answers"][order, -1]
    pattern = data["patterns"].gather(1, relation[:, None])[:, 0]
    shown = data["answers"] == answer[:, None]
    column = torch.where(shown.any(1), shown.double().argmax(1), shown.shape[1])
    return {**data, "pattern": pattern, "answer": column}


def whole_loss(
    model: WholeScores,
    data: dict[str, Tensor],
    *,
    n_subjects: int,
    temperatures: tuple[float, ...],
) -> Float[Tensor, ""]:
    """Cross-entropy of the relation plus that of the answer, summed over the copies.

    An optimiser that acts entry by entry then trains every copy as if alone.
    """
    first, second = model.attentions(data)
    several = (len(temperatures), len(data["relation"]))
    heat = torch.tensor(temperatures, dtype=first.dtype, device=first.device)
    heat = heat[:, None, None].expand(*several, 1)
    relation = relation_loss(
        first,
        data["counts"].expand(*several, -1),
        model.forms,
        temperature=heat,
        target=data["pattern"].expand(several),
    )
    answer = answer_loss(
        second,
        n_subjects=n_subjects,
        temperature=heat,
        target=data["answer"].expand(several),
    )
    return (relation + answer).mean(1).sum()

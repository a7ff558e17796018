"""A reader of clauses whose circuit is known: wired by hand, never trained."""

import torch

from trained.lego.action import action
from trained.lego.folded import ByVariable, FoldedModel
from trained.lego.sentences import Sentences, Vocabulary, draw_sentences, table_of

N_VARIABLES, N_HEADS = 12, 2


def wired(group: str = "C3", score: float = 30.0) -> FoldedModel:
    """One neuron per (g, y) and one per variable; heads look up the shared variable.

    A neuron (g, y) fires if attention brings enough of both g and y and then votes
    for g(y); a neuron x fires if predicates x = .. are brought and votes for x.
    """
    act = action(group)
    n_g, n_y = act.n_actions, act.n_values
    d_mlp = n_g * n_y + N_VARIABLES
    vocabulary = Vocabulary.of(act, N_VARIABLES)
    model = FoldedModel(
        vocabulary, n_heads=N_HEADS, d_mlp=d_mlp, generator=torch.Generator()
    )
    attn, mlp = model.block.attn, model.block.mlp
    pairs = torch.arange(n_g * n_y).reshape(n_g, n_y)
    names = n_g * n_y + torch.arange(N_VARIABLES)
    weight = 2 / N_HEADS
    with torch.no_grad():
        for table in (attn.W_V1, attn.W_V2, attn.W_V3, attn.W_V4, attn.W_V5):
            table.zero_()
        attn.W_V1[torch.arange(N_VARIABLES), :, names] = weight
        for g in range(n_g):
            attn.W_V2[g, :, pairs[g]] = weight
        for y in range(n_y):
            attn.W_V5[y, :, pairs[:, y]] = weight
        mlp.b_in[pairs] = -1.5
        mlp.b_in[names] = -0.5
        mlp.W_out.zero_()
        mlp.W_out[names, torch.arange(N_VARIABLES)] = 10.0
        mlp.W_out[pairs, N_VARIABLES + table_of(act)] = 10.0
        tables = ByVariable(N_HEADS, N_VARIABLES)
        tables.Q43.copy_(score * torch.eye(N_VARIABLES))
        tables.Q44.copy_(score * torch.eye(N_VARIABLES))
    model.attend(tables)
    return model.requires_grad_(False).eval()


def sentences(
    length: int, count: int = 20, *, group: str = "C3", seed: int = 0
) -> Sentences:
    """Sentences that the wired model can read."""
    return draw_sentences(
        table_of(action(group)),
        count,
        length,
        n_variables=N_VARIABLES,
        generator=torch.Generator().manual_seed(seed),
    )

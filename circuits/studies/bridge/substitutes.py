"""Labs whose mechanism is known: planted ones, and impostors that answer alike.

Weights are set by hand; seeds turn or jitter them, so that replicates differ. Arms that
a substitute says nothing about are not tested on it.
"""

from functools import cache, partial
from typing import Literal

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from circuits.study import Substitute
from trained.bridge.arms import covered, permutation, world_of
from trained.bridge.config import Config, Recipe
from trained.bridge.model import EmbMLP
from trained.bridge.program import one_hop_constraints, solve
from trained.bridge.symmetric import expand, solve_symmetric
from trained.bridge.task import World
from trained.decoder import Decoder, DecoderConfig
from trained.seeding import generator

from .lab import Wiring

Matrix = Float[Tensor, "input output"]
Moves = list[tuple[int, int]]
"""(entry of the residual that is read, entry that is written)."""

SCALE = 10.0
"""Margins of the planted Z, in logits: about those of training."""

SHARP = 30.0
"""Scores of wired attention: a softmax of it is a choice."""

JITTER = 0.01
"""Standard deviation of the noise on wired weights."""


@cache
def optimum(size: int, *, identity: bool, factorised: bool) -> Matrix:
    """What training is biased to: least nuclear or, unfactorised, Frobenius norm."""
    if factorised:
        return expand(solve_symmetric(size, identity=identity))
    facts = one_hop_constraints(size, 1, identity=identity)
    return solve(facts, norm="frobenius").matrix


def embedding(shares: bool, config: Config, recipe: Recipe, seed: int) -> EmbMLP | None:
    """Emb-MLP at the program's optimum.

    Args:
        shares: whether subjects use the bridges' directions, as in the optimum's own
            factors; else every token has a direction of its own and the read-out is a
            table. Z, and so every logit, is the same.
        config: the configuration.
        recipe: the arm in whose place it stands.
        seed: turns the factors.
    """
    world = world_of(config, recipe, seed)
    if recipe.model == "gpt" or recipe.complexity > 1:
        return None
    n, factorised = world.n_subjects, recipe.factors == "two"
    found = optimum(n, identity=recipe.task == "identity", factorised=factorised)
    matrix = SCALE * found.float()
    matrix[:, n + world.objects[0]] = matrix[:, n:].clone()
    source = generator(seed, "bridge", "planted", recipe.name)
    if not factorised:
        return _with(EmbMLP(world, factors="one", generator=source), W_E=matrix)
    left, sizes, right = torch.linalg.svd(matrix, full_matrices=False)
    embedded, readout = left * sizes.sqrt(), sizes.sqrt()[:, None] * right
    if not shares:
        length = embedded.norm(dim=1).mean()
        embedded, readout = length * torch.eye(len(matrix)), matrix / length
    width = embedded.shape[1]
    turn = torch.linalg.qr(torch.randn(width, width, generator=source)).Q
    model = EmbMLP(world, d_model=width, generator=source)
    return _with(model, W_E=embedded @ turn, W_U=turn.mT @ readout)


Route = Literal["bridge", "subject", "first"]
"""What r2 reads: the state at r1, which is its bridge's; the subject itself, by a table
for every first relation; whatever stands first."""


def gpt(route: Route, config: Config, recipe: Recipe, seed: int) -> Decoder | None:
    """A GPT that knows all single hops, wired by hand.

    Args:
        route: how it answers two-hop queries.
        config: the configuration.
        recipe: the arm in whose place it stands; without identity, and with the
            standard initialisation, no route is open.
        seed: jitters the weights.
    """
    if recipe.model != "gpt" or recipe.regime not in ("small", "standard"):
        return None
    world = world_of(config, recipe, seed)
    shared, order = covered(config, recipe, seed), torch.arange(world.n_bridges)
    shared &= recipe.regime == "small"
    if recipe.task == "permuted":
        shared = torch.full_like(shared, recipe.regime == "small")
        order = permutation(config, recipe, seed)
    source = generator(seed, "bridge", "wired", recipe.name)
    wired = _Wired(world, order, source)
    wired.first_hop(shared if route == "bridge" else shared & False)
    if route == "first":
        wired.second_hop([wired.place])
    else:
        relations = wired.relations if route == "bridge" else []
        wired.second_hop([*world.bridge.tolist(), *relations])
    if route == "subject" and shared.any():
        wired.table()
    if route == "first" and shared.any():
        wired.name_subjects()
    for weight in wired.model.parameters():
        weight += JITTER * torch.randn(weight.shape, generator=source)
    return wired.model


class _Wired:
    """A GPT of a world in which only the tokens and what they are read as is set.

    The residual holds the tokens, the bridges' codes, private codes that name bridges
    too, the object to answer, the first relation, and whether it is the first place.
    With a permuted identity the code of b_j names b_{s(j)}, so that (a, r1) shares the
    code of s^-1(b). Heads look at their own token unless told otherwise; head k serves
    the first relation k, the last head r2.
    """

    def __init__(self, world: World, order: Tensor, source: Generator) -> None:
        self.world, self.codes = world, order.argsort()
        n, pairs, kappa = world.n_subjects, world.n_bridges, world.complexity
        sizes = (world.d_vocab, pairs, pairs, n, kappa, 1)
        ends = torch.tensor(sizes).cumsum(0).tolist()
        starts = [end - size for end, size in zip(ends, sizes, strict=True)]
        _, self.code, self.private, self.answer, self.told, self.place = starts
        self.relations = world.relation[::n].tolist()
        self.model = self._empty(ends[-1], source)
        model, bridges = self.model, world.bridge
        model.W_pos[0, self.place] = 1
        model.W_E.diagonal().fill_(1)
        model.W_E[bridges, self.code + torch.arange(pairs)] = 1
        # A bridge knows its object as well; it shall name itself.
        model.unembedding[self.code + self.codes, bridges] = 2
        model.unembedding[self.private + torch.arange(pairs), bridges] = 2
        objects = torch.arange(n)
        model.unembedding[self.answer + objects, world.first_object + objects] = 1

    def _empty(self, width: int, source: Generator) -> Decoder:
        d_vocab = self.world.d_vocab
        sizes = DecoderConfig(
            d_vocab=d_vocab,
            d_model=width,
            n_layers=2,
            n_heads=self.world.complexity + 1,
            n_ctx=3,
            d_head=d_vocab + 1,
            d_mlp=0,
            norm="none",
            biases="none",
            head="untied",
            score_scale=1.0,
        )
        model = Decoder(sizes, generator=source).requires_grad_(False)
        for weight in model.parameters():
            weight.zero_()
        for block in model.blocks:
            block.attn.W_Q.diagonal(dim1=1, dim2=2)[:, :d_vocab] = SHARP / 2
            block.attn.W_K.diagonal(dim1=1, dim2=2)[:, :d_vocab] = 1
        return model

    def _head(
        self, block: int, head: int, query: int, keys: list[int], moves: Moves
    ) -> None:
        """Let a head look from a query at keys; it writes one entry for another."""
        attn = self.model.blocks[block].attn
        attn.W_Q[head, query, -1] = SHARP
        attn.W_K[head, keys, -1] = 1
        for channel, (read, written) in enumerate(moves):
            attn.W_V[head, read, channel] = 1
            attn.W_O[head, channel, written] = 1

    def first_hop(self, shared: Tensor) -> None:
        """Block 1 at r1: the subject becomes its bridge's code, or a private one."""
        n = self.world.n_subjects
        own = self.private + torch.arange(self.world.n_bridges)
        names = torch.where(shared, self.code + self.codes, own).tolist()
        for k, relation in enumerate(self.relations):
            moves = list(enumerate(names[k * n : (k + 1) * n]))
            self._head(0, k, relation, list(range(n)), moves)

    def second_hop(self, keys: list[int]) -> None:
        """Block 2 at r2: the code that stands at these keys becomes its object."""
        objects = self.answer + self.world.objects.flatten()
        moves = [(self.code + j, c) for j, c in enumerate(objects.tolist())]
        self._head(1, -1, self.world.second_relation, keys, moves)

    def table(self) -> None:
        """Block 1 tells r2 the first relation, block 2 looks the subject up in it."""
        n, last = self.world.n_subjects, self.world.second_relation
        told = [(r, self.told + k) for k, r in enumerate(self.relations)]
        self._head(0, -1, last, self.relations, told)
        objects = self.answer + self.world.objects.flatten()[self.codes]
        for k in range(self.world.complexity):
            moves = list(enumerate(objects[k * n : (k + 1) * n].tolist()))
            self._head(1, k, self.told + k, list(range(n)), moves)

    def name_subjects(self) -> None:
        """Subjects carry the code of a bridge, that of their first relation."""
        subjects = torch.arange(self.world.n_subjects)
        self.model.W_E[subjects, self.code + self.codes[subjects]] = 1


def _with(model: EmbMLP, **weights: Tensor) -> EmbMLP:
    for name, value in weights.items():
        getattr(model, name).data.copy_(value)
    return model


def _substitute(
    name: str,
    role: Literal["planted", "impostor"],
    wiring: Wiring,
    confirms: tuple[str, ...] = (),
) -> Substitute:
    return Substitute(name, role, lambda lab: lab.wired(wiring), confirms)


SUBSTITUTES = (
    _substitute(
        "Emb-MLP at the nuclear-norm optimum",
        "planted",
        partial(embedding, True),
        (
            "bridge.ood.embmlp.k1",
            "bridge.memory.templates",
            "bridge.memory.*",
            "bridge.ours.objects",
            "bridge.ours.decayed-direction",
            "bridge.ours.truncation",
        ),
    ),
    _substitute(
        "GPT wired to share the bridge's state",
        "planted",
        partial(gpt, "bridge"),
        (
            "bridge.ood.small.k1",
            "bridge.decline.small-recovers",
            "bridge.align.small",
            "bridge.align.usable",
            "bridge.ours.tied-permuted",
            "bridge.ours.tied-donor",
        ),
    ),
    _substitute(
        "Emb-MLP that looks answers up in a table",
        "impostor",
        partial(embedding, False),
    ),
    _substitute(
        "GPT that looks (subject, relation) up in a table",
        "impostor",
        partial(gpt, "subject"),
    ),
    _substitute(
        "GPT that reads whatever stands first", "impostor", partial(gpt, "first")
    ),
)
"""The table of Emb-MLP has the planted Z, so no signal on Z can tell the two apart."""

"""Edits of one representation while the model runs: put in, take out, or neither.

Only the entity's position is edited. In the one-layer block with even attention even
that equals running the donor's prompt, so there it checks the edit and no more; in
GPT-2 the other position keeps what it has read.
"""

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize

from circuits.hooks import Edit, intervene
from circuits.sites import Site
from trained.seeding import generator

from .readings import VALUE, Trained, answers, entity_values, share, states

Vectors = Float[Tensor, "pair d_model"]
Lengths = dict[tuple[Site, int], Float[Tensor, "pair 1"]]
"""What a removal took off, by site and position."""

RANDOM_DRAWS = 5
"""Random directions that a control is the mean over."""


def with_source_values(trained: Trained, *, shift: int = 0) -> float:
    """Share of targets that answer as tuple i + shift with V z of its source put in."""
    asked = trained.asked
    donors = entity_values(trained.model, asked.known).roll(-shift, 0)

    def put_in(values: Tensor) -> Tensor:
        edited = values.clone()
        edited[:, 0, 0] = donors
        return edited

    with intervene(trained.model, {VALUE: put_in}):
        given = answers(trained.model, asked.test)
    return share(given, asked.answer.roll(-shift))


def without_source_values(trained: Trained, *, random: bool = False) -> float:
    """Success after V z of the target loses its component along V z of the source.

    With `random`, it loses the same length along a random direction instead.
    """
    source = normalize(entity_values(trained.model, trained.asked.known), dim=-1)

    def removed(away: Vectors) -> float:
        def take_out(values: Tensor) -> Tensor:
            edited = values.clone()
            length = (values[:, 0, 0] * source).sum(-1, keepdim=True)
            edited[:, 0, 0] -= length * away
            return edited

        return _success_under(trained, {VALUE: take_out})

    if not random:
        return removed(source)
    draws = [
        removed(_random_directions(trained, source, VALUE, draw))
        for draw in range(RANDOM_DRAWS)
    ]
    return sum(draws) / len(draws)


def with_source_residual(trained: Trained, *, shift: int, layer: int = 0) -> float:
    """GPT-2: the same with the entity's residual after a block."""
    asked, site = trained.asked, Site("resid_post", layer)
    donors = states(trained.model, asked.known, [site], 0)[0].roll(-shift, 0)

    def put_in(residual: Tensor) -> Tensor:
        edited = residual.clone()
        edited[:, 0] = donors
        return edited

    with intervene(trained.model, {site: put_in}):
        given = answers(trained.model, asked.test)
    return share(given, asked.answer.roll(-shift))


def without_source_residual(trained: Trained, *, random: bool = False) -> float:
    """GPT-2: success without the source's centred direction after all but the last.

    At both positions, since block 0 reads the raw embedding of the entity. With
    `random`, the lengths that this takes off come off random directions instead.
    """
    sites = [
        Site("resid_post", layer) for layer in range(len(trained.model.blocks) - 1)
    ]
    taken: Lengths = {}
    edits = {site: _removal(trained, site, taken) for site in sites}
    without = _success_under(trained, edits)
    if not random:
        return without
    draws = [
        _success_under(
            trained, {site: _noise(trained, site, taken, i) for site in sites}
        )
        for i in range(RANDOM_DRAWS)
    ]
    return sum(draws) / len(draws)


def _removal(trained: Trained, site: Site, taken: Lengths) -> Edit:
    sources = [
        states(trained.model, trained.asked.known, [site], position)[0]
        for position in (0, 1)
    ]

    def take_out(residual: Tensor) -> Tensor:
        edited = residual.clone()
        for position, source in enumerate(sources):
            common = source.mean(0)
            along = normalize(source - common, dim=-1)
            length = ((residual[:, position] - common) * along).sum(-1, keepdim=True)
            taken[site, position] = length
            edited[:, position] -= length * along
        return edited

    return take_out


def _noise(trained: Trained, site: Site, taken: Lengths, draw: int) -> Edit:
    def take_out(residual: Tensor) -> Tensor:
        edited = residual.clone()
        for position in (0, 1):
            away = _random_directions(
                trained, residual[:, position], site, position, draw
            )
            edited[:, position] -= taken[site, position] * away
        return edited

    return take_out


def _success_under(trained: Trained, edits: Mapping[Site, Edit]) -> float:
    with intervene(trained.model, edits):
        given = answers(trained.model, trained.asked.test)
    return share(given, trained.asked.answer)


def _random_directions(trained: Trained, like: Vectors, *path: Any) -> Vectors:
    names = [str(name) for name in path]
    source = generator(trained.seed, "analogy", "random direction", *names)
    return normalize(torch.randn(like.shape, generator=source), dim=-1)

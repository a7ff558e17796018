"""Who looks at which role: attention mass by layer and head, beside shuffled roles."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from circuits.backends.view import View
from circuits.inspection.encoding import Item, Tokens
from circuits.inspection.observing import Seen
from circuits.inspection.packing import Pack

from .nulls import draws, moved
from .tables import Labels, Part, long


@dataclass(frozen=True, eq=False)
class Looks:
    """What is asked of the patterns of a batch.

    Queries are the last token and the last token of every role. Keys are all tokens of
    a role, and the first token. The sets are the keys, then for every query the roles
    as they are after their places were shuffled.

    Attributes:
        view: the sets for every query, or for all if the model is in double precision.
        queries: columns of the queries, if the view has all.
        possible: whether a query can see a part of a key.
    """

    view: View
    queries: torch.Tensor | None
    possible: NDArray[np.bool_]


def looks(
    pack: Pack, items: Sequence[Item], labels: Labels, *, seed: int, double: bool
) -> Looks:
    """What is asked of the patterns of a batch of prompts.

    Args:
        pack: the batch.
        items: its prompts.
        labels: the names of the roles.
        seed: of the shuffles.
        double: whether the model computes in double precision: rows of some queries
            are worked out in single, the mass of all comes out of the layer's kernel.
    """
    queries = [[_query(item, name) for name in labels.queries] for item in items]
    columns, sets = pack.columns(queries), pack.sets(_sets(items, labels, seed))
    possible = [[_seen(item, q, labels) for q in labels.queries] for item in items]
    seen = np.asarray(possible, bool)
    if double:
        return Looks(View(None, sets), columns, seen)
    return Looks(View(columns, sets), None, seen)


def _query(item: Item, name: str) -> int:
    """Where a query stands; one that the prompt lacks is not kept."""
    return item.last if name == "last" else item.roles.get(name, (item.last,))[-1]


def _sets(items: Sequence[Item], labels: Labels, seed: int) -> list[list[Tokens]]:
    found = []
    for item in items:
        random = draws(seed, item.index)
        roles = [item.roles.get(name, ()) for name in labels.roles]
        shuffled = [
            moved(role, _query(item, query), random)
            for query in labels.queries
            for role in roles
        ]
        found.append([*roles, (0,), *shuffled])
    return found


def _seen(item: Item, query: str, labels: Labels) -> list[bool]:
    """Whether a query sees some of each key, and looks at somebody else."""
    place = _query(item, query)
    there = query == "last" or query in item.roles
    roles = [
        there and name != query and name in item.roles and item.roles[name][0] <= place
        for name in labels.roles
    ]
    return [*roles, query == "last"]


def attention_part(
    looked: Looks,
    seen: Seen,
    rows: Sequence[int],
    items: Sequence[Item],
    labels: Labels,
) -> Part:
    """The rows of a batch.

    Args:
        looked: what was asked.
        seen: what the pass showed.
        rows: the prompts of the batch that are kept.
        items: all prompts of the batch.
        labels: the names of the roles.
    """
    whole = torch.stack(list(seen.views["mass"].values()), 1)
    if looked.queries is not None:
        index = torch.arange(len(whole))[:, None]
        whole = whole.permute(0, 3, 1, 2, 4)[index, looked.queries.cpu()]
        whole = whole.permute(0, 2, 3, 1, 4)
    masses = whole[list(rows)].numpy()
    n_keys, n_roles = len(labels.keys), len(labels.roles)
    queries = range(len(labels.queries))
    null = np.full((*masses.shape[:4], n_keys), np.nan, masses.dtype)
    for query in queries:
        start = n_keys + query * n_roles
        null[..., query, :n_roles] = masses[..., query, start : start + n_roles]
    axes = {
        "prompt": [items[row].index for row in rows],
        "layer": list(seen.views["mass"]),
        "head": range(masses.shape[2]),
        "query": queries,
        "key": range(n_keys),
    }
    values = {"mass": masses[..., :n_keys], "null_mass": null}
    return long(axes, values, looked.possible[list(rows)][:, None, None])

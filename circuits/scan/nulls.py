"""What a role would be if it were somewhere else, and an answer somebody else's."""

from collections.abc import Mapping, Sequence

import numpy as np

from circuits.inspection.encoding import Item, Tokens


def draws(seed: int, *place: int) -> np.random.Generator:
    """Random numbers that follow from a seed and from what they are for."""
    return np.random.default_rng([seed, *place])


def moved(positions: Sequence[int], upto: int, random: np.random.Generator) -> Tokens:
    """As many positions, anywhere up to a query: a role after its places are shuffled.

    The first token keeps its place: attention rests there whatever the prompt says.
    A role loses what lies behind the query, which cannot be seen.
    """
    seen = [place for place in positions if place <= upto]
    kept = [0] if 0 in seen else []
    others = random.permutation(upto)[: len(seen) - len(kept)] + 1
    return (*kept, *sorted(others.tolist()))


def other_answers(items: Sequence[Item], seed: int) -> Mapping[int, int]:
    """For every item the first token of another one's answer, by the item's index.

    The items are put in a circle in random order, and each takes the next answer that
    begins otherwise; items are left out if all begin alike.
    """
    known = [item for item in items if item.answers]
    if not known:
        return {}
    order = draws(seed, known[0].index, 1).permutation(len(known))
    circle = [known[place] for place in order.tolist()]
    found = {}
    for place, item in enumerate(circle):
        own = {answer[0] for answer in item.answers}
        for other in (*circle[place + 1 :], *circle[:place]):
            if other.answers[0][0] not in own:
                found[item.index] = other.answers[0][0]
                break
    return found

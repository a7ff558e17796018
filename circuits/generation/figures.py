"""A chain of thought in one picture: where each step looks, and when it is ready."""

import math
from collections.abc import Callable, Iterator

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from probes.figures import text_heatmap
from probes.measurement import Measurement

from .chain import WRITTEN, Chain
from .transcript import FIRST, step_name

LETTERS = 34
"""Longer texts of spans are cut."""

STATE = "state"
"""The role whose lens is drawn, where steps have it."""


def all_figures(chain: Chain) -> Iterator[tuple[str, Figure]]:
    """Every figure of what was seen, with its name."""
    panels: list[Callable[[Chain, Axes], None]] = []
    if chain.mass is not None:
        panels.append(draw_looks)
    if chain.log_prob is not None:
        panels.append(draw_lens)
    if not panels:
        return
    rows = max(len(chain.parts), chain.model.n_layers if draw_lens in panels else 0)
    width = 3.6 + len(panels) * min(2.6 + 0.6 * len(chain.steps), 8.0)
    figure = Figure((width, min(1.8 + 0.2 * rows, 12.0)), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for draw, ax in zip(panels, axes, strict=True):
        draw(chain, ax)
    yield "chain", figure


def draw_looks(chain: Chain, ax: Axes) -> None:
    """Steps across, what they look at down: the largest mass of any head.

    Most heads rest on the first token, which is left out.
    """
    names = [name for name in chain.parts if name != FIRST]
    found = chain.mass_by_step().select(key=names).values.flatten(0, 1).amax(0).mT
    unseen = [
        [name in _steps_after(chain, number) for number in range(len(chain.steps))]
        for name in names
    ]
    values = found.masked_fill(torch.tensor(unseen), torch.nan)
    texts = [["" if math.isnan(v) else f"{v:.2f}" for v in r] for r in values.tolist()]
    grid = Measurement(
        values,
        ("looked at", "step"),
        {
            "looked at": tuple(_shortened(chain.span_text(name)) for name in names),
            "step": tuple(range(1, len(chain.steps) + 1)),
        },
        name="attention mass of the head that looks hardest",
    )
    text_heatmap(grid, texts, ax)


def draw_lens(chain: Chain, ax: Axes) -> None:
    """Steps across, layers down: how likely the next state is, its rank in each cell.

    The state is a step's role of that name, at its first token; of chains without one,
    the first token of each step.
    """
    assert chain.log_prob is not None
    assert chain.rank is not None
    stated = [n for n, step in enumerate(chain.steps) if STATE in step.roles]
    shown = stated or range(len(chain.steps))
    steps = [chain.steps[number] for number in shown]
    at = [step.roles[STATE][0] if stated else step.tokens.start for step in steps]
    log_prob, rank = (
        found.select(target=WRITTEN).values[:, at]
        for found in (chain.log_prob, chain.rank)
    )
    # The embedding's own lens is far off, and would take all colours.
    log_prob, rank = log_prob[1:], rank[1:]
    words = [_word(chain, token) for token in at]
    grid = Measurement(
        log_prob,
        ("layer", "step"),
        {
            "layer": chain.log_prob.labels["layer"][1:],
            "step": tuple(f"{n + 1} {w}" for n, w in zip(shown, words, strict=True)),
        },
        name=f"lens of the {'next state' if stated else 'step'}, with its rank",
        unit="log p in nats",
    )
    text_heatmap(grid, [[f"{r:.0f}" for r in row] for row in rank.tolist()], ax)


def _steps_after(chain: Chain, number: int) -> set[str]:
    """The steps that are not written yet when this one is."""
    return {step_name(later) for later in range(number + 1, len(chain.steps))}


def _word(chain: Chain, token: int) -> str:
    column = chain.n_prompt + token
    return _shortened(chain.model.tokenizer.decode(chain.batch.tokens[0, [column]]))


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LETTERS else line[: LETTERS - 1] + "…"

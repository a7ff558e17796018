"""The figures of a scan, drawn from its summary: every signal beside its null."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import cycle
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font

from probes.figures import OKABE_ITO, heatmap
from probes.measurement import Measurement

from .summary import EVERY, Record

MOST_PANELS = 9
SHOWN_COMPONENTS = 16

DASHES = ("-", "--", "-.")
"""Alternate between places, so that two equal curves are both seen."""

NULL = {"linestyle": ":", "linewidth": 1.6}
"""How a null is drawn: dotted, in the colour of what it belongs to."""


def all_figures(summary: Mapping[str, Any]) -> Iterator[tuple[str, Figure]]:
    """Every figure that the summary has records for, with its name."""
    drawn = {
        "lens": lens_figure,
        "attention": attention_figure,
        "alignment": alignment_figure,
        "patching": patching_figure,
        "attribution": attribution_figure,
    }
    for signal, records in summary["signals"].items():
        every = [record for record in records if record["group"] == EVERY]
        if signal in drawn and every:
            yield signal, drawn[signal](every)


def lens_figure(records: Sequence[Record]) -> Figure:
    """The answer's log-probability by layer, and how often it is on top."""
    figure = Figure((9.5, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    blue, red = OKABE_ITO[:2]
    # The embedding alone says nothing, and says it far below all layers.
    records = [record for record in records if record["layer"] >= 0]
    _line(left, records, "log_prob", "whole answer", blue)
    _line(left, records, "first_log_prob", "its first token", red)
    _line(left, records, "null_log_prob", "another prompt's", red, **NULL)
    _finish(left, "log-probability of the answer", "nats")
    _line(right, records, "said", "answer", blue)
    _finish(right, "answer on top at every token", "share of prompts")
    return figure


def attention_figure(records: Sequence[Record]) -> Figure:
    """From the last token to every role: the mass above that of shuffled roles."""
    last = [r for r in records if r["query"] == "last" and r["null_mass"] is not None]
    if not last:
        last = [record for record in records if record["query"] == "last"]
    keys = list(dict.fromkeys(record["key"] for record in last))
    figure, axes = _panels(len(keys), 4.0, 4.2)
    for ax, key in zip(axes, keys, strict=False):
        own = [record for record in last if record["key"] == key]
        heatmap(_grid(own), ax)
        ax.set_title(f"last token to {shown(key)}", fontsize=11)
    return figure


def _grid(records: Sequence[Record]) -> Measurement:
    layers = sorted({record["layer"] for record in records})
    heads = sorted({record["head"] for record in records})
    values = torch.full((len(layers), len(heads)), torch.nan)
    for record in records:
        above = record["mass"] - (record["null_mass"] or 0.0)
        values[layers.index(record["layer"]), heads.index(record["head"])] = above
    labels = {"layer": tuple(layers), "head": tuple(heads)}
    plain = all(record["null_mass"] is None for record in records)
    name = "mass" if plain else "mass above the null"
    return Measurement(values, ("layer", "head"), labels, name=name)


def alignment_figure(records: Sequence[Record]) -> Figure:
    """Centred cosines of every pair of roles, beside those of other prompts."""
    pairs = list(dict.fromkeys((r["source"], r["target"]) for r in records))
    figure, axes = _panels(len(pairs), 4.2, 3.4)
    for ax, (source, target) in zip(axes, pairs, strict=False):
        own = [r for r in records if (r["source"], r["target"]) == (source, target)]
        measure = "centred" if own[0]["centred"] is not None else "cosine"
        _line(ax, own, measure, "same prompt", OKABE_ITO[0])
        _line(ax, own, f"null_{measure}", "other prompts", OKABE_ITO[0], **NULL)
        _finish(ax, f"{shown(source)} and {shown(target)}", f"{measure} (cosine)")
    return figure


def patching_figure(records: Sequence[Record]) -> Figure:
    """The share of the answer that each place restores, beside as many other tokens."""
    figure = Figure((6.4, 4.2), layout="constrained")
    ax = figure.subplots()
    places = dict.fromkeys(record["place"] for record in records)
    for place, colour, dash in zip(
        places, cycle(OKABE_ITO), cycle(DASHES), strict=False
    ):
        own = [record for record in records if record["place"] == place]
        _line(ax, own, "recovery", shown(place), colour, linestyle=dash)
        _line(ax, own, "null_recovery", "", colour, **NULL)
    _finish(ax, "restored by the residual (dotted: elsewhere)", "share of the answer")
    return figure


def attribution_figure(records: Sequence[Record]) -> Figure:
    """The components that push the answer most, and the same after corrupt prompts."""
    ordered = sorted(records, key=lambda record: -abs(record["value"]))
    some = ordered[:SHOWN_COMPONENTS][::-1]
    figure = Figure((6.4, 0.3 * len(some) + 1.4), layout="constrained")
    ax, heights = figure.subplots(), range(len(some))
    own = [record["value"] for record in some]
    errors = [record["value_se"] or 0.0 for record in some]
    ax.barh(heights, own, xerr=errors, color=OKABE_ITO[0], label="prompt")
    corrupt = [(h, r["null_value"]) for h, r in zip(heights, some, strict=True)]
    known = [(h, value) for h, value in corrupt if value is not None]
    if known:
        ax.scatter(
            [v for _, v in known],
            [h for h, _ in known],
            color=OKABE_ITO[1],
            zorder=3,
            label="corrupt prompt",
        )
        ax.legend(fontsize=9, frameon=False)
    ax.set_yticks(heights, [record["component"] for record in some], fontsize=9)
    ax.set_xlabel("logit of the answer over the corrupt answer's")
    ax.set_title("largest direct attributions", fontsize=12)
    ax.margins(y=0.01)
    ax.spines[["top", "right"]].set_visible(False)
    return figure


def shown(name: str) -> str:
    """A name that can be drawn: no mathematics, and code points for lacking glyphs.

    >>> shown("中")
    'U+4E2D'
    """
    letters = [c if ord(c) in _glyphs() else f"U+{ord(c):04X}" for c in name]
    return "".join(letters).replace("$", r"\$")


@cache
def _glyphs() -> frozenset[int]:
    return frozenset(get_font(findfont(FontProperties())).get_charmap())


def _panels(count: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    count = min(count, MOST_PANELS)
    across = min(count, 3)
    down = -(-count // across)
    figure = Figure((width * across, height * down), layout="constrained")
    axes = list(figure.subplots(down, across, squeeze=False).flatten())
    for ax in axes[count:]:
        ax.set_axis_off()
    return figure, axes


def _line(
    ax: Axes,
    records: Sequence[Record],
    value: str,
    label: str,
    colour: str,
    **style: Any,
) -> None:
    """Means by layer, with a band of two standard errors."""
    known = [record for record in records if record[value] is not None]
    known.sort(key=lambda record: record["layer"])
    if not known:
        return
    layers = [record["layer"] for record in known]
    means = [record[value] for record in known]
    errors = [2 * (record[f"{value}_se"] or 0.0) for record in known]
    ax.plot(layers, means, color=colour, label=label or None, **style)
    low = [mean - error for mean, error in zip(means, errors, strict=True)]
    high = [mean + error for mean, error in zip(means, errors, strict=True)]
    ax.fill_between(layers, low, high, color=colour, alpha=0.2, linewidth=0)


def _finish(ax: Axes, title: str, quantity: str) -> None:
    ax.set_title(title, fontsize=11)
    before = ax.dataLim.x0 < 0
    ax.set_xlabel("layer (-1: embedding)" if before else "layer")
    ax.set_ylabel(quantity)
    ax.grid(visible=True, axis="y", alpha=0.3)
    ax.spines[["top", "right"]].set_visible(False)
    if ax.get_legend_handles_labels()[0]:
        ax.legend(fontsize=9, frameon=False)

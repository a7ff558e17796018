"""What a scan found, over all prompts: means with their errors, beside the nulls.

Tables are read shard by shard and folded into running sums, so memory does not grow
with the data.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from trained.files import sha256

from .folder import file_of
from .request import Settings
from .tables import AXES, SCHEMA, VALUES, kind_of, read

EVERY = "all"
"""The group of all prompts."""

REDUCED = {
    "lens": ("log_prob", "first_log_prob", "null_log_prob", "said", "log_rank"),
    "patching": ("change", "null_change", "gap", "product", "null_product"),
    "state": ("norm",),
}
"""What is averaged in place of a table's own values."""

Record = dict[str, Any]


def summarised(folder: Path, settings: Settings, n_shards: int) -> dict[str, Any]:
    """The summary of a scan whose shards are all there.

    Under `signals`, by signal, a record for every place on its axes and every group
    ("all" first): `n`, and of every value the mean and, as `<value>_se`, its standard
    error. Of the lens: the whole answer's log-probability (over accepted answers, that
    of any), that of its first token beside another prompt's, the share of prompts whose
    answer is on top at every token, and the mean log of its worst token's rank. Of
    patching: the ratio of means (patched - corrupt) / (clean - corrupt).
    """

    def files(name: str) -> list[Path]:
        return [file_of(folder, name, number) for number in range(n_shards)]

    every = [file for name in ("prompts", *settings.signals) for file in files(name)]
    return {
        "schema": SCHEMA,
        "prompts": sum(read(file).num_rows for file in files("prompts")),
        "signals": {s: _records(kind_of(s), files(s)) for s in settings.signals},
        "files": {str(file.relative_to(folder)): sha256(file) for file in every},
    }


def _records(kind: str, files: Iterable[Path]) -> list[Record]:
    values = list(REDUCED.get(kind, VALUES[kind]))
    axes = [a for a in AXES[kind] if a not in ("prompt", "answer", "token", "position")]
    total: pd.DataFrame | None = None
    for file in files:
        frame = _reduced(kind, read(file).to_pandas())
        sums = _sums(frame, axes, values)
        total = sums if total is None else total.add(sums, fill_value=0)
    assert total is not None
    means = _shares(total) if kind == "patching" else _means(total, values)
    order = means.index.get_level_values("group") != EVERY
    rows = means.iloc[np.argsort(order, kind="stable")].reset_index()
    return [_record(row) for row in rows.to_dict("records")]


def _reduced(kind: str, frame: pd.DataFrame) -> pd.DataFrame:
    if kind == "lens":
        return _answers(frame)
    if kind == "patching":
        change, gap = (frame[v] - frame["corrupt"] for v in ("patched", "clean"))
        null = frame["null_patched"] - frame["corrupt"]
        found = {"change": change, "null_change": null, "gap": gap}
        return frame.assign(**found, product=change * gap, null_product=null * gap)
    if kind == "state":
        norms = [float(np.linalg.norm(state)) for state in frame["state"]]
        return frame.drop(columns="state").assign(norm=np.array(norms, float))
    return frame


def _answers(frame: pd.DataFrame) -> pd.DataFrame:
    """Whole answers, and of several accepted ones the probability of any."""
    by_prompt = ["prompt", "group", "layer"]
    first = frame[frame["token"] == 0].set_index([*by_prompt, "answer"])
    grouped = frame.groupby([*by_prompt, "answer"], dropna=False, sort=False)
    whole = grouped.agg(log_prob=("log_prob", "sum"), rank=("rank", "max"))
    whole["first_log_prob"] = first["log_prob"].reindex(whole.index)
    whole["null_log_prob"] = first["null_log_prob"].reindex(whole.index)
    whole["probability"] = np.exp(whole["log_prob"].astype(float))
    prompts = whole.groupby(by_prompt, dropna=False, sort=False)
    found = prompts.agg(
        probability=("probability", "sum"),
        best=("log_prob", "max"),
        rank=("rank", "min"),
        first_log_prob=("first_log_prob", "first"),
        null_log_prob=("null_log_prob", "first"),
    ).reset_index()
    # The sum of one probability that underflows is that of its logarithm.
    several = np.log(found["probability"].where(found["probability"] > 0))
    found["log_prob"] = several.fillna(found["best"].astype(float))
    found["said"] = (found["rank"] == 1).astype(float)
    found["log_rank"] = np.log(found["rank"])
    return found


def _sums(
    frame: pd.DataFrame, axes: Sequence[str], values: Sequence[str]
) -> pd.DataFrame:
    """Number, sum and sum of squares of every value, by place, for all and by group."""
    numbers = frame[list(values)].astype(float)
    parts = {"n": numbers.notna().astype(float), "sum": numbers, "square": numbers**2}
    wide = pd.concat([part.add_prefix(f"{n} ") for n, part in parts.items()], axis=1)
    found = []
    for by in (axes[1:], axes):
        keys = [frame[axis] for axis in by]
        rows = wide.groupby(keys, observed=True).sum().reset_index()
        if by is not axes:
            rows["group"] = EVERY
        # Names of one shard are not those of another for pandas.
        named = {axis: object for axis in axes if axis not in ("layer", "head")}
        found.append(rows.astype(named).set_index(list(axes)))
    return pd.concat(found)


def _means(total: pd.DataFrame, values: Sequence[str]) -> pd.DataFrame:
    found = pd.DataFrame(index=total.index)
    found["n"] = total[f"n {values[0]}"].astype(int)
    for value in values:
        n, added = total[f"n {value}"], total[f"sum {value}"]
        mean = added / n.where(n > 0)
        spread = (total[f"square {value}"] - n * mean**2).clip(lower=0)
        found[value] = mean
        found[f"{value}_se"] = np.sqrt(spread / (n - 1).where(n > 1) / n.where(n > 1))
    return found


def _shares(total: pd.DataFrame) -> pd.DataFrame:
    """Ratios of means R = sum c / sum g of the change and the gap, and their errors.

    The error of a ratio estimator: sqrt(sum (c - R g)^2 / (n (n - 1))) / |mean g|.
    """
    found = _means(total, ["gap"])
    n, gap = total["n gap"], total["sum gap"]
    for name, null in (("recovery", ""), ("null_recovery", "null_")):
        share = total[f"sum {null}change"] / gap
        squares = total[f"square {null}change"] + share**2 * total["square gap"]
        squares -= 2 * share * total[f"sum {null}product"]
        spread = squares.clip(lower=0) / (n * (n - 1)).where(n > 1)
        found[name] = share
        found[f"{name}_se"] = np.sqrt(spread) / (gap / n).abs()
    return found


def _record(row: Mapping[Hashable, Any]) -> Record:
    """A record as JSON holds it; what is not a number is null."""
    return {
        str(name): None if isinstance(value, float) and np.isnan(value) else value
        for name, value in row.items()
    }

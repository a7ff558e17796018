"""Where two hops are answered: initial scale against rate, from the search's log.

The search ran on selection seeds (900 to 902), whose values judge nothing.
"""

import math
from collections.abc import Iterator
from typing import Any

import torch
from matplotlib.figure import Figure

from circuits.results import RESULTS
from circuits.studies.bridge.lab import BridgeLab
from probes.figures import text_heatmap
from probes.measurement import Measurement
from trained.store import read_json

from .words import TASKS

LOG = "bridge-search.json"


def phases(_lab: BridgeLab) -> Figure:
    """Two-hop accuracy by size of the initial weights and rate, on selection seeds.

    A weight with d inputs starts with a standard deviation of d to a power; the
    standard one is -0.5. Blank: not run.
    """
    figure = Figure((11, 6.4), layout="constrained")
    figure.set_label(f"the search's log (results/{LOG}); selection seeds 900 to 902")
    for row, (task, title) in enumerate(TASKS.items()):
        for column, kappa in enumerate((1, 3)):
            ax = figure.add_subplot(2, 2, 2 * row + column + 1)
            found = accuracy_grid(task, kappa)
            texts = [
                ["" if math.isnan(value) else f"{value:.2f}" for value in values]
                for values in found.values.tolist()
            ]
            text_heatmap(found, texts, ax)
            plural = "object" if kappa == 1 else "objects"
            ax.set_title(f"{title}, {kappa} {plural} per subject", fontsize=11)
            ax.images[0].set_clim(0, 1)
            for text in ax.texts:
                text.set_color("black" if text.get_text() > "0.55" else "white")
    return figure


def accuracy_grid(task: str, kappa: int) -> Measurement:
    """Mean accuracy at the last step by (gamma, rate); NaN where nothing was run."""
    runs = [run for run in _runs() if (run["task"], run["kappa"]) == (task, kappa)]
    gammas = sorted({run["gamma"] for run in runs})
    rates = sorted({run["lr"] for run in runs})
    cells = {(g, r): [float("nan")] for g in gammas for r in rates}
    for gamma, rate in cells:
        at = [x for x in runs if (x["gamma"], x["lr"]) == (gamma, rate)]
        cells[gamma, rate] = [x["ood"][-1] for x in at] or [float("nan")]
    values = [[sum(cells[g, r]) / len(cells[g, r]) for r in rates] for g in gammas]
    labels = {
        "initial std, d inputs": tuple(f"$d^{{-{g:g}}}$" for g in gammas),
        "Adam's learning rate": tuple(f"{r:g}" for r in rates),
    }
    return Measurement(
        torch.tensor(values), tuple(labels), labels, name="two-hop accuracy"
    )


def _runs() -> Iterator[dict[str, Any]]:
    """Runs of the judged model without weight decay."""
    for stage in read_json(RESULTS / LOG)["stages"]:
        for run in stage["runs"] if not stage["name"].startswith("zoo") else ():
            if run["decay"] == 0 and run.get("std") is None:
                yield {"task": "identity", **run}

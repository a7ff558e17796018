"""Errors of trained networks on unseen symbols, beside the paper's, as figures."""

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from circuits.claims import NotTested
from circuits.studies.symbols.claims.curves import COPY_HALF, CURVE, LAST_LAYER, value
from circuits.studies.symbols.claims.psychometric import CHANCE
from circuits.studies.symbols.lab import SymbolsLab
from probes.figures import OKABE_ITO
from probes.statistics import bootstrap_interval
from trained.errors import BadInput
from trained.symbols.setting import (
    Identity,
    Setting,
    copying,
    perceptron,
    psychometric,
    relation,
    settings,
)

MOST_BARS = 24
"""Settings beside the paper's numbers in one figure."""


def efficiency(lab: SymbolsLab) -> Figure:
    """Test error on unseen symbols against the number of training strings."""
    config = lab.config
    lines: dict[str, list[Setting]] = {
        "vanilla": [relation(config, n) for n in config.n],
        "$W_K W_Q^T + aI$": [relation(config, n, "a") for n in config.identity_n],
        "$W_K W_Q^T + aQ$": [relation(config, n, "aQ") for n in config.identity_n],
    }
    if config.task in config.mlp_tasks:
        names = {"MLP": "mlp", "MLP given $X X^T$": "mlp_incidence"}
        for label, model in names.items():
            lines[label] = [
                perceptron(config, config.task, n, model)  # type: ignore[arg-type]
                for n in config.mlp_n
            ]
    figure = Figure((6.8, 4.4), layout="constrained")
    ax = figure.add_subplot()
    for (label, found), colour in zip(lines.items(), OKABE_ITO, strict=False):
        _curve(lab, found, label, colour, ax)
    for arm, colour in (("none", OKABE_ITO[0]), ("a", OKABE_ITO[1])):
        told = CURVE.get(config.task, {}).get(arm, {})
        shown = {n: v for n, v in told.items() if n <= 2 * config.n[-1]}
        label = f"paper, {'vanilla' if arm == 'none' else '+aI'}"
        ax.plot(list(shown), list(shown.values()), "x:", color=colour, label=label)
    ax.axhline(1, color="grey", linewidth=0.8)
    ax.axhline(lab.config.level, color="grey", linewidth=0.8, linestyle=":")
    ax.set_xscale("log", base=2)
    ticks = sorted({*config.n, *config.identity_n})
    ax.set_xticks(ticks, [str(n) for n in ticks])
    ax.set_xlabel("training strings n (and training symbols)", fontsize=11)
    ax.set_ylabel("test MSE on unseen symbols", fontsize=11)
    ax.set_ylim(0, 1.4 * ax.get_ylim()[1])
    ax.set_title(f"data efficiency, {config.task}", fontsize=12)
    ax.legend(fontsize=8, frameon=False, loc="upper center", ncols=3)
    return figure


def _curve(
    lab: SymbolsLab, found: list[Setting], label: str, colour: str, ax: Axes
) -> None:
    """A line of means over seeds with their 95 % bootstrap intervals.

    MLPs after the last step, where they are judged; the rest at the best one.
    """
    sizes = [setting.n for setting in found]
    is_mlp = found[0].model.startswith("mlp")
    scores = lab.last_scores if is_mlp else lab.scores
    values = [torch.tensor(scores(setting)).double() for setting in found]
    ax.plot(sizes, [float(v.mean()) for v in values], "o-", color=colour, label=label)
    low, high = zip(*(bootstrap_interval(v) for v in values), strict=True)
    ax.fill_between(sizes, low, high, color=colour, alpha=0.2, linewidth=0)


def copying_error(lab: SymbolsLab) -> Figure:
    """Error of naming an unseen symbol, by width (Figure 5)."""
    config = lab.config
    figure = Figure((8.4, 3.9), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    named: tuple[tuple[str, Identity], ...] = (
        ("vanilla", "none"),
        ("$W_V W_O^T + bI$", "b"),
    )
    widths = config.copying.d_model
    for ax, (title, identity) in zip(panels, named, strict=True):
        sizes = config.copying.n if identity == "none" else (config.copying.compared_n,)
        for n, colour in zip(sizes, OKABE_ITO, strict=False):
            rows = [copying(config, d, n, identity) for d in widths]
            values = [torch.tensor(lab.scores(s, "test_error")) for s in rows]
            means = [float(v.mean()) for v in values]
            ax.plot(widths, means, "o-", color=colour, label=f"n = {n}")
            for d, found in zip(widths, values, strict=True):
                ax.scatter([d] * len(found), found, s=10, color=colour, alpha=0.6)
        ax.set_xscale("log", base=2)
        ax.set_xticks(widths, [str(d) for d in widths])
        ax.minorticks_off()
        ax.set_ylim(-0.03, 1.03)
        ax.set_xlabel("width d", fontsize=11)
        ax.set_title(f"copying, {title}", fontsize=12)
        ax.legend(fontsize=9, frameon=False)
    panels[0].set_ylabel("test error on unseen symbols", fontsize=11)
    told = ", ".join(f"{COPY_HALF[d]} (d = {d})" for d in widths if d in COPY_HALF)
    if told:
        figure.suptitle(f"paper, vanilla: n at 50 % error {told}", fontsize=10)
    return figure


def beside_paper(lab: SymbolsLab) -> Figure:
    """Every network that the paper's figures have a number for, beside that number."""
    found = {
        _label(setting): (setting, number)
        for setting in settings(lab.config)
        if (number := _papers(setting)) is not None
    }
    if not found:
        raise BadInput("the paper has no number for a network of this run")
    chosen = sorted(found.items())[:MOST_BARS]
    figure = Figure((7.6, 0.8 + 0.36 * len(chosen)), layout="constrained")
    ax = figure.add_subplot()
    for place, (_, (setting, number)) in enumerate(chosen):
        values = _measured(lab, setting)
        ax.barh(place - 0.2, sum(values) / len(values), 0.4, color=OKABE_ITO[1])
        ax.barh(place + 0.2, number, 0.4, color="0.7")
        ax.scatter(values, [place - 0.2] * len(values), s=10, color="black", zorder=3)
    ax.set_yticks(range(len(chosen)), [name for name, _ in chosen], fontsize=9)
    ax.invert_yaxis()
    ax.set_xlabel(
        "test MSE (programs of Figure 2: error) on unseen symbols", fontsize=10
    )
    ax.set_title("this run (dots: seeds) and the paper (grey)", fontsize=12)
    return figure


def _label(setting: Setting) -> str:
    own = setting.model == "transformer"
    kind: str = setting.identity if own else setting.model
    kind = "vanilla" if kind == "none" else kind
    kind = f"readout only, x{setting.head_only:g}" if setting.head_only else kind
    kind += ", scores" if setting.scaled == "scores" else ""
    kind = "mimetic" if setting.start == "mimetic" else kind
    return f"{setting.task}, n = {setting.n}, {kind}"


def _papers(setting: Setting) -> float | None:
    """The paper's number for a network."""
    if setting.optimiser == "sgd" or setting.depth == 1:
        return None
    if setting.head_only is not None:
        return LAST_LAYER.get(setting.head_only, {}).get(setting.n)
    arm: str = setting.model if setting.model != "transformer" else setting.identity
    arm = "mimetic" if setting.start == "mimetic" else arm
    return value(setting.task, arm, setting.n)


def _measured(lab: SymbolsLab, setting: Setting) -> list[float]:
    if setting.model.startswith("mlp"):
        return lab.last_scores(setting)
    return lab.scores(setting, "test_error" if setting.role == "recall" else "test")


def psychometric_error(lab: SymbolsLab) -> Figure:
    """Errors in the tests of Figure 3, by n, beside chance."""
    own = lab.config.psychometric
    if not own.n:
        raise BadInput(
            "the run has no psychometric tests: --set psychometric.n=256,2048"
        )
    figure = Figure((8.4, 3.6), layout="constrained")
    names = [*CHANCE, "raven"]
    for ax, name in zip(figure.subplots(1, 3, sharey=True), names, strict=True):
        for n, colour in zip(own.n, OKABE_ITO, strict=False):
            try:
                values = lab.scores(psychometric(lab.config, name, n), "test_error")
            except NotTested:
                continue
            ax.bar(str(n), sum(values) / len(values), color=colour)
            ax.scatter([str(n)] * len(values), values, color="black", s=12, zorder=3)
        if name in CHANCE:
            ax.axhline(CHANCE[name], color="grey", linestyle=":")
        ax.set_title(name.replace("_", " "), fontsize=11)
        ax.set_xlabel("training strings n", fontsize=10)
    figure.axes[0].set_ylabel("test error on unseen symbols", fontsize=11)
    return figure

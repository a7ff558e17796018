"""Errors of trained networks on unseen symbols, beside the paper's, as figures."""

from collections.abc import Sequence

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from circuits.claims import NotTested
from circuits.studies.symbols.claims.curves import COPY_HALF, CURVE, LAST_LAYER, value
from circuits.studies.symbols.claims.psychometric import CHANCE
from circuits.studies.symbols.lab import SymbolsLab
from probes.figures import OKABE_ITO, dot_rows, shared_legend
from probes.statistics import bootstrap_interval
from trained.errors import BadInput
from trained.symbols.setting import (
    Identity,
    Setting,
    copying,
    perceptron,
    psychometric,
    recalling,
    relation,
    settings,
)

MOST_ROWS = 24
"""Settings beside the paper's numbers in one figure."""


KINDS = {"none": "transformer", "a": "with aI", "b": "with bI", "ab": "with aI and bI"}
KINDS |= {"mlp": "MLP", "mlp_incidence": "MLP told which match"}


def efficiency(lab: SymbolsLab) -> Figure:
    """Error on unseen symbols against training strings (Figures 1c, 21 and 24).

    The paper: one scalar a per head, which adds a times the identity to the query-key
    product, needs an order less data; an MLP never generalises, unless it is told which
    tokens match (X X^T). The null has a random rotation in the identity's place.
    """
    config = lab.config
    lines: dict[str, list[Setting]] = {
        "transformer": [relation(config, n) for n in config.n],
        "with identity scaling $aI$": [
            relation(config, n, "a") for n in config.identity_n
        ],
        "null: $aQ$, $Q$ a random rotation": [
            relation(config, n, "aQ") for n in config.identity_n
        ],
    }
    if config.task in config.mlp_tasks:
        names = {"MLP": "mlp", "MLP told which match": "mlp_incidence"}
        for label, model in names.items():
            lines[label] = [
                perceptron(config, config.task, n, model)  # type: ignore[arg-type]
                for n in config.mlp_n
            ]
    figure = Figure((8.4, 5.2), layout="constrained")
    ax = figure.add_subplot()
    for (label, found), colour in zip(lines.items(), OKABE_ITO, strict=False):
        _curve(lab, found, label, colour, ax)
    for arm, colour in (("none", OKABE_ITO[0]), ("a", OKABE_ITO[1])):
        told = CURVE.get(config.task, {}).get(arm, {})
        shown = {n: v for n, v in told.items() if n <= 2 * config.n[-1]}
        label = f"paper, {'transformer' if arm == 'none' else 'with $aI$'}"
        ax.plot(list(shown), list(shown.values()), "x:", color=colour, label=label)
    ax.axhline(1, color="grey", linewidth=0.8, label="answering 0 throughout")
    level = f"{config.level:g}: strings needed are compared here"
    ax.axhline(config.level, color="grey", linewidth=0.8, linestyle=":", label=level)
    ax.set_xscale("log", base=2)
    ticks = sorted({*config.n, *config.identity_n})
    ax.set_xticks(ticks, [str(n) for n in ticks])
    ax.set_ylim(0, None)
    title = f"Strings needed to generalise, templates {config.task.replace('_', '/')}"
    ax.set_title(title, fontsize=12)
    plain(
        ax,
        "training strings n (and training symbols)",
        "squared error on unseen symbols",
    )
    shared_legend(figure, ncols=3)
    return figure


def plain(ax: Axes, x: str, y: str) -> None:
    """Names of the axes, and the look of every other figure."""
    ax.set_xlabel(x, fontsize=11)
    ax.set_ylabel(y, fontsize=11)
    ax.grid(visible=True, axis="y", alpha=0.3)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)


def _curve(
    lab: SymbolsLab,
    found: list[Setting],
    label: str,
    colour: str,
    ax: Axes,
    what: str = "test",
) -> None:
    """MLPs after the last step, where they are judged; the rest at the best one."""
    is_mlp = found[0].model.startswith("mlp")
    values = [lab.last_scores(s) if is_mlp else lab.scores(s, what) for s in found]
    line(ax, [setting.n for setting in found], values, label, colour)


def line(
    ax: Axes,
    sizes: Sequence[int],
    values: Sequence[Sequence[float]],
    label: str,
    colour: str,
) -> None:
    """A line of means over seeds with their 95 % bootstrap intervals."""
    found = [torch.tensor(several).double() for several in values]
    ax.plot(sizes, [float(v.mean()) for v in found], "o-", color=colour, label=label)
    low, high = zip(*(bootstrap_interval(v) for v in found), strict=True)
    ax.fill_between(sizes, low, high, color=colour, alpha=0.2, linewidth=0)


def copying_error(lab: SymbolsLab) -> Figure:
    """Error of naming an unseen symbol, by width (Figure 5).

    The paper: it rises with the width, until a scalar b adds b times the identity to
    the value-output product.
    """
    config = lab.config
    figure = Figure((8.4, 3.9), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    named: tuple[tuple[str, Identity], ...] = (
        ("transformer (Figure 5a)", "none"),
        ("with $bI$ (Figure 5b)", "b"),
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
        ax.set_title(f"copying, {title}", fontsize=12)
        plain(ax, "width d", "error on unseen symbols")
    panels[1].set_ylabel("")
    known = [d for d in COPY_HALF if d in widths] or list(COPY_HALF)[:3]
    told = ", ".join(f"n = {COPY_HALF[d]} at d = {d}" for d in known)
    figure.suptitle(f"paper, transformer: half wrong with {told}", fontsize=10)
    shared_legend(figure, "training strings")
    return figure


def beside_paper(lab: SymbolsLab) -> Figure:
    """Every network that the paper's Figures 2c, 16 to 22 have a number for."""
    found = {
        _label(setting): (setting, number)
        for setting in settings(lab.config)
        if (number := _papers(setting)) is not None
    }
    if not found:
        raise BadInput("the paper has no number for a network of this run")
    order = sorted(found, key=lambda name: (found[name][0].task, found[name][0].n))
    chosen = {name: found[name] for name in order[:MOST_ROWS]}
    values = [_measured(lab, setting) for setting, _ in chosen.values()]
    figure = Figure((8, 1.6 + 0.4 * len(chosen)), layout="constrained")
    told = {name: number for name, (_, number) in chosen.items()}
    series = {"this run (whiskers: seeds)": values}
    ax = dot_rows(list(chosen), series, paper=told, ax=figure.add_subplot())
    ax.set_xlabel("squared error (programs of Figure 2: error) on unseen symbols")
    title = "Error of trained networks, beside the paper's\n"
    title += "(aI, bI: identity scaling of query-key, value-output product)"
    ax.set_title(title, fontsize=12)
    shared_legend(figure)
    return figure


def _label(setting: Setting) -> str:
    own = setting.model == "transformer"
    kind: str = setting.identity if own else setting.model
    kind = KINDS.get(kind, kind)
    kind = f"readout only, x{setting.head_only:g}" if setting.head_only else kind
    kind += ", scores" if setting.scaled == "scores" else ""
    kind = "mimetic" if setting.start == "mimetic" else kind
    return f"{setting.task.replace('_', '/')}, n = {setting.n}, {kind}"


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


def programs(lab: SymbolsLab) -> Figure:
    """Recall of a value by its name against training strings (Figure 2c).

    The paper: both scalars together learn it from far fewer strings.
    """
    own = lab.config.recall
    if not own.n:
        raise BadInput("the run recalls no values: --set recall.n=4096")
    figure = Figure((7.2, 4.6), layout="constrained")
    ax = figure.add_subplot()
    arms: tuple[tuple[Identity, str], ...] = (
        ("none", "transformer"),
        ("ab", "with $aI$ and $bI$"),
        ("a", "with $aI$"),
        ("b", "with $bI$"),
    )
    trained = settings(lab.config)
    for (arm, label), colour in zip(arms, OKABE_ITO, strict=False):
        found = [recalling(lab.config, n, arm) for n in own.n]
        if found := [setting for setting in found if setting in trained]:
            _curve(lab, found, label, colour, ax, "test_error")
        told = CURVE["figure2"].get(arm, {})
        if told:
            name = f"paper, {label}"
            ax.plot(list(told), list(told.values()), "x:", color=colour, label=name)
    ax.set_xscale("log", base=2)
    ax.set_ylim(-0.03, 1.03)
    ax.set_title(f"recall of a value, {own.depth} layers", fontsize=12)
    plain(ax, "training strings n", "error on unseen symbols")
    shared_legend(figure, ncols=2)
    return figure


def psychometric_error(lab: SymbolsLab) -> Figure:
    """Errors in the psychometric tests (Figure 3) by training strings."""
    own = lab.config.psychometric
    if not own.n:
        raise BadInput(
            "the run has no psychometric tests: --set psychometric.n=256,2048"
        )
    figure = Figure((10, 4), layout="constrained")
    names = [*CHANCE, "raven"]
    for ax, name in zip(figure.subplots(1, 3, sharey=True), names, strict=True):
        found = [psychometric(lab.config, name, n) for n in own.n]
        try:
            _curve(lab, found, "this run", OKABE_ITO[0], ax, "test_error")
        except NotTested:
            ax.set_xlabel("not trained")
        if name in CHANCE:
            ax.axhline(CHANCE[name], color="grey", linestyle=":", label="chance")
        ax.set_xscale("log", base=2)
        ax.set_xticks(own.n, [str(n) for n in own.n])
        ax.set_xticks([], minor=True)
        ax.set_ylim(-0.03, 1.03)
        ax.set_title(name.replace("_", " "), fontsize=11)
        plain(ax, "training strings n", "error on unseen symbols")
    shared_legend(figure)
    return figure

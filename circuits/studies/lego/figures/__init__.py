"""The figures of the lego study, by kind; each is drawn from a lab."""

from collections.abc import Callable, Mapping, Sequence

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from circuits.studies.lego.lab import LegoLab
from circuits.studies.lego.lab.models import Specimen
from probes.figures import OKABE_ITO, bars, curve
from probes.measurement import Measurement
from trained.errors import BadInput
from trained.lego.action import action
from trained.lego.arms import BASE, LONGER, round_name, saved_step
from trained.lego.config import first_of_kind
from trained.lego.theory_arms import Course

from .paper import PAPER_FIGURES, heat

HALVES = ("V(g)", "V(y)", "V(g')", "V(y')")


def length(lab: LegoLab) -> Figure:
    """Accuracy of the folded model against length, for every group."""
    config = lab.config
    groups = (*config.groups, *config.extra_groups)
    figure, ax = _single()
    rows = {action(group).slug: lab.folded(group) for group in groups}
    _length_lines(lab, rows, "group", ax)
    steps = config.folded.steps
    ax.set_title(f"folded model, {steps} steps of attention training", fontsize=12)
    return figure


def selftrain(lab: LegoLab) -> Figure:
    """Accuracy against length after every round of self-training."""
    config = lab.config
    figure, ax = _single()
    if config.self_group is None:
        ax.set_title("this run does not train itself", fontsize=12)
        return figure
    own, first = config.self_training, config.train_length
    rows = {f"trained at {first}": lab.self_trained(BASE)}
    rows |= {
        f"then self-trained at {n}": lab.self_trained(round_name(n))
        for n in own.lengths
    }
    extra = own.steps * len(own.lengths)
    rows[f"instead {extra} more steps at {first}"] = lab.self_trained(LONGER)
    _length_lines(lab, rows, "attention", ax)
    name = action(config.self_group).slug
    ax.set_title(f"{name}, rounds of {own.steps} steps", fontsize=12)
    return figure


def training(lab: LegoLab) -> Figure:
    """Concentration, balance and the value's loss over training."""
    config = lab.config
    slugs = tuple(action(group).slug for group in config.groups)
    stored = [lab.metrics(slug) for slug in slugs]
    steps = stored[0]["step"] - saved_step(config, 0)
    kept = (steps >= 0) & (steps <= config.folded.budgets[-1])
    panels: dict[str, Callable[[Mapping[str, Tensor]], Tensor]] = {
        "misplaced attention eps": lambda m: 1 - m["predicate"] - m["answer"],
        "attention on predicate minus answer": lambda m: m["predicate"] - m["answer"],
        "loss of the value (nats)": lambda m: m["value_loss"],
    }
    figure = Figure((12, 4.2), layout="constrained")
    for ax, (label, quantity) in zip(
        figure.subplots(1, len(panels)), panels.items(), strict=True
    ):
        measured = Measurement(
            torch.stack([quantity(metrics)[:, kept] for metrics in stored]),
            ("group", "seed", "step of attention training"),
            labels={
                "group": slugs,
                "step of attention training": tuple(steps[kept].tolist()),
            },
            name=label,
        )
        curve(measured, x="step of attention training", hue="group", ax=ax)
        ax.set_title(label, fontsize=12)
        if "minus" in label:
            ax.axhline(0, color="grey", linewidth=0.8)
        else:
            ax.set_yscale("log")
    figure.suptitle(f"length {config.train_length}, FFN frozen", fontsize=12)
    return figure


def attention(lab: LegoLab) -> Figure:
    """Mean attention at the training length, predicates in order and not."""
    groups, n = lab.config.groups, lab.config.train_length
    figure = Figure((max(12, 2.2 * n), 3.4 * len(groups)), layout="constrained")
    grid = figure.subplots(len(groups), 2, squeeze=False)
    shuffled = torch.randperm(n, generator=torch.Generator().manual_seed(0))
    for row, group in zip(grid, groups, strict=True):
        specimen = lab.folded(group)[0]
        for ax, places in zip(row, (torch.arange(n), shuffled), strict=True):
            heat(lab, specimen, places, ax)
    return figure


def dose(lab: LegoLab) -> Figure:
    """Accuracy against attention that is spread elsewhere by hand."""
    groups, doses = lab.config.groups, lab.config.test.doses
    values = [
        [lab.dosed(lab.folded(group), amount) for amount in doses] for group in groups
    ]
    measured = Measurement(
        torch.tensor(values),
        ("group", "misplaced attention eps", "seed"),
        labels={
            "group": tuple(action(group).slug for group in groups),
            "misplaced attention eps": doses,
        },
        name="right values per step",
    )
    figure, ax = _single()
    curve(measured, x="misplaced attention eps", hue="group", ax=ax)
    for number, group in enumerate(groups):
        chance = 1 / action(group).n_values
        colour = OKABE_ITO[number % len(OKABE_ITO)]
        ax.axhline(chance, color=colour, linestyle=":", linewidth=1)
    ax.set_ylim(0, 1.04)
    title = f"length {lab.dose_length}; dotted: chance of each group"
    ax.set_title(title, fontsize=12)
    return figure


def theory(lab: LegoLab) -> Figure:
    """Both diagonals of Q over training, its phases, and K after every round."""
    groups = lab.config.theory.groups
    simple, other = (first_of_kind(groups, simply=simply) for simply in (True, False))
    if simple is None or other is None:
        raise BadInput("this run has no theory models of both kinds")
    figure = Figure((13, 4), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    _diagonals(lab, (simple, other), left)
    _lead(lab, simple, middle)
    _sharpness(lab, other, right)
    return figure


def _diagonals(lab: LegoLab, groups: tuple[str, str], ax: Axes) -> None:
    lines, names = [], []
    for group in groups:
        history = lab.history(group, "attention")
        for block in ("Q43", "Q44"):
            lines.append(history[f"diagonal{block}"])
            names.append(f"{action(group).slug}, {block}")
    measured = Measurement(
        torch.stack(lines),
        ("block", "seed", "step"),
        labels={"block": tuple(names), "step": tuple(history["step"].tolist())},
        name="mean diagonal entry",
    )
    curve(measured, x="step", hue="block", ax=ax)
    ax.set_title("Algorithm 1, both steps of L = 2", fontsize=12)


def _lead(lab: LegoLab, group: str, ax: Axes) -> None:
    step = tuple(lab.history(group, "gentle")["step"].tolist())
    measured = Measurement(
        lab.lead(group),
        ("seed", "step"),
        labels={"step": step},
        name="diagonal of Q43 minus Q44",
    )
    curve(measured, x="step", ax=ax)
    ax.axhline(0, color="grey", linewidth=0.8)
    ax.set_title(f"{action(group).slug}, small uncapped steps", fontsize=12)


def _sharpness(lab: LegoLab, group: str, ax: Axes) -> None:
    rounds = Course(lab.config, group).rounds
    stages = ["second-step", "longer", *(f"round-{n}" for n in rounds)]
    names = ["L = 2", "longer\nat L = 2", *(f"self\nL = {n}" for n in rounds)]
    measured = Measurement(
        torch.tensor([lab.sharpness(lab.theory(group, stage)) for stage in stages]),
        ("attention after", "seed"),
        labels={"attention after": tuple(names)},
        name="K",
    )
    bars(measured, x="attention after", ax=ax)
    ax.set_title(f"{action(group).slug}, Algorithm 2", fontsize=12)


def features(lab: LegoLab) -> Figure:
    """The theory's learned features in units of the clip (eqs. 17 and 18)."""
    sizes = lab.config.theory
    if not sizes.groups:
        raise BadInput("this run has no theory models")
    groups = tuple(dict.fromkeys((*sizes.groups, *sizes.feature_groups)))
    values = [[list(f.halves) for f in lab.features(group)] for group in groups]
    measured = Measurement(
        torch.tensor(values),
        ("group", "seed", "half"),
        labels={"group": tuple(action(g).slug for g in groups), "half": HALVES},
        name="mean weight in units of B",
    )
    figure, ax = _single()
    bars(measured, x="half", hue="group", ax=ax)
    ax.axhline(0, color="black", linewidth=0.8)
    ax.set_title("right halves, then wrong halves, of value neurons", fontsize=12)
    return figure


FIGURES: dict[str, Callable[[LegoLab], Figure]] = {
    "length": length,
    "selftrain": selftrain,
    "training": training,
    "attention": attention,
    "dose": dose,
    "theory": theory,
    "features": features,
    **PAPER_FIGURES,
}


def _single() -> tuple[Figure, Axes]:
    figure = Figure((7, 4.2), layout="constrained")
    return figure, figure.add_subplot()


def _length_lines(
    lab: LegoLab, rows: Mapping[str, Sequence[Specimen]], hue: str, ax: Axes
) -> None:
    """`all` against length, one line per row, the training length marked."""
    values = [
        [list(lab.all_by_length(s).values()) for s in specimens]
        for specimens in rows.values()
    ]
    lengths, trained = lab.config.lengths, lab.config.train_length
    measured = Measurement(
        torch.tensor(values),
        (hue, "seed", "length"),
        labels={hue: tuple(rows), "length": lengths},
        name="share of chains all right",
    )
    curve(measured, x="length", hue=hue, ax=ax)
    ax.set_ylim(-0.04, 1.04)
    ax.set_xscale("log", base=2)
    ax.set_xticks(lengths, [str(length) for length in lengths])
    ax.set_xticks([], minor=True)
    ax.set_xlim(min(lengths[0], trained) / 2**0.3, lengths[-1] * 2**0.2)
    ax.axvline(trained, color="grey", linestyle=":", linewidth=1)
    place = (trained * 2**0.06, 0.02)
    ax.annotate("training length", place, color="grey", fontsize=9, rotation=90)

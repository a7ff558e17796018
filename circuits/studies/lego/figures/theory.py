"""The theory's models, drawn: attention over training, rounds, features."""

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from circuits.studies.lego.context import Context
from circuits.studies.lego.features import features as read_features
from circuits.studies.lego.specimen import each
from circuits.studies.lego.theory_models import Theory, sharp
from probes.figures import bars, curve
from probes.measurement import Measurement
from trained.errors import BadInput
from trained.lego.theory_arms import Course
from trained.store import Run

HALVES = ("V(g)", "V(y)", "V(g')", "V(y')")


def theory(run: Run) -> Figure:
    """Both diagonals of Q over training, its phases, and K after every round."""
    models = Theory(Context(run))
    simple, other = models.course("simple"), models.course("other")
    if simple is None or other is None:
        raise BadInput("this run has no theory models of both kinds")
    figure = Figure((13, 4), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    _diagonals(models, [simple, other], left)
    _lead(models, simple, middle)
    _sharpness(models, other, right)
    return figure


def features(run: Run) -> Figure:
    """The learned features in units of the clip (eqs. 17 and 18)."""
    models = Theory(Context(run))
    if not models.config.theory_groups:
        raise BadInput("this run has no theory models")
    figure = Figure((7.5, 4.2), layout="constrained")
    ax = figure.subplots()
    courses = list(models.courses.values())
    values = [
        [list(read_features(m, course).halves) for m in models.ffns(course)]
        for course in courses
    ]
    measured = Measurement(
        torch.tensor(values),
        ("group", "seed", "half"),
        labels={"group": tuple(c.action.slug for c in courses), "half": HALVES},
        name="mean weight in units of B",
    )
    bars(measured, x="half", hue="group", ax=ax)
    ax.axhline(0, color="black", linewidth=0.8)
    ax.set_title("right halves, then wrong halves, of value neurons", fontsize=12)
    return figure


def _diagonals(models: Theory, courses: list[Course], ax: Axes) -> None:
    lines, names = [], []
    for course in courses:
        history = models.history(course, "attention")
        for block in ("Q43", "Q44"):
            lines.append(history[f"diagonal{block}"])
            names.append(f"{course.action.slug}, {block}")
    step = models.history(courses[0], "attention")["step"].tolist()
    measured = Measurement(
        torch.stack(lines),
        ("block", "seed", "step"),
        labels={"block": tuple(names), "step": tuple(step)},
        name="mean diagonal entry",
    )
    curve(measured, x="step", hue="block", ax=ax)
    ax.set_title("Algorithm 1, both steps of L = 2", fontsize=12)


def _lead(models: Theory, course: Course, ax: Axes) -> None:
    history = models.history(course, "gentle")
    lead = history["diagonalQ43"] - history["diagonalQ44"]
    measured = Measurement(
        lead,
        ("seed", "step"),
        labels={"step": tuple(history["step"].tolist())},
        name="diagonal of Q43 minus Q44",
    )
    curve(measured, x="step", ax=ax)
    ax.axhline(0, color="grey", linewidth=0.8)
    ax.set_title(f"{course.action.slug}, small uncapped steps", fontsize=12)


def _sharpness(models: Theory, course: Course, ax: Axes) -> None:
    stages = ["second-step", "longer", *(f"round-{n}" for n in course.rounds)]
    names = ["L = 2", "longer\nat L = 2", *(f"self\nL = {n}" for n in course.rounds)]
    values = [each(models.after(course, stage), sharp) for stage in stages]
    measured = Measurement(
        torch.tensor(values),
        ("attention after", "seed"),
        labels={"attention after": tuple(names)},
        name="K",
    )
    bars(measured, x="attention after", ax=ax)
    ax.set_title(f"{course.action.slug}, Algorithm 2", fontsize=12)

"""The recall study's figures, drawn from a lab."""

import torch
from matplotlib.figure import Figure

from probes.figures import attention_rows, bars, curve
from probes.measurement import Measurement
from trained.config import require

from .lab import RecallLab

ROWS = ("step 1, EoS asks", "step 2, relation asks")


def attention(lab: RecallLab) -> Figure:
    """Figures 2 and 4: attention rows of every model that was trained, first seed."""
    arms = [
        arm
        for arm in lab.settings
        if arm.split("-")[0] in ("full", "triple", "fig4a", "fig4b")
    ]
    n_rows = -(-len(arms) // 2)
    figure = Figure(figsize=(13, 3.2 * n_rows), layout="constrained")
    axes = figure.subplots(n_rows, 2, squeeze=False).flatten()
    for ax in axes[len(arms) :]:
        ax.set_axis_off()
    for ax, arm in zip(axes, arms, strict=False):
        attention_rows(attention_measurement(lab, arm), ax)
        ax.set_title(title_of(lab, arm))
    figure.suptitle(
        f"Attention after fine-tuning, n={lab.config.n_subjects}, "
        f"seed {lab.seeds[0]}, mean over unseen prompts"
    )
    return figure


def title_of(lab: RecallLab, arm: str) -> str:
    """What an arm shows, and the figure of the paper that it is."""
    kind, *rest = arm.split("-")
    named = {
        "full-random": "Figure 2(a)",
        "full-affine": "affine table (ours)",
        "triple": "Figure 2(b)",
        "fig4a": "Figure 4(a)",
        "fig4b": "Figure 4(b)",
    }
    name = named.get(arm) or ", ".join([named[kind], *rest[:1]])
    if kind == "fig4a":
        name += f", width {int(rest[1]) * lab.config.n_subjects**2}"
    return f"{name}, T={lab.settings[arm].temperature:g}"


def attention_measurement(lab: RecallLab, arm: str) -> Measurement:
    """The two attention rows of Figure 2, averaged over prompts of the first seed."""
    seed = lab.seeds_of(arm)[0]
    rows = [lab.attention(arm, seed, step) for step in ("relation", "answer")]
    # The first step has no relation token yet: its cell stays blank.
    first = torch.cat([rows[0], rows[0].new_tensor([torch.nan])])
    keys = key_labels(lab.settings[arm].n_examples)
    return Measurement(
        values=torch.stack([first, rows[1]]),
        axes=("query", "key"),
        labels={"query": ROWS, "key": keys},
        name="attention",
        provenance={"prompts": lab.config.n_test},
    )


def key_labels(n_examples: int) -> tuple[str, ...]:
    """Names of the prompt's positions."""
    pairs = [f"{kind}{i + 1}" for i in range(n_examples) for kind in ("s", "a")]
    return (*pairs, f"s{n_examples + 1}", "EoS", "r*")


def dynamics(lab: RecallLab) -> Figure:
    """Algorithm 1 with three subjects: to the saddle, then one pair wins."""
    course, warmup = lab.metrics("warmup"), lab.config.warmup
    steps, keys = course["step"], key_labels(2)[:-1]
    path = torch.stack([course[f"key{i}"][0] for i in range(len(keys))])
    figure = Figure(figsize=(11, 4.6), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    titles = "stage 1: symmetric gradient descent", "stage 2: after a perturbation"
    for stage, (ax, title) in enumerate(zip(axes, titles, strict=True)):
        inside = (steps >= warmup.saddle) == bool(stage)
        since = (steps[inside] - stage * warmup.saddle) * warmup.stride
        measured = Measurement(
            values=path[:, inside],
            axes=("key", "step"),
            labels={"key": keys, "step": tuple(since.tolist())},
            name="attention of EoS",
        )
        curve(measured, x="step", hue="key", ax=ax)
        ax.set_xscale("symlog", linthresh=10)
        ax.set_xlabel("gradient step of the stage")
        ax.set_title(title)
    t, seed = warmup.temperatures[0], lab.seeds_of("warmup")[0]
    figure.suptitle(f"Algorithm 1, three subjects, T={t:g}, seed {seed}, first draw")
    return figure


def learning(lab: RecallLab) -> Figure:
    """Figure 3: accuracy over the ceiling against the number of prompts."""
    tables = lab.config.samples.subjects
    require(bool(tables), "prompts: this run has no samples.subjects")
    figure = Figure(figsize=(6.2 * len(tables), 8.6), layout="constrained")
    rows = figure.subplots(2, len(tables), sharey=True, squeeze=False)
    for column, n in zip(rows.T, tables, strict=True):
        for ax, what in zip(column, ("relative", "answered"), strict=True):
            curve(learning_curve(lab, n, what), x="prompts", hue="reading", ax=ax)
            ax.set_xscale("log", base=2)
            ax.set_xlabel("fine-tuning prompts")
            ax.axvline(8, color="0.8", zorder=0)
        for name, style in (("uniform", ":"), ("saddle", "--")):
            values = lab.baseline(n, saddle=name == "saddle")
            level = sum(values) / len(values)
            label = f"{name} attention"
            column[0].axhline(level, color="0.4", linestyle=style, label=label)
        column[0].set_ylabel("relation accuracy / Bayes ceiling")
        column[0].set_title(f"step 1, random table, n={n} (paper: 1 from 8 prompts on)")
        column[1].set_ylabel("answer accuracy given the relation")
        column[1].set_title(f"step 2, random table, n={n} (paper: 1 throughout)")
        for ax in column:
            ax.legend()
    figure.suptitle("Whole W_KQ, fixed prompts (mean and 95 % interval over seeds)")
    return figure


def learning_curve(lab: RecallLab, n_subjects: int, what: str) -> Measurement:
    """A quantity of Figure 3 by reading, number of prompts and seed."""
    sizes = lab.config.samples.sizes
    readings = [f"T={t:g}, init {s:g}" for t, s in lab.config.samples.readings]
    values = [
        [lab.sampled(f"whole-{n_subjects}-{count}", what, i) for count in sizes]
        for i in range(len(readings))
    ]
    return Measurement(
        values=torch.tensor(values),
        axes=("reading", "prompts", "seed"),
        labels={"reading": tuple(readings), "prompts": sizes, "seed": lab.seeds},
        name=f"{what}, random table, n={n_subjects}",
        provenance={"run": str(lab.run.path)},
    )


def few(lab: RecallLab) -> Figure:
    """Theorem 3: probability on confusing prompts against the number of prompts."""
    wanted = lab.config.few
    require(bool(wanted.temperatures), "few: this run has no few.temperatures")
    figure = Figure(figsize=(6.2 * len(wanted.temperatures), 4.8), layout="constrained")
    axes = figure.subplots(1, len(wanted.temperatures), squeeze=False)[0]
    for ax, t in zip(axes, wanted.temperatures, strict=True):
        values = [
            [lab.few("confusing", t, n, size) for size in wanted.sizes]
            for n in wanted.subjects
        ]
        measured = Measurement(
            values=torch.tensor(values),
            axes=("n", "prompts", "draw"),
            labels={"n": wanted.subjects, "prompts": wanted.sizes},
            name="mean p on confusing prompts",
        )
        curve(measured, x="prompts", hue="n", band="draw", ax=ax)
        ax.set_xscale("log", base=2)
        ax.set_xlabel("fine-tuning prompts")
        ax.set_title(f"quarter tables, T={t:g} (paper: >= .999 at any n)")
    figure.suptitle("Algorithm 1 from few prompts (mean and 95 % interval over draws)")
    return figure


def causes(lab: RecallLab) -> Figure:
    """What the relation's accuracy loses without a word or a fact."""
    require(lab.config.n_examples == 2, "causes: drawn for n_examples=2 only")
    words = {"s1": "subject0", "a1": "answer0", "s2": "subject1", "a2": "answer1"}
    words |= {"query": "query", "EoS": "end"}
    values = {f"without {name}": lab.without(role) for name, role in words.items()}
    values["fact 1 silenced"] = lab.silenced(0)
    values["fact 2 silenced"] = lab.silenced(1)
    values["others silenced"] = lab.silenced(None)
    measured = Measurement(
        values=torch.tensor(list(values.values())),
        axes=("intervention", "seed"),
        labels={
            "intervention": tuple(values),
            "seed": lab.seeds_of("full-affine"),
        },
        name="relation accuracy",
    )
    figure = Figure(figsize=(11, 4.8), layout="constrained")
    ax = bars(measured, x="intervention", ax=figure.subplots())
    ax.set_ylim(0, 1.05)
    ax.tick_params(axis="x", rotation=30)
    ax.set_title("Interventions on attention and memory, affine table")
    return figure


FIGURES = {
    "attention": attention,
    "causes": causes,
    "dynamics": dynamics,
    "few": few,
    "prompts": learning,
}

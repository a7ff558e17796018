"""The recall study's figures, drawn from a lab."""

from collections.abc import Sequence

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from probes.figures import OKABE_ITO, attention_rows, curve, dots, shared_legend
from probes.measurement import Measurement
from trained.config import require

from .lab import RecallLab

ROWS = (
    "step 1: EoS asks\nfor the relation",
    "step 2: the relation\nasks for the answer",
)
WORDS = "si ai: example i, last s: the question, r*: relation"
SADDLE = 0.25
"""The weight of each word of the examples where stage 1 ends (Lemma 5)."""
CERTAIN = 0.999
"""What the paper says of few prompts (Theorem 3)."""
ENOUGH = 8
"""Prompts that the paper says are enough (Figure 3)."""


def attention(lab: RecallLab) -> Figure:
    """Figures 2 and 4: the two rows of attention after fine-tuning, first seed."""
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
    found = [attention_measurement(lab, arm) for arm in arms]
    top = max((float(one.values.nan_to_num().max()) for one in found), default=1.0)
    for ax, arm, measured in zip(axes, arms, found, strict=False):
        attention_rows(measured, ax, top=top)
        ax.set_title(title_of(lab, arm))
        ax.set(xlabel=f"word ({WORDS})", ylabel="")
    figure.suptitle(
        f"Attention after fine-tuning, {lab.config.n_subjects} subjects, seed"
        f" {lab.seeds[0]}, mean over unseen prompts\n(paper: in step 1 the two words of"
        " an example weigh the same, the examples differ)"
    )
    return figure


def title_of(lab: RecallLab, arm: str) -> str:
    """What an arm shows, and the figure of the paper that it is."""
    kind, *rest = arm.split("-")
    named = {
        "full-random": "Figure 2(a), random facts",
        "full-affine": "affine facts (ours)",
        "triple": "Figure 2(b)",
        "fig4a": "Figure 4(a)",
        "fig4b": "Figure 4(b)",
    }
    name = named.get(arm) or named[kind]
    if kind == "fig4a":
        name += f", {int(rest[1]) * lab.config.n_subjects**2} neurons"
    before = f"after {lab.config.pretrained.warm:g} in pretraining"
    phases = {
        "caption": "in both phases",
        "warm": before,
        "decay": f"{before} with decay (ours)",
    }
    phase = f" {phases[rest[0]]}" if kind.startswith("fig4") else ""
    return f"{name}, temperature {lab.settings[arm].temperature:g}{phase}"


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
    """Algorithm 1 with three subjects: to the saddle, then one example wins.

    Stage 1 ends with equal weight on all four words of the examples (a saddle, Lemma
    5); after a small perturbation the words of one example get the same larger weight.
    """
    course, warmup = lab.metrics("warmup"), lab.config.warmup
    steps, keys = course["step"], key_labels(2)[:-1]
    words = ("subject 1", "answer 1", "subject 2", "answer 2", "question", "EoS")
    figure = Figure(figsize=(11, 4.8), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    titles = "stage 1: symmetric gradient descent", "stage 2: after a perturbation"
    for stage, (ax, title) in enumerate(zip(axes, titles, strict=True)):
        inside = (steps >= warmup.saddle) == bool(stage)
        since = (steps[inside] - stage * warmup.saddle) * warmup.stride
        for number, word in enumerate(words[: len(keys)]):
            # The first of two equal lines is wider, so that both are seen.
            pair, second = divmod(number, 2)
            line = ax.plot(since, course[f"key{number}"][0][inside], "-:"[second])[0]
            line.set(color=OKABE_ITO[pair], linewidth=(5, 3, 1.8)[pair], label=word)
            line.set_alpha(0.5 if pair == 0 else 1)
        ax.axhline(SADDLE, color="grey", linewidth=0.8, label="saddle: 1/4 each")
        ax.set_xscale("symlog", linthresh=10)
        ax.set_xlim(0, None)
        ax.set_xlabel("gradient step of the stage", fontsize=11)
        ax.set_title(title, fontsize=12)
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(visible=True, axis="y", alpha=0.3)
    axes[0].set_ylabel("attention of EoS on a word", fontsize=11)
    t, seed = warmup.temperatures[0], lab.seeds_of("warmup")[0]
    told = f"three subjects, temperature {t:g}, seed {seed}, first draw"
    figure.suptitle(f"What EoS looks at while Algorithm 1 trains it: {told}")
    shared_legend(figure, ncols=7)
    return figure


def learning(lab: RecallLab) -> Figure:
    """Figure 3: accuracy over what is possible, against the number of prompts.

    The whole matrix W_KQ is trained on fixed prompts; the paper leaves temperature and
    initial weights open, so that several readings are shown.
    """
    tables = lab.config.samples.subjects
    require(bool(tables), "prompts: this run has no samples.subjects")
    figure = Figure(figsize=(6.2 * len(tables), 8.6), layout="constrained")
    rows = figure.subplots(2, len(tables), sharey=True, squeeze=False)
    sizes = lab.config.samples.sizes
    for column, n in zip(rows.T, tables, strict=True):
        for ax, what in zip(column, ("relative", "answered"), strict=True):
            curve(learning_curve(lab, n, what), x="prompts", hue="reading", ax=ax)
            _by_prompts(ax, sizes)
            first = ENOUGH if what == "relative" else sizes[0]
            ends = (first, max(sizes[-1], first))
            ax.plot(ends, (1, 1), color="0.5", linewidth=6, alpha=0.4, label="paper")
        even = {
            "step 1, all words alike": ":",
            "step 1, the examples' words alike": "--",
        }
        for label, style in even.items():
            values = lab.baseline(n, saddle=style == "--")
            level = sum(values) / len(values)
            column[0].axhline(level, color="0.4", linestyle=style, label=label)
        column[0].set_ylabel("right relations / best possible")
        column[0].set_title(f"step 1, the relation: {n} subjects")
        column[1].set_ylabel("right answers, given the relation")
        column[1].set_title(f"step 2, the answer: {n} subjects")
    figure.suptitle("Right on unseen prompts, by fine-tuning prompts (paper: Figure 3)")
    shared_legend(figure, ncols=2)
    return figure


def _by_prompts(ax: Axes, sizes: Sequence[int]) -> None:
    ax.set_xscale("log", base=2)
    ax.set_xticks(sizes, [str(size) for size in sizes])
    ax.set_xticks([], minor=True)
    ax.set_xlabel("fine-tuning prompts")


def learning_curve(lab: RecallLab, n_subjects: int, what: str) -> Measurement:
    """A quantity of Figure 3 by reading, number of prompts and seed."""
    sizes = lab.config.samples.sizes
    readings = [
        f"temperature {t:g}, initial std {s:g}" for t, s in lab.config.samples.readings
    ]
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
    """Theorem 3: the relation on confusing prompts against the number of prompts.

    A prompt is confusing if another relation swaps the answers of its two examples.
    Mean and 95 % interval over draws.
    """
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
            axes=("subjects", "prompts", "draw"),
            labels={"subjects": wanted.subjects, "prompts": wanted.sizes},
            name="mean probability of the right relation",
        )
        curve(measured, x="prompts", hue="subjects", band="draw", ax=ax)
        ax.axhline(CERTAIN, color="0.5", linewidth=6, alpha=0.4, label="paper")
        _by_prompts(ax, wanted.sizes)
        ax.set_title(
            "The relation of confusing prompts, after few others\n"
            f"(a quarter of all affine relations, temperature {t:g})"
        )
    shared_legend(figure, "subjects (paper: 0.999 at any number)")
    return figure


def causes(lab: RecallLab) -> Figure:
    """What is left of the relation without a word, or without a fact of the memory."""
    require(lab.config.n_examples == 2, "causes: drawn for n_examples=2 only")
    intact = {"no edit": lab.relation_accuracy("full-affine")}
    words = {
        "subject 1": "subject0",
        "answer 1": "answer0",
        "subject 2": "subject1",
        "answer 2": "answer1",
        "control: the question": "query",
        "control: EoS": "end",
    }
    facts = {"fact of example 1": 0, "fact of example 2": 1}
    panels = {
        "EoS cannot see a word": intact
        | {name: lab.without(role) for name, role in words.items()},
        "a fact's neuron silenced in the memory": intact
        | {name: lab.silenced(example) for name, example in facts.items()}
        | {"control: two other facts": lab.silenced(None)},
    }
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    axes = figure.subplots(1, 2, sharex=True)
    for ax, (title, values) in zip(axes, panels.items(), strict=True):
        measured = Measurement(
            values=torch.tensor(list(values.values())),
            axes=("edit", "seed"),
            labels={"edit": tuple(values), "seed": lab.seeds_of("full-affine")},
            name="share of prompts with the right relation",
        )
        dots(measured, y="edit", ax=ax).set_title(title, fontsize=12)
        ax.set_xlim(-0.05, 1.05)
    figure.suptitle("Affine facts: is the relation still inferred after an edit?")
    return figure

"""The recall study's figures, drawn from a run."""

import torch
from matplotlib.figure import Figure

from probes.figures import attention_rows, bars, curve
from probes.measurement import Measurement
from trained.config import require
from trained.recall.algorithm import Schedule
from trained.recall.model import RecallModel
from trained.recall.prompts import Prompts
from trained.recall.setting import triple_table, unseen_prompts
from trained.store import Run

from . import causal, samples, warmup
from .context import Context
from .patterns import mean_attention

ROWS = ("step 1, EoS asks", "step 2, relation asks")


def attention(run: Run) -> Figure:
    """Figures 2 and 4: attention rows of every model that was trained, first seed."""
    context = Context(run)
    panels = _attention_panels(context)
    n_rows = -(-len(panels) // 2)
    figure = Figure(figsize=(13, 3.2 * n_rows), layout="constrained")
    axes = figure.subplots(n_rows, 2, squeeze=False).flatten()
    for ax in axes[len(panels) :]:
        ax.set_axis_off()
    for ax, (title, measured) in zip(axes, panels.items(), strict=False):
        attention_rows(measured, ax)
        ax.set_title(title)
    figure.suptitle(
        f"Attention after fine-tuning, n={context.config.n_subjects}, "
        f"seed {context.seeds[0]}, mean over unseen prompts"
    )
    return figure


def _attention_panels(context: Context) -> dict[str, Measurement]:
    config, seed = context.config, context.seeds[0]
    panels = {
        f"{mode} fine-tuning, {kind} table, T={config.temperature:g}": (
            attention_measurement(
                context.fine_tuned(mode, kind, seed), context.prompts(kind, seed)
            )
        )
        for kind in ("affine", "random")
        for mode in ("partial", "full")
    }
    for arm in context.arms:
        if arm == "triple" or arm.startswith("pretrained"):
            model = context.restore(arm, seed)
            assert isinstance(model, RecallModel)
            prompts = context.prompts("random", seed)
            if "triple" in arm:
                table = triple_table(config, seed)
                prompts = unseen_prompts(table, 3, config.n_test, seed)
            title = arm.replace("triple", "three examples").replace("-", ", ")
            panels[f"{title}, full fine-tuning"] = attention_measurement(model, prompts)
    return panels


def attention_measurement(model: RecallModel, prompts: Prompts) -> Measurement:
    """The two attention rows of Figure 2, averaged over prompts of one seed."""
    rows = [mean_attention(model, prompts, step=s) for s in ("relation", "answer")]
    # The first step has no relation token yet: its cell stays blank.
    first = torch.cat([rows[0], rows[0].new_tensor([torch.nan])])
    return Measurement(
        values=torch.stack([first, rows[1]]),
        axes=("query", "key"),
        labels={"query": ROWS, "key": key_labels(prompts.n_examples)},
        name="attention",
        provenance={"prompts": len(prompts.relation)},
    )


def key_labels(n_examples: int) -> tuple[str, ...]:
    """Names of the prompt's positions."""
    pairs = [f"{kind}{i + 1}" for i in range(n_examples) for kind in ("s", "a")]
    return (*pairs, f"s{n_examples + 1}", "EoS", "r*")


def dynamics(run: Run) -> Figure:
    """Algorithm 1 with three subjects: to the saddle, then one pair wins."""
    context = Context(run)
    seed, temperature = context.seeds[0], context.config.warmup_temperatures[0]
    outcome = warmup.solve(temperature, [seed])
    first_steps = Schedule.warmup(temperature).first_steps
    panels = (
        ("stage 1: symmetric gradient descent", 0, True),
        ("stage 2: after a perturbation", 0, False),
        ("stage 2: control without perturbation", 1, False),
    )
    figure = Figure(figsize=(15, 4.6), layout="constrained")
    axes = figure.subplots(1, 3, sharey=True)
    for ax, (title, replica, first) in zip(axes, panels, strict=True):
        steps = outcome.path_steps
        inside = steps < first_steps if first else steps >= first_steps
        path = Measurement(
            values=outcome.path[inside, replica].T,
            axes=("key", "step"),
            labels={
                "key": key_labels(2)[:-1],
                "step": tuple((steps[inside] - (not first) * first_steps).tolist()),
            },
            name="attention of EoS",
        )
        curve(path, x="step", hue="key", ax=ax)
        ax.set_xscale("symlog", linthresh=1)
        ax.set_xlabel("gradient step of the stage")
        ax.set_title(title)
    figure.suptitle(f"Algorithm 1, three subjects, T={temperature:g}, seed {seed}")
    return figure


def learning(run: Run) -> Figure:
    """Figure 3: accuracy over the ceiling against the number of prompts."""
    context = Context(run)
    tables = context.config.sample_tables
    figure = Figure(figsize=(6.2 * len(tables), 4.8), layout="constrained")
    axes = figure.subplots(1, len(tables), sharey=True, squeeze=False)[0]
    for ax, table in zip(axes, tables, strict=True):
        learned = samples.learning_curve(context, table)
        curve(learned, x="prompts", hue="mode", ax=ax)
        for name, values in samples.baselines(context, table).items():
            level = sum(values) / len(values)
            style = "--" if name == "saddle" else ":"
            ax.axhline(level, color="0.4", linestyle=style, label=f"{name} attention")
        ax.set_xscale("log", base=2)
        ax.set_xticks(context.config.sample_sizes, context.config.sample_sizes)
        ax.set_xlabel("fine-tuning prompts")
        ax.set_ylabel("relation accuracy / Bayes ceiling")
        ax.set_title("affine table" if table == "affine" else f"random, n={table}")
        ax.legend()
    figure.suptitle("Fine-tuning prompts needed (mean and 95 % interval over seeds)")
    return figure


def causes(run: Run) -> Figure:
    """What interventions on the attention do to the relation's accuracy."""
    context = Context(run)
    require(context.config.n_examples == 2, "causes: drawn for n_examples=2 only")
    observed = causal.observe(context)
    names = ("uniform", "saddle", "pairwise", "one-pair", "subjects-only", "knock-out")
    values = torch.tensor([observed[f"recall.cause.{n}"].values for n in names])
    measured = Measurement(
        values=values,
        axes=("intervention", "seed"),
        labels={"intervention": names, "seed": context.seeds},
        name="relation accuracy",
    )
    figure = Figure(figsize=(9, 4.8), layout="constrained")
    ax = bars(measured, x="intervention", ax=figure.subplots())
    ax.set_ylim(0, 1.05)
    ax.set_title("Interventions on the trained model's attention, affine table")
    return figure


FIGURES = {
    "attention": attention,
    "causes": causes,
    "dynamics": dynamics,
    "prompts": learning,
}

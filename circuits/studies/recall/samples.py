"""Figure 3: how many fine-tuning prompts suffice?"""

import torch

from circuits.claims import Observed
from probes.measurement import Measurement
from trained.recall.patterns import relation_accuracy
from trained.recall.prompts import bayes_ceiling
from trained.recall.scores import PositionScores, TokenScores, relation_quantities
from trained.recall.setting import sample_table, unseen_prompts

from .context import Context


def observe(context: Context) -> dict[str, Observed]:
    """Accuracy over the ceiling at a few prompts, against one or none."""
    config = context.config
    few, fewest = config.few_prompts, min(config.sample_sizes)
    result = {}
    for table in config.sample_tables:
        for mode in config.sample_modes:
            values = accuracies(context, table, mode, few)
            if mode != "partial" and fewest < few:
                control = accuracies(context, table, mode, fewest)
            else:
                control = baselines(context, table)["uniform"]
            name = table if table == "affine" else f"random-{table}"
            result[f"recall.fig3.{name}.{mode}"] = Observed.of(values, control)
    return result


def accuracies(context: Context, table: str, mode: str, size: int) -> list[float]:
    """Accuracy on unseen prompts over the Bayes ceiling, seed by seed."""
    arm = f"samples-{table}-{mode}-{size}"
    return [
        _relative(context, table, seed, context.restore(arm, seed))
        for seed in context.arm_seeds(arm)
    ]


def baselines(context: Context, table: str) -> dict[str, list[float]]:
    """The same for attention that is uniform, and for the saddle."""
    k = context.config.n_examples
    scores = {
        "uniform": torch.zeros(2 * k + 2),
        "saddle": torch.tensor([0.0] * (2 * k) + [-60.0, -60.0]),
    }
    result: dict[str, list[float]] = {}
    for name, theta in scores.items():
        model = PositionScores(k)
        model.theta.data = theta
        result[name] = [
            _relative(context, table, seed, model) for seed in context.seeds
        ]
    return result


@torch.no_grad()
def _relative(context: Context, table: str, seed: int, model: torch.nn.Module) -> float:
    assert isinstance(model, PositionScores | TokenScores)
    config = context.config
    relations = sample_table(config, table, seed)
    prompts = unseen_prompts(relations, config.n_examples, config.n_test, seed)
    data = relation_quantities(prompts)
    attention = model.attention(data["tokens"])
    accuracy = relation_accuracy(attention, data["counts"], model.forms, tolerance=1e-4)
    return float(accuracy.mean()) / bayes_ceiling(prompts)


def learning_curve(context: Context, table: str) -> Measurement:
    """Accuracy over the ceiling by mode, number of prompts and seed."""
    config = context.config
    values = torch.tensor(
        [
            [accuracies(context, table, mode, size) for size in config.sample_sizes]
            for mode in config.sample_modes
        ]
    )
    return Measurement(
        values=values,
        axes=("mode", "prompts", "seed"),
        labels={
            "mode": config.sample_modes,
            "prompts": config.sample_sizes,
            "seed": context.seeds,
        },
        name=f"accuracy over Bayes ceiling, {table} table",
        provenance={"run": str(context.run.path), "temperature": config.temperature},
    )

"""Does the transformer's kernel tell templates apart on symbols it never saw?"""

from collections.abc import Callable, Sequence
from functools import cache
from math import log2

import torch

from circuits.claims import Observed
from trained.seeding import generator
from trained.symbols.config import Config
from trained.symbols.head_bank import bank_kernel
from trained.symbols.kernel import AttentionKernel
from trained.symbols.kernel_templates import (
    instances,
    inverse_condition,
    least_eigenvalue,
    permutation_gap,
    samples_needed,
    unseen_predictions,
)
from trained.symbols.lift import Kernel, MlpKernel, TransformerKernel
from trained.symbols.sampler import Split, Strings, alphabet, sample
from trained.symbols.tasks import Task, task

from .context import Context

NARROW, WIDE = 32, 512
"""Widths of the head banks."""
BANK_BETA = 2.0
"""Inverse temperature of the head banks; entries of the kernel are then 0.8 to 1.5."""
N_BANKS = 8
N_TEST = 400

MLP, INCIDENCE, CONSTANT = (
    MlpKernel(),
    MlpKernel("incidence"),
    MlpKernel("constant"),
)


def observe(context: Context) -> dict[str, Observed]:
    """The formula, the matrix N of every task, kernel regression."""
    config, seeds = context.config, context.run.seeds
    found = _formula(task(config.kernel_tasks[0]), seeds)
    for name in config.kernel_tasks:
        found |= _matrix(task(name), seeds)
    return found | _regression(config, seeds)


@cache
def transformer_kernel(seed: int) -> TransformerKernel:
    """The kernel with a seed's integration points; its values are kept."""
    return TransformerKernel(AttentionKernel(seed=seed))


def bank_errors(chosen: Task, d_model: int, seed: int) -> tuple[float, float]:
    """Largest distance of a head bank's kernel from the formula, and at beta = 0.

    The mean over banks: a single one depends on its few embeddings. The strings are
    two instances of every template without a symbol in common.
    """
    strings = torch.cat([instances(chosen, copy=copy) for copy in (0, 1)])
    right, wrong = (
        AttentionKernel(beta=beta, seed=seed)(strings, strings)
        for beta in (BANK_BETA, 0.0)
    )
    errors = []
    for index in range(N_BANKS):
        source = generator(seed, "symbols", "bank", d_model, index)
        bank = bank_kernel(strings, d_model, beta=BANK_BETA, generator=source)
        errors.append([(bank - right).abs().max(), (bank - wrong).abs().max()])
    means = torch.tensor(errors).mean(0)
    return float(means[0]), float(means[1])


def _formula(chosen: Task, seeds: Sequence[int]) -> dict[str, Observed]:
    wide, narrow = (
        [bank_errors(chosen, d, seed) for seed in seeds] for d in (WIDE, NARROW)
    )
    ratios = [
        [large / small for large, small in zip(*pair, strict=True)]
        for pair in zip(wide, narrow, strict=True)
    ]
    return {
        "symbols.kernel.formula": Observed.of(*zip(*wide, strict=True)),
        "symbols.kernel.limit": Observed.of(*zip(*ratios, strict=True)),
    }


def _matrix(chosen: Task, seeds: Sequence[int]) -> dict[str, Observed]:
    kernels = [transformer_kernel(seed) for seed in seeds]

    def better(kernel: Kernel) -> list[float]:
        mine = inverse_condition(kernel, chosen)
        return [mine / inverse_condition(other, chosen) for other in kernels]

    def thriftier(kernel: Kernel) -> list[float]:
        mine = samples_needed(kernel, chosen)
        return [samples_needed(other, chosen) / mine for other in kernels]

    values = {
        "nonsingular": Observed.of(
            [least_eigenvalue(kernel, chosen).in_errors for kernel in kernels],
            [least_eigenvalue(MLP, chosen).in_errors],
        ),
        "permutations": Observed.of(
            [permutation_gap(k.attention, chosen).in_errors for k in kernels],
            [permutation_gap(MLP, chosen).in_errors],
        ),
        "incidence": Observed.of(better(INCIDENCE), better(CONSTANT)),
        "samples": Observed.of(thriftier(INCIDENCE), thriftier(CONSTANT)),
    }
    return {f"symbols.kernel.{k}.{chosen.name}": seen for k, seen in values.items()}


def regression_splits(chosen: Task, n: int, seed: int) -> tuple[Strings, Strings]:
    """Training and test strings of kernel regression, without a symbol in common."""
    tokens = alphabet(chosen, n)

    def drawn(split: Split, count: int) -> Strings:
        source = generator(seed, "symbols", "regression", n, split)
        return sample(tokens, split, count, generator=source)

    return drawn("train", n), drawn("test", N_TEST)


def regression(kernel: Kernel, chosen: Task, n: int, seed: int) -> tuple[float, float]:
    """Mean squared error and share of wrong signs on unseen symbols."""
    train, test = regression_splits(chosen, n, seed)
    said = unseen_predictions(kernel, train, test, chosen)
    targets = test.targets.double()
    wrong = said.sign() != targets.sign()
    return float((said - targets).square().mean()), float(wrong.double().mean())


def _regression(config: Config, seeds: Sequence[int]) -> dict[str, Observed]:
    chosen, sizes = task(config.kernel_tasks[0]), config.kernel_n

    def errors(kernel: Callable[[int], Kernel]) -> list[list[tuple[float, float]]]:
        return [[regression(kernel(s), chosen, n, s) for n in sizes] for s in seeds]

    mine, mlp = errors(transformer_kernel), errors(lambda _seed: MLP)
    needed = [samples_needed(transformer_kernel(seed), chosen) for seed in seeds]

    def distance(found: list[list[tuple[float, float]]]) -> list[float]:
        """Largest |log2| of an error over the law's, one per seed."""
        return [
            max(
                abs(log2(mse / (1 + n / n0) ** -2))
                for (mse, _), n in zip(row, sizes, strict=True)
            )
            for row, n0 in zip(found, needed, strict=True)
        ]

    observed = {
        "symbols.regression.law": Observed.of(distance(mine), distance(mlp)),
        "symbols.regression.sign": Observed.of(
            [row[0][1] for row in mine], [row[0][0] for row in mine]
        ),
    }
    if chosen.name == "same_different" and sizes[-1] >= 1024:
        observed["symbols.regression.error"] = Observed.of(
            [row[-1][0] for row in mine], [row[-1][0] for row in mlp]
        )
    return observed

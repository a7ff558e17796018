"""What a run of the symbols study says without its trained models.

Kernels of infinitely wide networks, random heads that approach them, and the first
instant of training. A seed draws integration points, head banks, strings and initial
weights. Nulls and substitutes of a lab share it: they differ in trained models only.
"""

from collections.abc import Callable, Sequence
from math import log2
from typing import Literal

import torch

from circuits.lab import Remembering, once
from trained.seeding import generator
from trained.symbols.config import Config
from trained.symbols.kernel import (
    AttentionKernel,
    CosineLift,
    Kernel,
    MlpKernel,
    TransformerKernel,
)
from trained.symbols.sampler import Split, alphabet, sample
from trained.symbols.tasks import task
from trained.symbols.theory import (
    CopyModel,
    CopySizes,
    Group,
    bank_kernel,
    instances,
    least_eigenvalue,
    permutation_gap,
    rotated_share,
    samples_needed,
    transfer_rates,
    unseen_predictions,
)
from trained.task import Batch

Formula = Literal["right", "half", "zero"]
"""The kernel's formula at the banks' beta, at half of it, or at 0."""
FORMULAS: dict[Formula, float] = {"right": 1.0, "half": 0.5, "zero": 0.0}
KernelName = Literal["transformer", "mlp", "incidence"]
MLP = MlpKernel()
KERNELS: dict[KernelName, Kernel] = {"mlp": MLP, "incidence": MlpKernel("incidence")}
"""Those that have no integration points, and so no seed."""


class Theory(Remembering):
    """The quantities at a configuration, one for each seed."""

    def __init__(self, config: Config, seeds: tuple[int, ...]) -> None:
        super().__init__()
        self.config, self.seeds = config, seeds

    @once
    def bank_errors(self, d_model: int) -> dict[Formula, list[float]]:
        """Largest distance of random heads' kernel from each formula, by seed.

        The mean over banks: a single one depends on its few embeddings. The strings are
        two instances of every template without a symbol in common.
        """
        sizes, rows = self.config.kernel, []
        chosen = task(sizes.tasks[0])
        strings = torch.cat([instances(chosen, copy=copy) for copy in (0, 1)])
        for seed in self.seeds:
            formulas = [
                AttentionKernel(share * sizes.bank_beta, sizes.gamma, seed=seed)(
                    strings, strings
                )
                for share in FORMULAS.values()
            ]
            errors = []
            for index in range(sizes.n_banks):
                bank = bank_kernel(
                    strings,
                    d_model,
                    n_heads=sizes.bank_heads,
                    beta=sizes.bank_beta,
                    gamma=sizes.gamma,
                    generator=generator(seed, "symbols", "bank", d_model, index),
                )
                errors.append([(bank - formula).abs().max() for formula in formulas])
            rows.append(torch.tensor(errors).mean(0).tolist())
        return dict(zip(FORMULAS, map(list, zip(*rows, strict=True)), strict=True))

    def bank_ratio(self, formula: Formula = "right") -> list[float]:
        """The distance of the widest heads over that of the narrowest."""
        widths = self.config.kernel.bank_d
        wide, narrow = (self.bank_errors(d)[formula] for d in (widths[-1], widths[0]))
        return [large / small for large, small in zip(wide, narrow, strict=True)]

    def bank_slope(self, formula: Formula = "right") -> list[float]:
        """How the distance shrinks with the width: slope on logarithmic axes."""
        widths = self.config.kernel.bank_d
        errors = torch.tensor([self.bank_errors(d)[formula] for d in widths]).double()
        x = torch.tensor(widths).double().log()
        x = (x - x.mean()) / (x - x.mean()).square().sum()
        return [float(slope) for slope in x @ errors.log()]

    @once
    def kernel(self, seed: int) -> TransformerKernel:
        """The transformer's kernel with a seed's integration points."""
        sizes = self.config.kernel
        attention = AttentionKernel(sizes.beta, sizes.gamma, seed=seed)
        return TransformerKernel(attention, CosineLift(sizes.frequency, sizes.shift))

    def least_eigenvalues(self, name: str) -> list[float]:
        """The least eigenvalue of a task's N in its standard errors."""
        kernels = [self.kernel(seed) for seed in self.seeds]
        return [least_eigenvalue(kernel, task(name)).in_errors for kernel in kernels]

    def permutation_gaps(self, name: str) -> list[float]:
        """Least sum of N[i, i] - N[i, sigma(i)] of K_attn in its standard errors."""
        kernels = [self.kernel(seed).attention for seed in self.seeds]
        return [permutation_gap(kernel, task(name)).in_errors for kernel in kernels]

    def mlp_matrix(self, name: str) -> dict[str, float]:
        """The same two of the MLP's kernel: exact, in units of rounding."""
        return {
            "eigenvalue": least_eigenvalue(MLP, task(name)).in_errors,
            "sum": permutation_gap(MLP, task(name)).in_errors,
        }

    def regression_splits(self, n: int, seed: int) -> tuple[Batch, Batch]:
        """Training and test strings of kernel regression; they share no symbol."""
        sizes = self.config.kernel
        tokens = alphabet(task(sizes.tasks[0]), n)

        def drawn(split: Split, count: int) -> Batch:
            source = generator(seed, "symbols", "regression", n, split)
            return sample(tokens, split, count, generator=source)

        return drawn("train", n), drawn("test", sizes.n_test)

    @once
    def regression(self, name: KernelName, n: int) -> list[tuple[float, float]]:
        """Mean squared error and share of wrong signs on unseen symbols, by seed."""
        found = []
        for seed in self.seeds:
            kernel = KERNELS[name] if name in KERNELS else self.kernel(seed)
            train, test = self.regression_splits(n, seed)
            own = self.config.kernel
            chosen = task(own.tasks[0])
            said = unseen_predictions(kernel, train, test, chosen, ridge=own.ridge)
            targets = test.targets.double()
            wrong = (said.sign() != targets.sign()).double().mean()
            found.append((float((said - targets).square().mean()), float(wrong)))
        return found

    def squared_errors(self, name: KernelName, n: int) -> list[float]:
        """The mean squared errors of kernel regression."""
        return [error for error, _ in self.regression(name, n)]

    def samples_needed(self) -> list[float]:
        """The scale n0 of the transformer's kernel on the task of regression."""
        chosen = task(self.config.kernel.tasks[0])
        return [samples_needed(self.kernel(seed), chosen) for seed in self.seeds]

    def law_distance(self, name: KernelName) -> list[float]:
        """Largest |log2| of regression's error over (1 + n/n0)^-2, by seed."""
        sizes = self.config.kernel.n
        rows = zip(*(self.squared_errors(name, n) for n in sizes), strict=True)
        return [
            max(
                abs(log2(error / (1 + n / n0) ** -2))
                for error, n in zip(row, sizes, strict=True)
            )
            for row, n0 in zip(rows, self.samples_needed(), strict=True)
        ]

    def copy_sizes(self, d_model: int) -> CopySizes:
        """The copy task of the first step at a width."""
        own = self.config.first_step
        return CopySizes(d_model, own.n_tokens, own.n_seen, own.n_heads, own.gamma)

    @once
    def first_steps(self, d_model: int) -> list[dict[str, float]]:
        """Transfer rates at the first instant by group, and b's share under `q`."""
        sizes, found = self.copy_sizes(d_model), []
        for seed in self.seeds:
            source = generator(seed, "symbols", "copy theory", d_model)
            model = CopyModel(sizes, generator=source)
            rates = {str(group): rate for group, rate in transfer_rates(model).items()}
            found.append({**rates, "q": rotated_share(model)})
        return found

    def first_step(
        self,
        group: Group | Literal["q"],
        pick: Callable[[Sequence[float]], float] = max,
        *,
        least_d: int = 0,
    ) -> list[float]:
        """A group's rate, one of those over widths from some width on, by seed."""
        widths = [d for d in self.config.first_step.d_model if d >= least_d]
        by_width = [self.first_steps(d) for d in widths]
        rows = zip(*by_width, strict=True)
        return [pick([rates[group] for rates in row]) for row in rows]

"""What a run of the symbols study says without its trained models.

Kernels of infinitely wide networks, random heads that approach them, and the first
instant of training. A replicate is a draw (seed, place) of kernel parameters, random
templates, integration points, head banks, strings and initial weights. Nulls and
substitutes of a lab share it: they differ in trained models only.
"""

from collections.abc import Callable, Iterator
from math import inf, isfinite, log2
from statistics import fmean
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.lab import Remembering, once
from probes.statistics import standard_error
from trained.seeding import generator
from trained.symbols.config import Config
from trained.symbols.first_step import (
    GROUPS,
    CopyModel,
    CopySizes,
    FirstInstant,
    limit,
)
from trained.symbols.kernel import (
    AttentionKernel,
    CosineLift,
    ForeignKernel,
    Kernel,
    MlpKernel,
    TransformerKernel,
)
from trained.symbols.sampler import Split, alphabet, sample
from trained.symbols.tasks import Task, task
from trained.symbols.theory import (
    bank_kernel,
    instances,
    least_eigenvalue,
    permutation_gap,
    samples_needed,
    unseen_regression,
)
from trained.task import Batch

Formula = Literal["right", "half"]
"""The kernel's formula at the banks' beta, or at half of it."""
FORMULAS: dict[Formula, float] = {"right": 1.0, "half": 0.5}
KernelName = Literal["transformer", "no beta", "mlp", "incidence"]
Taught = Literal["clean", "shuffled", "noisy", "shuffled noisy", "nearest noisy"]
"""The labels that regression is taught; `nearest` answers with the label of the nearest
training string instead."""
MLP = MlpKernel()
KERNELS: dict[KernelName, Kernel] = {"mlp": MLP, "incidence": MlpKernel("incidence")}
"""Those that have no integration points, and so no seed."""
RESOLVED = 5.0
"""Integration errors that a value must be away from 0."""
NOT_NARROW = 64
"""The width from which limits are fitted."""
MOST_NEEDED = 1e12
"""Instead of infinitely many samples: a ratio of them is then defined."""


class Draw(NamedTuple):
    """One replicate."""

    seed: int
    place: int

    @property
    def number(self) -> int:
        """Of its integration points."""
        return 1000 * self.seed + self.place


class Theory(Remembering):
    """The quantities at a configuration, one for each draw."""

    def __init__(self, config: Config, seeds: tuple[int, ...]) -> None:
        super().__init__()
        self.config, self.seeds = config, seeds

    @property
    def draws(self) -> list[Draw]:
        """The replicates of the kernels."""
        count = range(self.config.kernel.draws)
        return [Draw(seed, place) for seed in self.seeds for place in count]

    @once
    def bank_errors(self, d_model: int) -> dict[Formula, list[float]]:
        """Largest distance of random heads' kernel from each formula, by draw.

        The mean over banks: a single one depends on its few embeddings. The strings are
        two instances of every template without a symbol in common.
        """
        sizes, rows = self.config.kernel, []
        chosen = task(sizes.tasks[0])
        strings = torch.cat([instances(chosen, copy=copy) for copy in (0, 1)])
        for draw in self.draws:
            formulas = [
                AttentionKernel(share * sizes.bank_beta, sizes.gamma, seed=draw.number)(
                    strings, strings
                )
                for share in FORMULAS.values()
            ]
            errors = []
            for bank in range(sizes.n_banks):
                found = bank_kernel(
                    strings,
                    d_model,
                    n_heads=sizes.bank_heads,
                    beta=sizes.bank_beta,
                    gamma=sizes.gamma,
                    generator=generator(*draw, "symbols", "bank", bank, d_model),
                ).double()
                errors.append([float((found - f).abs().max()) for f in formulas])
            rows.append([fmean(column) for column in zip(*errors, strict=True)])
        columns = zip(*rows, strict=True)
        return dict(zip(FORMULAS, map(list, columns), strict=True))

    def bank_slope(self, formula: Formula = "right") -> list[float]:
        """How the distance shrinks with the width: slope on logarithmic axes."""
        widths = self.config.kernel.bank_d
        errors = torch.tensor([self.bank_errors(d)[formula] for d in widths]).double()
        x = torch.tensor(widths).double().log()
        x = (x - x.mean()) / (x - x.mean()).square().sum()
        return [float(slope) for slope in x @ errors.log()]

    @once
    def drawn_kernel(
        self, draw: Draw, refinement: int = 0, *, beta: bool = True
    ) -> TransformerKernel:
        """The transformer's kernel with drawn parameters; without beta, at beta = 0."""
        sizes, source = self.config.kernel, generator(*draw, "symbols", "parameters")
        ranges = (sizes.betas, sizes.gammas, sizes.frequencies, sizes.shifts)
        shares = torch.rand(len(ranges), generator=source).tolist()
        drawn = [a + u * (b - a) for (a, b), u in zip(ranges, shares, strict=True)]
        attention = AttentionKernel(
            drawn[0] if beta else 0.0,
            drawn[1],
            n_points=512 * 4**refinement,
            seed=draw.number,
        )
        return TransformerKernel(attention, CosineLift(drawn[2], drawn[3]))

    def drawn_task(self, name: str, draw: Draw) -> Task:
        """A task; random templates are the draw's own."""
        return task(name, draw.number)

    @once
    def resolution(self, quantity: Literal["eigenvalue", "gap"]) -> list[float]:
        """A quantity of N over its integration error, the least over tasks, by draw.

        The least eigenvalue of N, or the least sum of N[i, i] - N[i, sigma(i)] of the
        attention's kernel (Eq. 9). What is not resolved gets more points.
        """
        names = self.config.kernel.matrix_tasks
        return [
            min(self.resolved(draw, name)[quantity] for name in names)
            for draw in self.draws
        ]

    @once
    def resolved(self, draw: Draw, name: str) -> dict[str, float]:
        """Both quantities of a draw's N on a task, in integration errors."""
        for refinement in range(self.config.kernel.refinements + 1):
            kernel = self.drawn_kernel(draw, refinement)
            found = in_errors(kernel, kernel.attention, self.drawn_task(name, draw))
            if min(found.values()) > RESOLVED:
                break
        return found

    def singular(self, which: Literal["no beta", "mlp"]) -> list[float]:
        """The least eigenvalue of a kernel that lacks the mechanism, by draw.

        In units of rounding, the least over tasks. Of an MLP's kernel the largest over
        tasks without regular tokens: it is singular on each of them.
        """
        names = self.config.kernel.matrix_tasks
        found = []
        for draw in self.draws:
            tasks = [self.drawn_task(name, draw) for name in names]
            if which == "mlp":
                wild = [t for t in tasks if not t.regular]
                found.append(max(least_eigenvalue(MLP, t).in_errors for t in wild))
            else:
                flat = self.drawn_kernel(draw, beta=False)
                found.append(min(least_eigenvalue(flat, t).in_errors for t in tasks))
        return found

    @once
    def kernel(self, draw: Draw) -> TransformerKernel:
        """The transformer's kernel at the configuration's parameters."""
        return self._at(draw, self.config.kernel.beta)

    def _at(self, draw: Draw, beta: float) -> TransformerKernel:
        sizes = self.config.kernel
        attention = AttentionKernel(beta, sizes.gamma, seed=draw.number)
        return TransformerKernel(attention, CosineLift(sizes.frequency, sizes.shift))

    def splits(
        self, name: str, n: int, draw: Draw, symbols: int | None = None
    ) -> tuple[Batch, Batch]:
        """Training and test strings of kernel regression; they share no symbol."""
        tokens = alphabet(task(name), n, train_alphabet=symbols)

        def drawn(split: Split, count: int) -> Batch:
            source = generator(*draw, "symbols", "regression", name, n, split)
            return sample(tokens, split, count, generator=source)

        return drawn("train", n), drawn("test", self.config.kernel.n_test)

    @once
    def errors(
        self,
        name: str,
        n: int,
        draw: Draw,
        which: KernelName = "transformer",
        symbols: int | None = None,
    ) -> dict[Taught, Float[Tensor, " test"]]:
        """Squared errors of kernel regression on unseen strings, by what is taught."""
        kernel = KERNELS[which] if which in KERNELS else self.kernel(draw)
        if which == "no beta":
            kernel = self._at(draw, 0.0)
        train, test = self.splits(name, n, draw, symbols)
        own = self.config.kernel
        fit = unseen_regression(kernel, train, test, task(name), ridge=own.ridge)
        source = generator(*draw, "symbols", "labels", name, n)
        order = torch.randperm(n, generator=source)
        clean = train.targets
        noisy = clean + own.noise * torch.randn(n, generator=source)
        labels: dict[Taught, Tensor] = {
            "clean": clean,
            "shuffled": clean[order],
            "noisy": noisy,
            "shuffled noisy": noisy[order],
        }
        every = fit.predictions(torch.stack(list(labels.values()), 1)).unbind(1)
        said: dict[Taught, Tensor] = dict(zip(labels, every, strict=True))
        said["nearest noisy"] = fit.nearest(noisy)
        return {k: (v - test.targets.double()).square() for k, v in said.items()}

    def by_task(
        self, quantity: Callable[[str, Draw], float], pick: Any = max
    ) -> list[float]:
        """A quantity of every draw: of its tasks the worst."""
        names = self.config.kernel.tasks
        return [pick(quantity(name, draw) for name in names) for draw in self.draws]

    def largest(
        self,
        n: int,
        which: KernelName = "transformer",
        taught: Taught = "clean",
    ) -> list[float]:
        """The largest squared error over test strings and tasks, by draw."""
        return self.by_task(
            lambda name, draw: float(self.errors(name, n, draw, which)[taught].max())
        )

    def largest_ratio(self, few: int, many: int) -> list[float]:
        """The largest squared error at one n over that at a smaller one."""

        def at(n: int, name: str, draw: Draw) -> float:
            return float(self.errors(name, n, draw)["clean"].max())

        return self.by_task(
            lambda name, draw: at(many, name, draw) / at(few, name, draw)
        )

    def mean_error(
        self, name: str, n: int, draw: Draw, taught: Taught, symbols: int | None = None
    ) -> float:
        """The mean squared error on unseen strings."""
        found = self.errors(name, n, draw, symbols=symbols)[taught]
        return float(found.mean())

    @once
    def needed(
        self, name: str, draw: Draw, which: KernelName | Literal["foreign"]
    ) -> float:
        """The scale n0 of a kernel with the draw's parameters on a task of the draw."""
        chosen = self.drawn_task(name, draw)
        kernel: Kernel = ForeignKernel(instances(chosen))
        if which == "transformer":
            kernel = self.drawn_kernel(draw)
        elif which != "foreign":
            kernel = KERNELS[which]
        return min(samples_needed(kernel, chosen), MOST_NEEDED)

    def samples_saved(
        self, given: Literal["incidence", "foreign"] = "incidence"
    ) -> list[float]:
        """n0 of the transformer's kernel over that of an MLP's given X X^T, by draw.

        The least over the tasks without regular tokens.
        """
        names = self.config.kernel.matrix_tasks
        wild = [name for name in names if not task(name).regular]
        return [
            min(
                self.needed(name, draw, "transformer") / self.needed(name, draw, given)
                for name in wild
            )
            for draw in self.draws
        ]

    def scale(self, draw: Draw) -> float:
        """The scale n0 at the configuration's parameters, on the first task."""
        return samples_needed(self.kernel(draw), task(self.config.kernel.tasks[0]))

    def law_distance(self, which: KernelName) -> list[float]:
        """Largest |log2| of regression's error over (1 + n/n0)^-2, first task."""
        sizes, name = self.config.kernel.n, self.config.kernel.tasks[0]

        def distance(draw: Draw, n: int) -> float:
            error = float(self.errors(name, n, draw, which)["clean"].mean())
            return abs(log2(error / (1 + n / self.scale(draw)) ** -2))

        return [max(distance(draw, n) for n in sizes) for draw in self.draws]

    def copy_sizes(self, d_model: int, gamma: float) -> CopySizes:
        """The copy task of the first step at a width."""
        own = self.config.first_step
        return CopySizes(d_model, own.n_tokens, own.n_seen, own.n_heads, gamma)

    @once
    def first_steps(self, d_model: int, gamma: float) -> list[dict[str, float]]:
        """Transfer rates at the first instant, by draw.

        By group; `b`; `q`, the share of a rotation in b's place; and by group with
        the test among the seen tokens, as `W_V, seen`.
        """
        own, found = self.config.first_step, []
        for seed in self.seeds:
            for index in range(own.draws):
                source = generator(seed, index, "symbols", "copy theory", d_model)
                sizes = self.copy_sizes(d_model, gamma)
                first = FirstInstant(CopyModel(sizes, generator=source))
                rates = first.transfer_rates((*GROUPS, "b"))
                rates["q"] = first.rotated_share()
                seen = first.transfer_rates(among_seen=True)
                found.append({**rates, **{f"{k}, seen": v for k, v in seen.items()}})
        return found

    def first_step(
        self, group: str, gamma: float, *, least_d: int = 0, most_d: float = inf
    ) -> Float[Tensor, "draw width"]:
        """A group's rate by draw and width; nan where it has none."""
        widths = [d for d in self.config.first_step.d_model if least_d <= d <= most_d]
        columns = [self.first_steps(d, gamma) for d in widths]
        rows = [[rates.get(group, torch.nan) for rates in column] for column in columns]
        return torch.tensor(rows).double().mT

    def limits(
        self, suffix: str = "", terms: int = 3
    ) -> dict[tuple[str, float], list[float]]:
        """The rate of each group and gamma as d grows, by draw (`limit`)."""
        widths = [d for d in self.config.first_step.d_model if d >= NOT_NARROW]
        found = {
            (group, gamma): limit(
                widths,
                self.first_step(group + suffix, gamma, least_d=NOT_NARROW),
                terms,
            ).tolist()
            for group in GROUPS
            for gamma in self.config.first_step.gammas
        }
        # A position embedding of strength 0 has no rate.
        return {k: v for k, v in found.items() if all(map(isfinite, v))}

    def limits_in_errors(self, suffix: str = "", terms: int = 3) -> list[float]:
        """Those limits' means over draws in their standard errors, one for each."""
        return list(_in_errors(self.limits(suffix, terms).values()))

    def b_limits_in_errors(self) -> list[float]:
        """The same of b: one for each gamma."""
        widths = [d for d in self.config.first_step.d_model if d >= NOT_NARROW]
        gammas = self.config.first_step.gammas
        rates = (self.first_step("b", g, least_d=NOT_NARROW) for g in gammas)
        return list(_in_errors(limit(widths, r).tolist() for r in rates))


def in_errors(kernel: Kernel, attention: Kernel, chosen: Task) -> dict[str, float]:
    """The two quantities of N in units of their integration errors."""
    return {
        "eigenvalue": least_eigenvalue(kernel, chosen).in_errors,
        "gap": permutation_gap(attention, chosen).in_errors,
    }


def _in_errors(rows: Any) -> Iterator[float]:
    for row in rows:
        yield fmean(row) / max(standard_error(torch.tensor(row)), 1e-12)

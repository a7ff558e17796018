"""What is trained of the theory: Algorithm 1, gradient descent on position scores.

`warmup` has three subjects (Theorem 2); `few-*`, by temperature, learn from few prompts
(Theorems 1, 3); `first-step` is stage 1 alone (Lemma 9); `rate-*` follow stage 2
(Lemmas 10, 11); `partial` is Adam on the same scores (Figure 3). The runs of an arm are
copies in one model, all drawn from the run's first seed.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import product

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from trained.arm import Arm, Data, Quantities, Quantity, Stage, adam, gradient_descent
from trained.seeding import generator

from .cells import (
    Cell,
    confusing_counts,
    labelled,
    perturbations,
    sizes,
    stacked_counts,
)
from .config import Config
from .scores import (
    Pace,
    PositionScores,
    ball,
    both_strides,
    copies_loss,
    displace,
    relation_strides,
    within_symmetry,
)
from .slopes import lead, ratio_rises, relation_odds
from .task import Episodes, all_bijections, draw_episodes
from .theory import pattern_counts

NOTHING = -60.0
"""The score of a key without attention."""

STRIDE = 500
"""Gradient steps of stage 2 that the trainer takes at once where nobody looks."""


def theory_arms(config: Config) -> list[Arm]:
    """Every arm on position scores."""
    found = [warmup_arm(config)]
    if config.first_step.draws:
        found.append(_algorithm(config, "first-step", first_step_cells(config), 0.0))
    for t in config.rate.temperatures:
        arm = _algorithm(
            config, f"rate-{t:g}", rate_cells(config, t), config.rate.reach
        )
        found.append(_followed(arm, rate_cells(config, t)))
    if cells := partial_cells(config):
        found.append(_adam(config, cells))
    for t in sorted(config.few.temperatures, reverse=True):
        cells = few_cells(config, t)
        found.append(_algorithm(config, f"few-{t:g}", cells, config.few.reach))
    return found


def few_cells(config: Config, temperature: float) -> list[Cell]:
    """Tables by prompts by draws, and the null without confusing prompts."""
    few = config.few
    shape = product(few.subjects, few.sizes, range(few.draws))
    real = [Cell(*cell, temperature, share=few.share) for cell in shape]
    plain = [replace(cell, plain=True) for cell in real if cell.size == few.most]
    return [*real, *plain]


def first_step_cells(config: Config) -> list[Cell]:
    """Parts of an affine table by draws, and the null with a tenth of the rate."""
    wanted = config.first_step
    real = [
        Cell(wanted.subjects, wanted.prompts, draw, wanted.temperature, share=share)
        for share, draw in product(wanted.shares, range(wanted.draws))
    ]
    return [*real, *(replace(cell, first=0.1) for cell in real)]


def rate_cells(config: Config, temperature: float) -> list[Cell]:
    """Parts of an affine table by draws, and the null with a rate like T^3."""
    rate = config.rate
    real = [
        Cell(rate.subjects, rate.prompts, draw, temperature, share=share)
        for share, draw in product(rate.shares, range(rate.draws))
    ]
    slower = temperature / rate.temperatures[0]
    return [*real, *(replace(cell, second=slower) for cell in real)]


def partial_cells(config: Config) -> list[Cell]:
    """Random tables, and a quarter of an affine one, by prompts by draws."""
    wanted, t = config.partial, config.temperature
    shape = list(product(wanted.sizes, range(wanted.draws)))
    m = config.n_relations
    found = [
        Cell(n, size, draw, t, kind="random", relations=m)
        for n in wanted.subjects
        for size, draw in shape
    ]
    quarter = [wanted.quarter] if wanted.quarter else []
    return found + [Cell(n, *cell, t, share=0.25) for n in quarter for cell in shape]


def _algorithm(config: Config, name: str, cells: list[Cell], reach: float) -> Arm:
    """Algorithm 1 in the general case: one large step, a perturbation, many small."""
    few, t = config.few, cells[0].temperature
    stride = config.rate.stride if name.startswith("rate") else STRIDE

    def descend(factors: list[float], rate: float, stride: int) -> Quantity:
        relative = torch.tensor(factors, dtype=torch.float64)[:, None]
        heat = torch.full_like(relative, t)
        pace = Pace(heat, rate * relative, sizes(cells))
        return partial(both_strides, pace=pace, stride=stride)

    def data(seed: int, _step: int) -> Data:
        return {"counts": stacked_counts(cells, seed)}

    large = few.first_rate * t**1.5 * math.log(1 / t)
    first = Stage(
        name="first",
        steps=1,
        optimiser=gradient_descent(1.0),
        loss=descend([cell.first for cell in cells], large, 1),
        data=data,
        # What was met before the first step is no answer of a trained model.
        trainable=("theta", "omega"),
    )
    small = few.second_rate * t**2
    second = replace(
        first,
        name="second",
        steps=math.ceil(cells[0].steps(reach) / stride),
        loss=descend([cell.second for cell in cells], small, stride),
        trainable=("theta", "omega", "doubt"),
        prepare=displace,
    )
    return Arm(
        name,
        lambda seed: PositionScores(2, perturbations(cells, seed)),
        (first, second) if reach else (first,),
        save_steps=(1,),
        max_seeds=1,
        stackable=False,
    )


def _followed(arm: Arm, cells: list[Cell]) -> Arm:
    """The same, with a record of the probability on confusing prompts."""

    def measure(model: PositionScores, counts: Data) -> dict[str, Tensor]:
        attention = model.theta.softmax(-1)
        odds = relation_odds(attention, temperature=cells[0].temperature)
        found = (1 / (odds[:, None] @ counts["counts"].mT)).mean((1, 2))
        return {f"confusing{i}": p for i, p in enumerate(found.unbind())}

    return replace(
        arm,
        measure=measure,
        held_out=lambda seed: {"counts": confusing_counts(cells, seed)},
        record_every=1,
    )


def _adam(config: Config, cells: list[Cell]) -> Arm:
    """Figure 3 on theta and omega."""
    stage = Stage(
        name="fine-tune",
        steps=config.partial.steps,
        optimiser=adam(config.learning_rate),
        loss=partial(
            copies_loss, n_subjects=sizes(cells), temperature=config.temperature
        ),
        data=lambda seed, _step: labelled(cells, seed),
        trainable=("theta", "omega"),
        # From exactly zero the pairs are equal and only round-off would part them.
        prepare=displace,
    )
    return Arm(
        "partial",
        lambda seed: PositionScores(2, perturbations(cells, seed)),
        (stage,),
        max_seeds=1,
        stackable=False,
    )


def three_subjects() -> Episodes:
    """The prompt of the warm-up; all prompts of the six bijections are alike."""
    source = generator(0, "warm-up")
    return draw_episodes(all_bijections(3), 2, 1, generator=source)


def warmup_arm(config: Config) -> Arm:
    """Algorithm 1 with three subjects: to the saddle, then perturbed, on from it.

    Copies by temperature (`hot` last), kind and draw. Kinds: perturbed at random, and,
    for the null, with the same norm but equally in both pairs. Only the perturbations
    are random. Step 2 has a loss and scores of its own, which nothing here needs.
    """
    warmup = config.warmup
    heats = (*warmup.temperatures, warmup.hot)
    shape = (len(heats), 2, warmup.draws, 1)
    temperatures = torch.tensor(heats, dtype=torch.float64).reshape(-1, 1, 1, 1)
    temperatures = temperatures.expand(shape).reshape(-1, 1)
    mirrored = torch.tensor([False, True]).reshape(1, 2, 1, 1).expand(shape)
    three = torch.full((len(temperatures),), 3)

    def build(seed: int) -> PositionScores:
        moved: list[Tensor] = []
        for t in heats:
            sources = (seed, "warm-up", "perturb")
            several = [
                ball(t**3, 13, generator=generator(*sources, index))
                for index in range(warmup.draws)
            ]
            moved += [*several, *map(within_symmetry, several)]
        return PositionScores(2, torch.stack(moved))

    def data(_seed: int, _step: int) -> Data:
        return {"counts": pattern_counts(three_subjects())[None].double()}

    def descend(held: Tensor) -> Quantity:
        rate = warmup.rate * temperatures**2
        pace = Pace(temperatures, rate, three, held.reshape(-1, 1))
        return partial(relation_strides, pace=pace, stride=warmup.stride)

    first = Stage(
        name="first",
        steps=warmup.saddle,
        optimiser=gradient_descent(1.0),
        loss=descend(torch.ones(shape, dtype=torch.bool)),
        data=data,
        trainable=("theta",),
    )
    second = replace(
        first,
        name="second",
        steps=warmup.escape_steps // warmup.stride,
        loss=descend(mirrored),
        prepare=displace,
    )
    return Arm(
        "warmup",
        build,
        (first, second),
        measure=_course(warmup.temperatures, warmup.draws),
        held_out=lambda seed: data(seed, 0),
        record_every=1,
        save_steps=(warmup.saddle,),
        max_seeds=1,
        stackable=False,
    )


def _course(temperatures: Sequence[float], draws: int) -> Quantities:
    """The attention of the first copy, and what psi does in each draw.

    `psi<temperature>-past` and `-rises` have a binary digit for each draw: whether
    Lemma 8 speaks of it, and whether its ratio rises nevertheless; `bare` is the same
    without the last bit of attention outside the pairs.
    """

    def measure(model: PositionScores, data: Data) -> dict[str, Tensor]:
        found = {
            f"key{i}": v for i, v in enumerate(model.theta[0].softmax(-1).unbind())
        }
        heats = model.theta.new_tensor(temperatures)
        own = model.theta.reshape(-1, 2, draws, 6)[: len(heats), 0]
        bare = own.clone()
        bare[..., 4:] = NOTHING
        # All at once: this is measured at every step.
        both = torch.stack([own, bare])
        heat = heats[:, None].expand(both.shape[:-1]).reshape(-1, 1)
        moves = psi_moves(both.flatten(0, 2), data["counts"][0], heat)
        digits = 2.0 ** torch.arange(draws, device=heats.device)
        for what, seen in zip(("past", "rises"), moves, strict=True):
            numbers = (seen.reshape(both.shape[:-1]) * digits).sum(-1)
            for name, row in zip(("psi", "bare"), numbers, strict=True):
                for t, number in zip(temperatures, row, strict=True):
                    found[f"{name}{t:g}-{what}"] = number
        return found

    return measure


def psi_moves(
    theta: Float[Tensor, "draw 6"],
    counts: Float[Tensor, "1 pattern"],
    temperature: Float[Tensor, "draw 1"],
) -> tuple[Bool[Tensor, " draw"], Bool[Tensor, " draw"]]:
    """Whether Lemma 8 speaks of an attention, and whether its ratio rises there.

    Past the escape: less than 1e-3 on the query, the true relation in the lead, a ratio
    above 1.
    """
    ratios = (theta[:, [0, 2]] - theta[:, [1, 3]]).abs().amax(1).exp()
    past = lead(theta, counts, temperature=temperature) > 0
    past &= theta.softmax(-1)[:, 4] < 1e-3
    past &= ratios > 1 + 1e-6
    return past, past & ratio_rises(theta, counts, temperature=temperature)

"""Three subjects: the saddle, the escape, and the pairwise optimum of Theorem 2."""

from collections.abc import Iterable, Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from circuits.claims import Observed
from probes.attention import rest_mass, within_pair_ratio
from trained.recall.algorithm import Outcome, Problem, Schedule, algorithm1
from trained.recall.optimum import (
    optimal_attention,
    printed_saddle_curvature,
    saddle_curvature,
)
from trained.recall.patterns import (
    pattern_counts,
    quadratic_forms,
    relation_accuracy,
    relation_logits,
    relation_loss,
    right_pattern,
)
from trained.recall.prompts import draw_prompts
from trained.recall.relations import all_bijections
from trained.seeding import generator

from .context import pairs_of

PAIRS = pairs_of(2)
FORMS = quadratic_forms(2)
LIMIT_TEMPERATURE = 0.001
ABOVE_THRESHOLD = 0.12
LEMMA8_POINTS = 40_000


def counts() -> Tensor:
    """Pattern counts of the three-subject prompt; all of its prompts are alike."""
    prompts = draw_prompts(all_bijections(3), 2, 1, generator=generator(0, "warm-up"))
    return pattern_counts(prompts)


def solve(temperature: float, seeds: Sequence[int]) -> Outcome:
    """Algorithm 1 for every seed, and last a replica without perturbation."""
    problem = Problem(
        counts().expand(len(seeds) + 1, 1, -1),
        n_subjects=3,
        n_examples=2,
        temperature=temperature,
    )
    sources = [generator(seed, "warm-up", "perturb") for seed in seeds]
    return algorithm1(
        problem, Schedule.warmup(temperature), perturbations=[*sources, None]
    )


def observe(
    outcomes: dict[float, Outcome], low: Float[Tensor, "seed key"]
) -> dict[str, Observed]:
    """Lemmas 5, 6 and 8 and Theorem 2.

    Args:
        outcomes: what `solve` gave, by temperature.
        low: the end state at low temperature, as a control.
    """
    temperatures = list(outcomes)
    return {
        **_saddle(outcomes),
        **_curvature(temperatures),
        **_theorem2(outcomes, low),
        "recall.theorem2.limit": Observed.of(
            [float(_optimum(LIMIT_TEMPERATURE)[0])],
            [float(_optimum(ABOVE_THRESHOLD)[0])],
        ),
        "recall.lemma8.violations": _lemma8(temperatures),
    }


def _optimum(temperature: float) -> Float[Tensor, " key"]:
    return optimal_attention(counts(), 2, temperature=temperature)


def _loss(attention: Float[Tensor, "replica key"], temperature: float) -> Tensor:
    return relation_loss(
        attention, counts().expand(len(attention), -1), FORMS, temperature=temperature
    )


def _accuracy(attention: Float[Tensor, "replica key"]) -> Tensor:
    return relation_accuracy(
        attention, counts().expand(len(attention), -1), FORMS, tolerance=1e-6
    )


def _deviation(attention: Float[Tensor, "replica key"]) -> Tensor:
    saddle = torch.tensor([0.25, 0.25, 0.25, 0.25, 0, 0], dtype=torch.float64)
    return (attention - saddle).abs().amax(1)


def _saddle(outcomes: dict[float, Outcome]) -> dict[str, Observed]:
    first = {t: o.attention_first[:-1] for t, o in outcomes.items()}
    final = {t: o.attention[:-1] for t, o in outcomes.items()}
    losses = torch.stack([_loss(v, t) for t, v in first.items()])
    final_losses = torch.stack([_loss(v, t) for t, v in final.items()])
    return {
        "recall.saddle.attention": Observed.of(
            _most(_deviation(v) for v in first.values()),
            _least(_deviation(v) for v in final.values()),
        ),
        "recall.saddle.loss": Observed.of(
            losses.amin(0).tolist(), final_losses.amax(0).tolist()
        ),
        "recall.saddle.accuracy": Observed.of(
            torch.stack([_accuracy(v) for v in first.values()]).mean(0).tolist(),
            _least(_accuracy(v) for v in final.values()),
        ),
    }


def _curvature(temperatures: Sequence[float]) -> dict[str, Observed]:
    along = torch.tensor([1.0, 1, -1, -1, 0, 0], dtype=torch.float64) / 2
    across = torch.tensor([1.0, -1, -1, 1, 0, 0], dtype=torch.float64) / 2
    measured = {t: _second_derivative(along, t) for t in temperatures}
    return {
        "recall.saddle.descent": Observed.of(
            list(measured.values()),
            [_second_derivative(across, t) for t in temperatures],
        ),
        "recall.saddle.curvature": Observed.of(
            [abs(saddle_curvature(t) / x - 1) for t, x in measured.items()],
            [abs(printed_saddle_curvature(t) / x - 1) for t, x in measured.items()],
        ),
    }


def _second_derivative(direction: Float[Tensor, " key"], temperature: float) -> float:
    """Curvature of L1 in theta at the saddle along a direction, by autograd."""
    saddle = torch.tensor([0.0, 0, 0, 0, -60, -60], dtype=torch.float64)
    step = torch.zeros((), dtype=torch.float64, requires_grad=True)
    attention = (saddle + step * direction).softmax(0)
    loss = _loss(attention[None], temperature)[0]
    (slope,) = torch.autograd.grad(loss, step, create_graph=True)
    (curvature,) = torch.autograd.grad(slope, step)
    return float(curvature)


def _theorem2(
    outcomes: dict[float, Outcome], low: Float[Tensor, "seed key"]
) -> dict[str, Observed]:
    final = {t: o.attention[:-1] for t, o in outcomes.items()}
    held = {t: o.attention[-1:] for t, o in outcomes.items()}
    uniform = torch.full((1, 6), 1 / 6, dtype=torch.float64)
    first_lighter = torch.stack([v[:, 0] < v[:, 2] for v in final.values()])
    return {
        "recall.theorem2.within-pair": Observed.of(
            _most(within_pair_ratio(v, PAIRS) for v in final.values()),
            within_pair_ratio(low, PAIRS).tolist(),
        ),
        "recall.theorem2.rest": Observed.of(
            _most(rest_mass(v, PAIRS) for v in final.values()),
            rest_mass(uniform, PAIRS).tolist(),
        ),
        "recall.theorem2.light-pair": Observed.of(
            _most(_distance_to_optimum(v, t) for t, v in final.items()),
            _least(_distance_to_optimum(v, t) for t, v in held.items()),
        ),
        "recall.theorem2.loss": Observed.of(
            _most(_loss(v, t) for t, v in final.items()),
            _least(_loss(v, t) for t, v in held.items()),
        ),
        "recall.theorem2.accuracy": Observed.of(
            _least(_accuracy(v) for v in final.values()),
            _least(_accuracy(v) for v in held.values()),
        ),
        "recall.theorem2.sides": Observed.of(
            first_lighter.double().mean(0).tolist(),
            _most((v[:, 0] - v[:, 2]).abs() for v in held.values()),
        ),
    }


def _distance_to_optimum(
    attention: Float[Tensor, "replica key"], temperature: float
) -> Float[Tensor, " replica"]:
    lighter = torch.minimum(attention[:, 0], attention[:, 2])
    return (lighter - _optimum(temperature)[0]).abs()


def _lemma8(temperatures: Sequence[float]) -> Observed:
    """Share of random attentions (v5 = v6 = 0) where the largest ratio rises."""
    shares, control = [], []
    for temperature in temperatures:
        rises, condition = _ratio_rises(temperature)
        shares.append(float(rises[condition].double().mean()))
        control.append(float(rises[~condition].double().mean()))
    return Observed.of(shares, control)


def _ratio_rises(
    temperature: float,
) -> tuple[Bool[Tensor, " point"], Bool[Tensor, " point"]]:
    """Whether the ratio rises under gradient flow, and whether l(r1) > sum p l."""
    source = generator(0, "lemma 8")
    noise = torch.rand(LEMMA8_POINTS, 4, generator=source, dtype=torch.float64)
    odds = -noise.log()
    scores = torch.cat([odds.log(), torch.full((LEMMA8_POINTS, 2), -60.0)], dim=1)
    scores.requires_grad_()
    attention = scores.softmax(1)
    (slope,) = torch.autograd.grad(_loss(attention, temperature).sum(), scores)
    ratios = scores.detach()[:, [0, 2]] - scores.detach()[:, [1, 3]]
    change = -(slope[:, [0, 2]] - slope[:, [1, 3]]) * ratios.sign()
    widest = ratios.abs().argmax(1, keepdim=True)
    logits = relation_logits(attention.detach(), FORMS)
    weights = (logits / temperature + counts().log()).softmax(1)
    condition = logits[:, right_pattern(2)] > (weights * logits).sum(1)
    return change.gather(1, widest)[:, 0] > 0, condition


def _most(values: Iterable[Tensor]) -> list[float]:
    """Per seed the largest value over temperatures."""
    return list(torch.stack(list(values)).amax(0).tolist())


def _least(values: Iterable[Tensor]) -> list[float]:
    """Per seed the least value over temperatures."""
    return list(torch.stack(list(values)).amin(0).tolist())

"""Which arms answer two-hop queries that no training prompt resembles?"""

from dataclasses import replace
from itertools import pairwise

from circuits.claims import Observed
from trained.bridge.arms import Task, covered, embedding, gpt, permutation

from .context import (
    Context,
    Specimen,
    bridge_answers,
    hits,
    last_logits,
    ood,
    ood_obj,
    share,
)

CANDIDATE_COMPLEXITIES = (2, 3, 4)


def observe(context: Context) -> dict[str, Observed]:
    """Figure 2, the prompt without first relation, and the doses of identity."""
    return {
        **_embedding(context),
        **_decline(context),
        **_gpt(context),
        **_omitted(context),
        **_dose(context),
    }


def _embedding(context: Context) -> dict[str, Observed]:
    with_identity, without = embedding(), embedding(1, "none")
    unfactorised = replace(with_identity, factors="one")
    several = embedding(context.config.complexity)
    largest = max(context.config.embedding_sweep)
    each = context.each
    return {
        "bridge.embedding.accuracy": Observed.of(
            each(with_identity, ood), each(without, ood)
        ),
        "bridge.embedding.objects": Observed.of(
            each(with_identity, ood_obj), each(without, ood_obj)
        ),
        "bridge.embedding.degenerate": Observed.of(
            each(replace(several, maps="degenerate"), ood), each(several, ood)
        ),
        "bridge.embedding.nonzero": Observed.of(
            each(embedding(largest), ood), each(embedding(largest, "none"), ood)
        ),
        "bridge.unfactorised.accuracy": Observed.of(
            each(unfactorised, ood), each(with_identity, ood)
        ),
    }


def _decline(context: Context) -> dict[str, Observed]:
    config = context.config
    complexities = sorted({1, config.complexity, *config.embedding_sweep})
    by_complexity = [context.each(embedding(k), ood) for k in complexities]
    curves = list(zip(*by_complexity, strict=True))
    candidates = [k for k in complexities if k in CANDIDATE_COMPLEXITIES]
    return {
        "bridge.embedding.decline": Observed.of(
            [largest_rise(curve) for curve in curves],
            [largest_rise(curve[::-1]) for curve in curves],
        ),
        "bridge.embedding.candidates": Observed.of(
            _distances(context, candidates, "identity"),
            _distances(context, candidates, "none"),
        ),
    }


def largest_rise(curve: tuple[float, ...]) -> float:
    """The largest increase from one value to the next; negative if all fall.

    >>> largest_rise((1.0, 0.5, 0.75))
    0.25
    """
    return max(after - before for before, after in pairwise(curve))


def _distances(context: Context, complexities: list[int], task: Task) -> list[float]:
    """Largest |ood_obj - 1/kappa| of every seed."""
    rows = [
        [abs(x - 1 / k) for x in context.each(embedding(k, task), ood_obj)]
        for k in complexities
    ]
    return [max(column) for column in zip(*rows, strict=True)]


def _gpt(context: Context) -> dict[str, Observed]:
    config = context.config
    several = config.complexity
    found = {}
    for name, kappa in (("one-object", 1), ("several-objects", several)):
        with_identity, without = gpt(kappa), gpt(kappa, "none")
        accuracy = Observed.of(
            context.each(with_identity, ood), context.each(without, ood)
        )
        found[f"bridge.gpt.{name}"] = accuracy
        found[f"bridge.gpt.{name}.objects"] = Observed.of(
            context.each(with_identity, ood_obj), context.each(without, ood_obj)
        )
    found["bridge.gpt.several-objects.each"] = found["bridge.gpt.several-objects"]
    found["bridge.gpt.bridge-answers"] = Observed.of(
        context.each(gpt(several), bridge_answers),
        context.each(gpt(several, "none"), bridge_answers),
    )
    for kappa in sorted(set(config.sweep) - {1, several}):
        found[f"bridge.gpt.k{kappa}"] = Observed.of(
            context.each(gpt(kappa), ood), context.each(gpt(kappa, "none"), ood)
        )
    return found


def _omitted(context: Context) -> dict[str, Observed]:
    several = context.config.complexity
    each = context.each
    return {
        "bridge.omit.one-object": Observed.of(
            each(gpt(), omitted_accuracy), each(gpt(1, "none"), omitted_accuracy)
        ),
        "bridge.omit.probability": Observed.of(
            each(gpt(), omitted_probability), each(gpt(1, "none"), omitted_probability)
        ),
        "bridge.omit.several-objects": Observed.of(
            each(gpt(several), omitted_accuracy),
            each(gpt(several, "none"), omitted_accuracy),
        ),
    }


def omitted_accuracy(specimen: Specimen) -> float:
    """Accuracy among objects after [a, r2], scored against each of its objects."""
    batch = specimen.world.omitted()
    logits = last_logits(specimen.model, batch)
    return share(logits, batch.targets, specimen.world.object_tokens)


def omitted_probability(specimen: Specimen) -> float:
    """Mean probability of the object after [a, r2], in [0, 1]."""
    batch = specimen.world.omitted()
    chances = last_logits(specimen.model, batch).double().softmax(-1)
    return float(chances.gather(1, batch.targets[:, None]).mean())


def _dose(context: Context) -> dict[str, Observed]:
    config = context.config
    found = {}
    for kappa in [1, config.complexity] if "dose" in config.variants else [1]:
        name = "" if kappa == 1 else f"-k{kappa}"
        halves = [
            half_accuracy(context, s) for s in context.specimens(gpt(kappa, "half"))
        ]
        found[f"bridge.dose.half{name}"] = Observed.of(
            [inside for inside, _ in halves], [outside for _, outside in halves]
        )
        permuted = context.specimens(gpt(kappa, "permuted"))
        answers = [permuted_answers(context, s) for s in permuted]
        found[f"bridge.dose.permuted{name}"] = Observed.of(
            [follow for follow, _ in answers], [true for _, true in answers]
        )
    return found


def half_accuracy(context: Context, specimen: Specimen) -> tuple[float, float]:
    """Ood of queries over bridges with the identity task, and of the others."""
    batch = specimen.world.two_hop()
    right = hits(last_logits(specimen.model, batch), batch.targets)
    inside = covered(context.config, specimen.recipe, specimen.seed)
    return float(right[inside].mean()), float(right[~inside].mean())


def permuted_answers(context: Context, specimen: Specimen) -> tuple[float, float]:
    """Shares of two-hop answers f2(s^-1(b)) and f2(b) under [b_j] -> b_{s(j)}."""
    batch = specimen.world.two_hop()
    order = permutation(context.config, specimen.recipe, specimen.seed)
    logits = last_logits(specimen.model, batch)
    followed = batch.targets[order.argsort()]
    return share(logits, followed), share(logits, batch.targets)

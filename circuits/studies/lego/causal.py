"""Do the answers depend on the two retrieved clauses, and on nothing else?

At the training length: attention to a clause is taken away, or the clause's content is
changed in the input. Every edit of a relevant clause stands beside the same edit of an
irrelevant one.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from circuits.claims import Observed
from trained.lego.action import action
from trained.lego.branches import put_tables
from trained.lego.folded import ByVariable
from trained.lego.sentences import Sentences
from trained.seeding import generator

from .context import Context
from .edits import head_silenced, knocked_out, only, other_knocked_out
from .reading import marks, predictions
from .specimen import Specimen, each


def observe(context: Context) -> dict[str, Observed]:
    """Knock-outs, changed contents, parts and ablated variables."""
    found: dict[str, Observed] = {}
    for group in context.config.groups:
        name = action(group).slug.lower()
        specimens = context.models(group)
        found |= _knock_outs(context, name, specimens)
        found |= _contents(context, name, specimens)
        halves = [half_ablated(context, s) for s in specimens]
        found[f"lego.cause.half.{name}"] = Observed.of(
            [ablated for ablated, _ in halves], [intact for _, intact in halves]
        )
        if context.config.n_heads > 1:
            found[f"lego.cause.heads.{name}"] = Observed.of(
                each(specimens, lambda s: least_without_a_head(context, s)),
                each(specimens, lambda s: without_all_heads(context, s)),
            )
    return found


def _knock_outs(
    context: Context, name: str, specimens: list[Specimen]
) -> dict[str, Observed]:
    edits = {
        "predicate": knocked_out(0),
        "answer": knocked_out(1),
        "other": other_knocked_out,
        "predicates only": only("predicates"),
        "answers only": only("answers"),
        "none": None,
    }
    seen = {
        key: [marks(s, context.short(s), edit) for s in specimens]
        for key, edit in edits.items()
    }
    step = {key: [m.step for m in found] for key, found in seen.items()}
    variable = {key: [m.variable_step for m in found] for key, found in seen.items()}
    better = zip(step["predicates only"], step["answers only"], strict=True)
    return {
        f"lego.cause.predicate.{name}": Observed.of(step["predicate"], step["other"]),
        f"lego.cause.answer.{name}": Observed.of(step["answer"], step["other"]),
        f"lego.cause.variable.{name}": Observed.of(
            variable["predicate"], variable["answer"]
        ),
        f"lego.cause.parts.{name}": Observed.of(
            [max(pair) for pair in better], step["none"]
        ),
    }


@dataclass(frozen=True)
class Edited:
    """Sentences of which one clause was changed, and the query that is looked at."""

    sentences: Sentences
    query: Int[Tensor, " sentence"]
    answer: Int[Tensor, " sentence"]
    """The right value after the change."""
    changed: Bool[Tensor, " sentence"]
    """Where there was anything to change: no action moves a fixed value."""


def _contents(
    context: Context, name: str, specimens: list[Specimen]
) -> dict[str, Observed]:
    return {
        f"lego.cause.action.{name}": Observed.of(
            each(specimens, lambda s: followed(s, changed_action(context, s))),
            each(specimens, lambda s: moved_by_another_action(context, s)),
        ),
        f"lego.cause.value.{name}": Observed.of(
            each(specimens, lambda s: followed(s, changed_value(context, s))),
            each(specimens, lambda s: moved_by_another_value(context, s)),
        ),
    }


def changed_action(context: Context, specimen: Specimen, shift: int = 0) -> Edited:
    """Another action in the target predicate of a random query.

    The new one gives another value. With a shift the predicate is that many steps
    further on, and the right value stays.
    """
    clean, query = context.short(specimen), _queries(context, specimen)
    row = torch.arange(len(query))
    source = generator(specimen.seed, "lego", "changed action")
    value, right = clean.values[row, query], clean.values[row, query + 1]
    images = specimen.table[:, value].T
    fits = images != right[:, None]
    changed = fits.any(1)
    fits = fits | ~changed[:, None]
    new = torch.multinomial(fits.double(), 1, generator=source)[:, 0]
    actions = clean.actions.clone()
    actions[row, (query + shift) % clean.length] = new
    answer = right if shift else specimen.table[new, value]
    return Edited(clean._replace(actions=actions), query, answer, changed)


def changed_value(context: Context, specimen: Specimen, shift: int = 0) -> Edited:
    """Another value in the target answer of a random query.

    With a shift it is an earlier answer, and the right value stays; queries without
    an earlier answer are not drawn.
    """
    clean, query = context.short(specimen), _queries(context, specimen)
    query = query.clamp_min(shift)
    row = torch.arange(len(query))
    source = generator(specimen.seed, "lego", "changed value")
    n_values = specimen.action.n_values
    step = torch.randint(1, n_values, query.shape, generator=source)
    values = clean.values.clone()
    place = query - shift
    values[row, place] = (values[row, place] + step) % n_values
    answer = clean.values[row, query + 1]
    if not shift:
        answer = specimen.table[clean.actions[row, query], values[row, query]]
    everywhere = torch.ones_like(query, dtype=torch.bool)
    return Edited(clean._replace(values=values), query, answer, everywhere)


def followed(specimen: Specimen, edited: Edited) -> float:
    """Share of queries whose predicted value is the right one after the change."""
    value = predictions(specimen, edited.sentences).value.argmax(-1)
    chosen = value.gather(1, edited.query[:, None])[:, 0]
    right = (chosen == edited.answer)[edited.changed]
    return float(right.double().mean())


def moved_by_another_action(context: Context, specimen: Specimen) -> float:
    """Share of values that the same change of an irrelevant predicate turns wrong."""
    return 1 - followed(specimen, changed_action(context, specimen, shift=1))


def moved_by_another_value(context: Context, specimen: Specimen) -> float:
    """Share of values that the same change of an earlier answer turns wrong."""
    return 1 - followed(specimen, changed_value(context, specimen, shift=1))


def _queries(context: Context, specimen: Specimen) -> Int[Tensor, " sentence"]:
    source = generator(specimen.seed, "lego", "queries")
    sentences = context.short(specimen)
    shape = (len(sentences.actions),)
    return torch.randint(sentences.length, shape, generator=source)


def half_ablated(context: Context, specimen: Specimen) -> tuple[float, float]:
    """Value accuracy at ablated and at intact variables.

    The diagonal of Q43 is set to the off-diagonal mean for a random half of X.
    """
    tables = specimen.tables
    gone = half_of_variables(specimen)
    n = specimen.n_variables
    off = tables.Q43.sum((1, 2)) - tables.Q43.diagonal(dim1=1, dim2=2).sum(1)
    mean = (off / (n * (n - 1)))[:, None]
    edited = tables.Q43.clone()
    diagonal = edited.diagonal(dim1=1, dim2=2)
    diagonal.copy_(torch.where(gone, mean, diagonal))
    blinded = specimen.attending(ByVariable(*tables.Q43.shape[:2]))
    put_tables(blinded.folded, {"Q43": edited, "Q44": tables.Q44})
    sentences = context.short(specimen)
    right = marks(blinded, sentences).value.double()
    hit = gone[sentences.variables[:, :-1]]
    return float(right[hit].mean()), float(right[~hit].mean())


def half_of_variables(specimen: Specimen) -> Bool[Tensor, " variable"]:
    """A random half of the variables."""
    source = generator(specimen.seed, "lego", "half")
    order = torch.randperm(specimen.n_variables, generator=source)
    return order < specimen.n_variables // 2


def least_without_a_head(context: Context, specimen: Specimen) -> float:
    """Value accuracy with one head silent, for the head that matters most."""
    n_heads = context.config.n_heads
    sentences = context.short(specimen)
    return min(
        marks(specimen, sentences, head_silenced(head)).step for head in range(n_heads)
    )


def without_all_heads(context: Context, specimen: Specimen) -> float:
    """Value accuracy with every head silent: what the FFN's biases know."""
    return marks(specimen, context.short(specimen), lambda p, _: p * 0).step

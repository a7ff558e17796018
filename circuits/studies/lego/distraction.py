"""What do irrelevant clauses do? Distractors swapped in, a long context patched out.

A distractor is an irrelevant predicate whose action also leads from y_l to y_{l+1}.
The last query of the longest chains is looked at; only what the irrelevant predicates
say is changed, never the two targets.
"""

from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from circuits.claims import Observed
from circuits.hooks import intervene, record
from trained.lego.action import action
from trained.lego.arms import MASKS
from trained.lego.sentences import Sentences, draw_sentences
from trained.seeding import generator

from .concentration import fitted
from .context import Context
from .reading import PATTERN, predictions
from .specimen import Specimen, each

Fill = Literal["inside", "outside", "one wrong"]
"""Irrelevant actions all distractors, none a distractor, or all leading from y_l to
the same wrong value."""


def observe(context: Context) -> dict[str, Observed]:
    """Distractors, patched contexts, and training with and without distractors."""
    found: dict[str, Observed] = {}
    for group in context.config.groups:
        name = action(group).slug.lower()
        specimens = context.models(group)
        found[f"lego.distractors.{name}"] = Observed.of(
            each(specimens, lambda s: distracted(context, s, "inside")),
            each(specimens, lambda s: distracted(context, s, "outside")),
        )
        found[f"lego.distractors.wrong.{name}"] = Observed.of(
            each(specimens, lambda s: distracted(context, s, "one wrong")),
            each(specimens, lambda s: distracted(context, s, "inside")),
        )
        if extra_predicates(context) > 0:
            found[f"lego.cause.context.{name}"] = _contexts(context, group)
        if context.config.masked_steps:
            found[f"lego.masked.{name}"] = _masked(context, group)
    return found


def distracted(context: Context, specimen: Specimen, fill: Fill) -> float:
    """Accuracy of the last value with all irrelevant actions chosen by a rule."""
    clean = context.long(specimen)
    actions = filled(specimen, clean, fill)
    value = predictions(specimen, clean._replace(actions=actions)).value[:, -1]
    right = value.argmax(-1) == clean.values[:, -1]
    return float(right[movable(specimen, clean)].double().mean())


def movable(specimen: Specimen, sentences: Sentences) -> Bool[Tensor, " sentence"]:
    """Where some action leads from the last value but one to a wrong value."""
    images = specimen.table[:, sentences.values[:, -2]].T
    return (images != sentences.values[:, -1:]).any(1)


def filled(
    specimen: Specimen, sentences: Sentences, fill: Fill
) -> Int[Tensor, "sentence step"]:
    """The actions with every one but the last redrawn by the rule."""
    source = generator(specimen.seed, "lego", "filled", fill)
    value, right = sentences.values[:, -2], sentences.values[:, -1]
    images = specimen.table[:, value].T
    wanted = images == right[:, None]
    if fill == "outside":
        wanted = ~wanted
    if fill == "one wrong":
        wanted = images == _reachable(images, right, source)[:, None]
    # A value that no action moves has no such actions; it is left out afterwards.
    wanted = wanted | ~wanted.any(1, keepdim=True)
    count = sentences.length - 1
    drawn = torch.multinomial(wanted.double(), count, True, generator=source)
    return torch.cat([drawn, sentences.actions[:, -1:]], dim=1)


def _reachable(
    images: Int[Tensor, "sentence g"],
    right: Int[Tensor, " sentence"],
    source: torch.Generator,
) -> Int[Tensor, " sentence"]:
    """For every sentence a wrong value that some action leads to."""
    wrong = images != right[:, None]
    wrong = (wrong | ~wrong.any(1, keepdim=True)).double()
    chosen = torch.multinomial(wrong, 1, generator=source)
    return images.gather(1, chosen)[:, 0]


def extra_predicates(context: Context) -> int:
    """How many irrelevant predicates fit behind a chain of the training length."""
    config = context.config
    return config.n_variables - config.train_length - 2


def _contexts(context: Context, group: str) -> Observed:
    weak = context.models(group, context.config.budgets[0])
    found = [patched_context(context, s) for s in weak]
    return Observed.of([own for own, _ in found], [other for _, other in found])


@torch.no_grad()
def patched_context(context: Context, specimen: Specimen) -> tuple[float, float]:
    """Value accuracy in a long context, attention from the short one patched in.

    The long sentence is the short one with an unrelated chain's predicates behind its
    own. Returns the accuracy with the attention of the same short sentence (nothing on
    the added predicates), and with no patch.
    """
    clean, tokens = lengthened(context, specimen)
    with record(specimen.model, [PATTERN]) as seen:
        specimen.model(clean.tokens(specimen.model.vocabulary))
    length, extra = clean.length, tokens.shape[1] - 2 * clean.length

    def put(pattern: Tensor) -> Tensor:
        short = seen[PATTERN]
        empty = pattern.new_zeros((*short.shape[:-1], extra))
        return torch.cat([short[..., :length], empty, short[..., length:]], dim=-1)

    n_predicates = length + extra
    plain = specimen.model(tokens, n_predicates=n_predicates).value
    with intervene(specimen.model, {PATTERN: put}):
        patched = specimen.model(tokens, n_predicates=n_predicates).value
    return _right(patched, clean), _right(plain, clean)


def lengthened(
    context: Context, specimen: Specimen
) -> tuple[Sentences, Int[Tensor, "sentence clause 5"]]:
    """Short sentences, and their tokens with an unrelated chain's predicates added."""
    count, extra = context.config.n_sentences, extra_predicates(context)
    length = context.config.train_length
    whole = draw_sentences(
        specimen.table,
        count,
        length + 1 + extra,
        n_variables=specimen.n_variables,
        generator=generator(specimen.seed, "lego", "lengthened"),
    )
    clean = Sentences(
        whole.variables[:, : length + 1],
        whole.actions[:, :length],
        whole.values[:, : length + 1],
        whole.places[:, :length],
    )
    vocabulary = specimen.model.vocabulary
    # The predicate that would join the two chains is left out.
    added = whole.predicates(vocabulary)[:, length + 1 :]
    own = clean.tokens(vocabulary)
    return clean, torch.cat([own[:, :length], added, own[:, length:]], dim=1)


def _right(logits: Float[Tensor, "sentence step n"], clean: Sentences) -> float:
    return float((logits.argmax(-1) == clean.values[:, 1:]).double().mean())


def _masked(context: Context, group: str) -> Observed:
    """K after training without distractors, and with them, over K of any steps."""
    without, among, any_ = (
        each(context.controls(group, mask), lambda s: fitted(context, s))
        for mask in MASKS
    )
    return Observed.of(
        [a / b for a, b in zip(without, any_, strict=True)],
        [a / b for a, b in zip(among, any_, strict=True)],
    )

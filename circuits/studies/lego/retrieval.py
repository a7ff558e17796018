"""Does attention retrieve the two clauses that share the query's variable?

Figures 2 and 5: two diagonals, predicate l + 1 and answer l, which follow the
predicates when these are permuted; and the diagonals of the key-query tables behind
them. Falsified by mass elsewhere, or by a diagonal no larger than a shuffled one.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.claims import Observed
from probes.attention import attention_mass
from probes.weights import diagonal_excess
from trained.lego.action import action
from trained.lego.arms import POSITION
from trained.lego.folded import Uniform
from trained.seeding import generator

from .context import SHORT, Context
from .reading import marks, patterns
from .specimen import Specimen, each


def observe(context: Context) -> dict[str, Observed]:
    """Two diagonals, the tables behind them, permuted predicates."""
    found: dict[str, Observed] = {}
    for group in context.config.groups:
        name = action(group).slug.lower()
        trained = context.models(group)
        blind = [uniform(specimen) for specimen in trained]
        found |= {
            f"lego.diagonals.{name}": Observed.of(
                each(trained, lambda s: target_mass(context, s)),
                each(blind, lambda s: target_mass(context, s)),
            ),
            f"lego.diagonals.elsewhere.{name}": Observed.of(
                each(trained, lambda s: elsewhere(context, s)),
                each(blind, lambda s: elsewhere(context, s)),
            ),
            f"lego.lookup.{name}": Observed.of(
                each(trained, lookup), each(trained, shuffled_lookup)
            ),
            f"lego.lookup.least.{name}": Observed.of(
                each(trained, least_lookup), each(trained, most_elsewhere)
            ),
            f"lego.order.{name}": Observed.of(
                each(trained, lambda s: permuted_accuracy(context, s)),
                each(
                    context.controls(group, POSITION),
                    lambda s: permuted_accuracy(context, s),
                ),
            ),
        }
    return found


def uniform(specimen: Specimen) -> Specimen:
    """The same FFN with the attention before training."""
    n_heads = specimen.folded.block.attn.W_V1.shape[1]
    return specimen.attending(Uniform(n_heads))


def mean_pattern(context: Context, specimen: Specimen) -> Float[Tensor, "query key"]:
    """The mean over heads and sentences of the training length (Figure 2)."""
    return patterns(specimen, context.short(specimen)).mean((0, 1))


def target_mass(context: Context, specimen: Specimen) -> float:
    """Attention on the two targets, mean over heads, sentences and steps."""
    sentences = context.short(specimen)
    rows = patterns(specimen, sentences).mean(1)
    return float(attention_mass(rows, sentences.targets()).mean())


def elsewhere(context: Context, specimen: Specimen) -> float:
    """The largest mean attention of a query on a clause that is not its target."""
    mean = mean_pattern(context, specimen).clone()
    length = len(mean)
    step = torch.arange(length)
    mean[step, step] = mean[step, length + step] = 0
    return float(mean.max())


def lookup(specimen: Specimen) -> float:
    """Diagonal minus off-diagonal mean, the least over Q43, Q44 and heads."""
    tables = specimen.tables
    return float(diagonal_excess(torch.stack([tables.Q43, tables.Q44])).min())


def least_lookup(specimen: Specimen) -> float:
    """The least diagonal entry minus the off-diagonal mean, mean over heads.

    The least over variables and both tables: one variable that was hardly trained
    would fail alone.
    """
    table = _centred(specimen)
    return float(table.diagonal(dim1=-2, dim2=-1).min())


def most_elsewhere(specimen: Specimen) -> float:
    """The largest off-diagonal entry minus the off-diagonal mean, likewise."""
    table = _centred(specimen)
    diagonal = torch.eye(specimen.n_variables, dtype=torch.bool)
    return float(table.masked_fill(diagonal, -torch.inf).max())


def _centred(specimen: Specimen) -> Float[Tensor, "table variable variable2"]:
    """Q43 and Q44, mean over heads, minus their off-diagonal means."""
    both = torch.stack([specimen.tables.Q43, specimen.tables.Q44]).mean(1)
    n = specimen.n_variables
    off = both.sum((1, 2)) - both.diagonal(dim1=1, dim2=2).sum(1)
    return both - (off / (n * (n - 1)))[:, None, None]


def shuffled_lookup(specimen: Specimen) -> float:
    """The same of the tables with their columns shuffled, the largest in size."""
    tables = specimen.tables
    source = generator(specimen.seed, "lego", "shuffled")
    order = torch.randperm(specimen.n_variables, generator=source)
    both = torch.stack([tables.Q43, tables.Q44])[..., order]
    return float(diagonal_excess(both).abs().max())


def permuted_accuracy(context: Context, specimen: Specimen) -> float:
    """`all` at the training length with the predicates in random order."""
    count = max(SHORT, context.config.n_sentences)
    length = context.config.train_length
    sentences = specimen.sentences(length, count, order="permuted")
    return marks(specimen, sentences).all

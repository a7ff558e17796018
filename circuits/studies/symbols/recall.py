"""Recall of a value by its name (two scalars, two roles), and the variants."""

import torch

from circuits.claims import Observed
from trained.symbols.scores import answers
from trained.symbols.setting import recalling, relation, variants
from trained.symbols.tasks import Task

from .causal import error_without, unseen_error
from .claims_variants import RECALL_LEAST
from .context import Context, Specimen
from .edits import Scalar, decoder, knocked_out


def observe(context: Context) -> dict[str, Observed]:
    """The double dissociation, and what the variants add."""
    found = _variants(context)
    for n in context.config.recall_n:
        if n >= RECALL_LEAST:
            found |= _recall(context, n)
    return found


def _recall(context: Context, n: int) -> dict[str, Observed]:
    config, each = context.config, context.each
    both, plain = recalling(config, n, "ab"), recalling(config, n)
    layers = range(both.depth)
    silent = each(both, lambda s: error_without(s, "b", layers))
    intact = each(both, unseen_error)
    return {
        f"symbols.recall.n{n}": Observed.of(
            context.scores(both, "test_error"), context.scores(plain, "test_error")
        ),
        f"symbols.recall.n{n}.emission": Observed.of(silent, intact),
        f"symbols.recall.n{n}.binding": Observed.of(
            each(both, lambda s: error_without(s, "a", layers)), silent
        ),
        f"symbols.recall.n{n}.values": Observed.of(
            each(both, lambda s: value_share(s, "a")),
            each(both, lambda s: value_share(s, "b")),
        ),
    }


@torch.no_grad()
def value_share(specimen: Specimen, name: Scalar) -> float:
    """Share of test answers that are a possible value, with one scalar at 0."""
    model, strings = decoder(specimen), specimen.strings["test"]
    with knocked_out(model, name, range(model.config.n_layers)):
        said = answers(model, strings).argmax(-1)
    places = value_places(specimen.alphabet.task)
    return float((strings.tokens[:, places] == said[:, None]).any(1).float().mean())


def value_places(task: Task) -> list[int]:
    """The positions that hold the answer of some template.

    >>> from trained.symbols.tasks import task
    >>> value_places(task("recall"))
    [1, 3]
    """
    pairs = zip(task.templates, task.labels, strict=True)
    return sorted({t.symbols.index(str(label)) for t, label in pairs})


def _variants(context: Context) -> dict[str, Observed]:
    config, scores = context.config, context.scores
    n, given = config.compared_n, variants(config)
    modified, vanilla = relation(config, n, "a"), relation(config, n)
    found = {}
    if "both" in config.variants:
        alone, both = map(scores, given["both"])
        found["symbols.identity.both"] = Observed.of(both, alone)
    if "mimetic" in config.variants:
        found["symbols.mimetic"] = Observed.of(
            scores(given["mimetic"][0]), scores(vanilla)
        )
    if "recurrent" in config.variants:
        for cell in given["recurrent"]:
            name = f"symbols.{cell.model}"
            found[name] = Observed.of(scores(cell), scores(modified))
    if "last_layer" in config.variants:
        one, eight, most = map(scores, given["last_layer"])
        found["symbols.last-layer"] = Observed.of(
            [a - b for a, b in zip(most, eight, strict=True)],
            [a - b for a, b in zip(eight, one, strict=True)],
        )
    return found

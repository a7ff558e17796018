"""Does the identity term of the first layer carry the comparison of symbols?"""

import torch

from circuits.claims import Observed
from trained.symbols.scores import error, loss
from trained.symbols.setting import relation

from .context import Context, Specimen, differences
from .edits import Scalar, averaged_out, decoder, held, knocked_out, with_matching

INSERTED = (2.0, 8.0, 32.0)
"""Sizes of m a |x|^2 that are tried, with both signs, in a model trained without a."""


def observe(context: Context) -> dict[str, Observed]:
    """Knock-outs of a, and an a that was not trained; they need a second layer."""
    if context.config.depth < 2:
        return {}
    config, each = context.config, context.each
    modified = relation(config, config.compared_n, "a")
    first, later = range(1), range(1, config.depth)
    intact = each(modified, unseen_error)
    zero = each(modified, lambda s: error_without(s, "a", first))
    removed = differences(each(modified, loss_without), each(modified, unseen_loss))
    return {
        "symbols.cause.knockout": Observed.of(zero, intact),
        "symbols.cause.knockout.mean": Observed.of(
            each(modified, lambda s: error_averaged(s, "a", first)), intact
        ),
        "symbols.cause.knockout.later": Observed.of(
            each(modified, lambda s: error_without(s, "a", later)), zero
        ),
        "symbols.cause.knockout.queries": Observed.of(
            each(modified, error_without_queries), intact
        ),
        "symbols.cause.inserted": Observed.of(
            each(relation(config, config.compared_n), inserted_change), removed
        ),
    }


@torch.no_grad()
def unseen_loss(specimen: Specimen) -> float:
    """The loss on test strings, as the model is now."""
    return float(loss(specimen.model, specimen.strings["test"]))


@torch.no_grad()
def unseen_error(specimen: Specimen) -> float:
    """The error on test strings, as the model is now."""
    return float(error(specimen.model, specimen.strings["test"]))


def error_without(specimen: Specimen, name: Scalar, layers: range) -> float:
    """Test error with the scalars of some layers at 0."""
    model = decoder(specimen)
    with knocked_out(model, name, layers):
        return unseen_error(specimen)


def error_averaged(specimen: Specimen, name: Scalar, layers: range) -> float:
    """Test error with what the scalars of some layers add at its mean."""
    model, strings = decoder(specimen), specimen.strings["test"]
    with averaged_out(model, name, layers, strings):
        return unseen_error(specimen)


def error_without_queries(specimen: Specimen) -> float:
    """Test error with W_Q at 0 in every layer: only the identity term matches."""
    with held(block.attn.W_Q for block in decoder(specimen).blocks):
        return unseen_error(specimen)


@torch.no_grad()
def inserted_change(specimen: Specimen) -> float:
    """Change of test loss by the a, set by hand, that is best on validation."""
    model, strings = decoder(specimen), specimen.strings
    found = []
    for size in (sign * size for size in INSERTED for sign in (1, -1)):
        edited = with_matching(model, size)
        found.append(
            (
                float(loss(edited, strings["validation"])),
                float(loss(edited, strings["test"])),
            )
        )
    return min(found)[1] - unseen_loss(specimen)


def loss_without(specimen: Specimen) -> float:
    """Test loss with the first layer's a at 0."""
    with knocked_out(decoder(specimen), "a", range(1)):
        return unseen_loss(specimen)

"""Are symbols arbitrary to a model: do other vectors for them change its answers?"""

from collections.abc import Callable

import torch
from torch import Tensor

from circuits.claims import Observed
from trained.decoder import Decoder
from trained.seeding import generator
from trained.symbols.sampler import Strings
from trained.symbols.scores import loss
from trained.symbols.setting import relation

from .causal import unseen_loss
from .context import Context, Specimen
from .edits import decoder, fresh_symbols, permuted, replaced_inputs


def observe(context: Context) -> dict[str, Observed]:
    """Fresh, permuted and scattered symbols on the real-label task."""
    config = context.config
    modified = relation(config, config.compared_n, "a")
    vanilla = relation(config, config.compared_n)
    scattered = context.each(modified, scattered_change)
    return {
        "symbols.check.fresh": Observed.of(
            context.each(modified, fresh_change), scattered
        ),
        "symbols.check.permuted": Observed.of(
            context.each(modified, permuted_change), scattered
        ),
        "symbols.cause.seen-fresh": Observed.of(
            context.each(modified, lambda s: with_fresh_seen(s, loss)),
            context.each(vanilla, lambda s: with_fresh_seen(s, loss)),
        ),
    }


@torch.no_grad()
def fresh_change(specimen: Specimen) -> float:
    """Change of test loss, in size, by fresh vectors for the test symbols."""
    source = generator(specimen.seed, "symbols", "fresh")
    before = unseen_loss(specimen)
    ids = specimen.alphabet.ids["test"]
    with fresh_symbols(decoder(specimen), ids, generator=source):
        return abs(unseen_loss(specimen) - before)


@torch.no_grad()
def scattered_change(specimen: Specimen) -> float:
    """The same with a fresh vector for every occurrence: nothing is equal any more."""
    model, strings = decoder(specimen), specimen.strings["test"]
    shape = (*strings.tokens[:, :-1].shape, model.config.d_model)
    source = generator(specimen.seed, "symbols", "scattered")
    before = unseen_loss(specimen)
    with replaced_inputs(model, strings, torch.randn(shape, generator=source)):
        return abs(unseen_loss(specimen) - before)


@torch.no_grad()
def permuted_change(specimen: Specimen) -> float:
    """Change of test loss, in size, by permuting the test symbols."""
    ids, strings = specimen.alphabet.ids["test"], specimen.strings["test"]
    source = generator(specimen.seed, "symbols", "permuted")
    other = permuted(strings, ids, generator=source)
    return abs(float(loss(specimen.model, other)) - unseen_loss(specimen))


@torch.no_grad()
def with_fresh_seen(
    specimen: Specimen, quantity: Callable[[Decoder, Strings], Tensor]
) -> float:
    """A quantity on training strings with fresh vectors for their symbols."""
    source = generator(specimen.seed, "symbols", "fresh-seen")
    model, ids = decoder(specimen), specimen.alphabet.ids["train"]
    with fresh_symbols(model, ids, generator=source):
        return float(quantity(model, specimen.strings["train"]))

"""Which layer's attention pattern tells same from different?"""

import torch

from circuits.claims import Observed
from circuits.hooks import intervene, record
from circuits.sites import Site
from trained.seeding import generator
from trained.symbols.scores import answers
from trained.symbols.setting import relation

from .context import Context, Specimen
from .edits import decoder, donors


def observe(context: Context) -> dict[str, Observed]:
    """Patterns exchanged between strings, and a head that compares."""
    if context.config.depth < 2:
        return {}
    config = context.config
    modified = relation(config, config.compared_n, "a")
    vanilla = relation(config, config.n[-1])
    places = {
        "symbols.cause.pattern": (modified, 0),
        "symbols.cause.pattern.later": (modified, config.depth - 1),
        "symbols.cause.pattern.vanilla": (vanilla, 0),
    }
    found = {}
    for name, (setting, layer) in places.items():
        models = context.specimens(setting)
        found[name] = Observed.of(
            [pattern_effect(s, layer, same=False) for s in models],
            [pattern_effect(s, layer, same=True) for s in models],
        )
    if config.task == "same_different":
        plain = relation(config, config.compared_n)
        found["symbols.match"] = Observed.of(
            context.each(modified, match_gap), context.each(plain, match_gap)
        )
    return found


def pattern_effect(specimen: Specimen, layer: int, *, same: bool) -> float:
    """Share of the output gap that moves with a donor's patterns of one layer.

    The gap is between the mean outputs for labels above and below zero; the donor has
    the same or the other sign. 0: nothing moves, 1: the outputs trade places.
    """
    model, strings = decoder(specimen), specimen.strings["test"]
    signs = strings.targets.sign()
    source = generator(specimen.seed, "symbols", "donors", str(same))
    order = donors(signs.long(), same=same, generator=source)
    place = Site("pattern", layer)
    with torch.no_grad():
        with record(model, [place]) as seen:
            plain = answers(model, strings)[:, 0]
        pattern = seen[place][order]
        with intervene(model, {place: lambda _: pattern}):
            patched = answers(model, strings)[:, 0]
    gap = plain[signs > 0].mean() - plain[signs < 0].mean()
    return float(((plain - patched) * signs).mean() / gap)


def match_gap(specimen: Specimen) -> float:
    """Largest difference over heads of attention from symbol 2 to symbol 1, in [0, 1].

    |mean A[2 -> 1 | same] - mean A[2 -> 1 | different]| in the first layer.
    """
    model, strings = decoder(specimen), specimen.strings["test"]
    place = Site("pattern", 0)
    with torch.no_grad(), record(model, [place]) as seen:
        model(strings.tokens)
    weight, same = seen[place][:, :, 1, 0], strings.targets > 0
    return float((weight[same].mean(0) - weight[~same].mean(0)).abs().max())

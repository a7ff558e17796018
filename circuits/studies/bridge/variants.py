"""The arms that are only reported: tied head, standard initialisation, decay, maps."""

from dataclasses import replace

from circuits.claims import Observed
from trained.bridge.arms import gpt, tied

from .accuracy import permuted_answers
from .alignment import net_cosine
from .context import Context, difference, ood, ood_obj


def observe(context: Context) -> dict[str, Observed]:
    """Whatever variants the configuration asks for."""
    parts = {
        "tied": _tied_permuted,
        "standard": _standard,
        "decay": _decay,
        "fixed": _fixed,
        "random": _random,
    }
    found = _tied(context)
    for name in context.config.variants:
        if name in parts:
            found |= parts[name](context)
    return found


def _tied(context: Context) -> dict[str, Observed]:
    config = context.config
    asked = (
        ("tied", "one-object", 1),
        ("tied_several", "several-objects", config.complexity),
    )
    found = {}
    for variant, name, kappa in asked:
        if variant not in config.variants:
            continue
        for kind, quantity in (("accuracy", ood), ("objects", ood_obj)):
            found[f"bridge.tied.{name}.{kind}"] = Observed.of(
                context.each(tied(kappa), quantity),
                context.each(tied(kappa, "none"), quantity),
            )
    return found


def _tied_permuted(context: Context) -> dict[str, Observed]:
    specimens = context.specimens(tied(1, "permuted"))
    answers = [permuted_answers(context, s) for s in specimens]
    return {
        "bridge.tied.permuted": Observed.of(
            [follow for follow, _ in answers], [true for _, true in answers]
        )
    }


def _standard(context: Context) -> dict[str, Observed]:
    one, several = gpt(), gpt(context.config.complexity)
    std, none = replace(one, std=0.02), replace(one, task="none", std=0.02)
    each = context.each
    small_lead = [
        difference(each(small, ood_obj), each(replace(small, std=0.02), ood_obj))
        for small in (several, one)
    ]
    large = replace(one, gamma=context.config.standard_gamma)
    return {
        "bridge.standard.accuracy": Observed.of(each(std, ood), each(none, ood)),
        "bridge.standard.objects": Observed.of(each(std, ood_obj), each(none, ood_obj)),
        "bridge.standard.decline": Observed.of(*small_lead),
        "bridge.standard.large-gamma": Observed.of(each(large, ood), each(none, ood)),
    }


def _decay(context: Context) -> dict[str, Observed]:
    standard = replace(gpt(), gamma=context.config.standard_gamma)
    without = replace(standard, decay=0.0)
    found = {}
    quantities = (("objects", ood_obj), ("accuracy", ood), ("alignment", net_cosine))
    for decay in context.config.weight_decays:
        for name, quantity in quantities:
            base = context.each(without, quantity)
            treated = context.each(replace(standard, decay=decay), quantity)
            found[f"bridge.decay.w{decay:g}.{name}"] = Observed.of(
                difference(treated, base), base
            )
    return found


def _fixed(context: Context) -> dict[str, Observed]:
    small = replace(gpt(), offset="none")
    standard = replace(small, gamma=context.config.standard_gamma)
    return {
        "bridge.fixed.accuracy": Observed.of(
            context.each(standard, ood), context.each(small, ood)
        )
    }


def _random(context: Context) -> dict[str, Observed]:
    arms = [
        replace(gpt(context.config.complexity, task), maps="random")
        for task in ("identity", "none")
    ]
    return {
        "bridge.random.accuracy": Observed.of(*(context.each(arm, ood) for arm in arms))
    }

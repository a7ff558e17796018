"""Do networks relate symbols that they have never seen, and with how much data?"""

import torch

from circuits.claims import Observed
from trained.symbols.scores import loss
from trained.symbols.setting import Setting, baseline, others, relation, variants
from trained.symbols.tasks import task

from .claims_relation import LEVEL
from .context import Context, Specimen, differences
from .efficiency import data_ratio, needs


def observe(context: Context) -> dict[str, Observed]:
    """Test errors of the real-label tasks."""
    found = {**_vanilla(context), **_identity(context), **_others(context)}
    if not task(context.config.task).regular:
        found |= _perceptron(context)
    if "controls" in context.config.variants:
        found |= _controls(context)
    return found


@torch.no_grad()
def train_loss(specimen: Specimen) -> float:
    """The loss on the whole training set after the last step."""
    return float(loss(specimen.model, specimen.strings["train"]))


def worst_fit(context: Context, found: list[Setting]) -> Observed:
    """Each seed's largest training loss over settings, after and before training."""
    after = [context.each(setting, train_loss) for setting in found]
    before = [[train_loss(s) for s in context.untrained(setting)] for setting in found]
    return Observed.of(
        [max(values) for values in zip(*after, strict=True)],
        [min(values) for values in zip(*before, strict=True)],
    )


def data_needs(context: Context, found: list[Setting]) -> list[float]:
    """The n at which each seed's test loss reaches the level."""
    errors = torch.tensor([context.scores(setting) for setting in found])
    return needs(tuple(setting.n for setting in found), errors, LEVEL)


def _perceptron(context: Context) -> dict[str, Observed]:
    # After the last step, where the network fits its strings: on validation symbols a
    # network that has learned nothing yet is as good as any.
    config, scores = context.config, context.last_scores
    found = {}
    for n in config.n:
        if n < 64:
            continue
        plain, given = baseline(config, n), baseline(config, n, "mlp_incidence")
        found[f"symbols.mlp.n{n}"] = Observed.of(scores(plain), scores(given))
        found[f"symbols.mlp.n{n}.error"] = Observed.of(
            scores(plain, "test_error"), scores(given, "test_error")
        )
    plain_all = [baseline(config, n) for n in config.n]
    return {**found, "symbols.mlp.fits": worst_fit(context, plain_all)}


def _vanilla(context: Context) -> dict[str, Observed]:
    config = context.config
    found = {}
    for n in (1024, 4096):
        if n in config.n and 64 in config.n:
            found[f"symbols.vanilla.n{n}"] = Observed.of(
                context.scores(relation(config, n)),
                context.scores(relation(config, 64)),
            )
    every = [relation(config, n) for n in config.n]
    every += [relation(config, n, "a") for n in config.identity_n]
    return {**found, "symbols.fits": worst_fit(context, every)}


def _identity(context: Context) -> dict[str, Observed]:
    config, scores = context.config, context.scores
    n = config.compared_n
    found = {
        "symbols.identity": Observed.of(
            scores(relation(config, n, "a")), scores(relation(config, n))
        )
    }
    if 64 in config.identity_n and 1024 in config.n:
        much = scores(relation(config, 1024))
        found["symbols.identity.sixteenfold"] = Observed.of(
            differences(scores(relation(config, 64, "a")), much),
            differences(scores(relation(config, 64)), much),
        )
    if len(config.identity_n) >= 2:
        vanilla = data_needs(context, [relation(config, n) for n in config.n])
        modified = data_needs(
            context, [relation(config, n, "a") for n in config.identity_n]
        )
        top = float(config.n[-1])
        following = [min(need, top) for need in vanilla[1:] + vanilla[:1]]
        found["symbols.identity.ratio"] = Observed.of(
            data_ratio(vanilla, modified, top), data_ratio(vanilla, following, top)
        )
    return found


def _controls(context: Context) -> dict[str, Observed]:
    config, scores = context.config, context.scores
    n = config.compared_n
    shallow, shallow_a, orthogonal = map(scores, variants(config)["controls"])
    modified, vanilla = scores(relation(config, n, "a")), scores(relation(config, n))
    found = {"symbols.identity.orthogonal": Observed.of(orthogonal, modified)}
    if config.depth >= 2:
        found["symbols.identity.depth1"] = Observed.of(shallow_a, modified)
        found["symbols.identity.depth1.gain"] = Observed.of(
            [abs(d) for d in differences(shallow_a, shallow)],
            [abs(d) for d in differences(modified, vanilla)],
        )
    return found


def _others(context: Context) -> dict[str, Observed]:
    config = context.config
    pairs = {name: others(config, name) for name in config.other_tasks}
    return {
        f"symbols.identity.{name}": Observed.of(
            context.scores(modified), context.scores(vanilla)
        )
        for name, (vanilla, modified) in pairs.items()
    }

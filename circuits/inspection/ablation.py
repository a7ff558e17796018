"""What is lost without a part: ablations and knock-outs, by name, on given prompts."""

from collections.abc import Sequence
from contextlib import AbstractContextManager

from circuits.hooks import Model
from circuits.interventions import ablation
from circuits.interventions.ablation import Edges
from circuits.interventions.edit import Mean, Resample, Rule, Transplant, Zero
from circuits.interventions.part import Part, Places
from circuits.models.prompts import named
from trained.errors import BadInput, unknown
from trained.task import Batch

RULES = ("zero", "mean", "resample", "transplant")


def ablate(
    model: Model,
    prompts: Batch,
    parts: Part | Sequence[Part],
    rule: str | Rule = "mean",
    *,
    reference: Batch | None = None,
    seed: int = 0,
) -> AbstractContextManager[None]:
    """Replace parts of the model in every pass over these prompts in the block.

    Args:
        model: the model.
        prompts: what the model runs on in the block.
        parts: one or several; their positions may be phrases of the prompts.
        rule: "zero"; "mean" of the reference prompts; "resample", a reference prompt
            drawn for each; "transplant", reference prompt i into prompt i; or a rule of
            `circuits.interventions.edit`.
        reference: the prompts of a rule that is given by name.
        seed: of the draw.
    """
    several = [parts] if isinstance(parts, Part) else list(parts)
    places = [part.positions for part in several]
    if not isinstance(rule, str):
        if reference is not None:
            raise BadInput("a rule that is given as an object has its own reference")
        return ablation.ablate(model, named(model, prompts, *places), several, rule)
    other = None if reference is None else named(model, reference, *places)
    chosen = _rule(rule, other, seed)
    return ablation.ablate(model, named(model, prompts, *places), several, chosen)


def knock_out(
    model: Model,
    prompts: Batch,
    layers: int | Sequence[int],
    *,
    to: Places,
    query: Places = "last",
    head: int | tuple[int, ...] | None = None,
) -> AbstractContextManager[None]:
    """Cut what a query reads from some keys, and spread its attention over the rest.

    Args:
        model: the model.
        prompts: what the model runs on in the block.
        layers: one or several.
        to: the keys: a role, a phrase that is in every prompt, or columns.
        query: who looks.
        head: one head, some, or None for all of these layers.
    """
    several = [layers] if isinstance(layers, int) else layers
    heads = (head,) if isinstance(head, int) else head
    edges = [Edges(layer, query, to, heads) for layer in several]
    return ablation.knock_out(model, named(model, prompts, to, query), edges)


def _rule(name: str, reference: Batch | None, seed: int) -> Rule:
    if name not in RULES:
        raise unknown("rule", name, RULES)
    if name == "zero":
        return Zero()
    if reference is None:
        raise BadInput(f"rule '{name}' needs reference prompts: reference=...")
    if name == "mean":
        return Mean([reference])
    return Resample(reference, seed) if name == "resample" else Transplant(reference)

"""Which positions of a prompt are meant: columns, a role, the last token, or all."""

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from circuits.models.prompts import Prompts
from trained.errors import BadInput, unknown
from trained.task import Batch

Examples = Batch | Prompts
"""What a model is run on."""

Places = str | int | tuple[int, ...] | None
"""A role's name, "last" (each prompt's last token), columns, or None for all."""


def columns(examples: Examples, places: Places) -> Int[Tensor, "batch place"]:
    """The columns of the places, prompt by prompt."""
    n_examples, n_pos = examples.tokens.shape
    device = examples.tokens.device
    if isinstance(places, str):
        return _named(examples, places)
    if places is None:
        wanted = tuple(range(n_pos))
    else:
        wanted = (places,) if isinstance(places, int) else places
    wrong = [column for column in wanted if not 0 <= column < n_pos]
    if wrong or not wanted:
        raise unknown("position", wrong or "(none)", f"0 to {n_pos - 1}")
    return torch.tensor(wanted, device=device).expand(n_examples, len(wanted))


def column(examples: Examples, places: Places) -> Int[Tensor, " batch"]:
    """The one column of the places, prompt by prompt."""
    found = columns(examples, places)
    if found.shape[1] != 1:
        raise BadInput(f"{places!r} are {found.shape[1]} positions: one is needed")
    return found[:, 0]


def place_mask(examples: Examples, places: Places) -> Bool[Tensor, "batch pos"]:
    """True at the places; with all of them, padding included."""
    mask = torch.zeros_like(examples.tokens, dtype=torch.bool)
    return mask.scatter(1, columns(examples, places), True)


def real_tokens(examples: Examples) -> Bool[Tensor, "batch pos"]:
    """True at what is not padding."""
    if isinstance(examples, Prompts):
        return examples.mask
    return torch.ones_like(examples.tokens, dtype=torch.bool)


def require_same_layout(examples: Examples, others: Examples) -> None:
    """`BadInput` unless a column means the same in both: as long, as padded."""
    real, other = real_tokens(examples), real_tokens(others)
    if real.shape[1] != other.shape[1]:
        raise BadInput(
            f"prompts of {other.shape[1]} and of {real.shape[1]} tokens: name a role, "
            "or use prompts of one length"
        )
    if real.shape != other.shape or not torch.equal(real, other):
        raise BadInput(
            "prompts are padded at different positions: name a role, or use prompts "
            "of one length"
        )


def require_same_places(examples: Examples, others: Examples, places: Places) -> None:
    """`BadInput` unless the places are the same columns in both."""
    if not torch.equal(columns(examples, places), columns(others, places)):
        raise BadInput(f"{places!r} is at other positions in the other prompts")


def rows_of(examples: Examples, rows: Int[Tensor, " row"]) -> Examples:
    """Some of the prompts, in the given order, with repetition."""
    roles = {name: places[rows] for name, places in examples.roles.items()}
    tokens, targets = examples.tokens[rows], examples.targets[rows]
    if isinstance(examples, Prompts):
        return Prompts(tokens, examples.mask[rows], targets, roles)
    return Batch(tokens, targets, roles)


def with_targets(examples: Examples, targets: Int[Tensor, " batch"]) -> Examples:
    """The same prompts with other expected answers."""
    if len(targets) != len(examples.targets):
        raise BadInput(f"{len(targets)} targets for {len(examples.targets)} prompts")
    if isinstance(examples, Prompts):
        return Prompts(examples.tokens, examples.mask, targets, examples.roles)
    return Batch(examples.tokens, targets, examples.roles)


def moved_places(
    activation: Shaped[Tensor, "batch pos ..."],
    source: Int[Tensor, "batch place"],
    target: Int[Tensor, "batch place"],
    n_pos: int,
) -> Shaped[Tensor, "batch n_pos ..."]:
    """An activation whose source columns lie at the target columns; 0 elsewhere."""
    if source.shape != target.shape:
        raise BadInput(
            f"{source.shape[1]} positions for {target.shape[1]}: a role must have as "
            "many in both batches"
        )
    rows = torch.arange(len(source), device=source.device)[:, None]
    out = activation.new_zeros(len(activation), n_pos, *activation.shape[2:])
    out[rows, target] = activation[rows, source]
    return out


def _named(examples: Examples, name: str) -> Int[Tensor, "batch place"]:
    if name != "last" or name in examples.roles:
        if name not in examples.roles:
            raise unknown("role", name, ["last", *sorted(examples.roles)])
        return examples.role(name)
    if isinstance(examples, Prompts):
        return examples.last[:, None]
    return columns(examples, examples.tokens.shape[1] - 1)

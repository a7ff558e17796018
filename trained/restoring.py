"""A model of a stored run, put together again."""

from collections.abc import Mapping

from torch import Tensor, nn

from .arm import Arm
from .errors import BadInput
from .fingerprint import parameter_hash
from .store import Run


def restore(run: Run, arm: Arm, seed: int, *, step: int | None = None) -> nn.Module:
    """The model of one seed at a saved step (default: the last), in eval mode."""
    seeds = run.record(arm.name)["seeds"]
    if seed not in seeds:
        raise BadInput(f"arm {arm.name} has no seed {seed}; it has {seeds}")
    index = seeds.index(seed)
    weights = run.weights(arm.name, step)
    model = arm.build(seed)
    _require_base(run, arm, model, index)
    try:
        if set(weights) != _stored_names(arm, model):
            raise IndexError("other names")
        own = {name: tensor[index] for name, tensor in weights.items()}
        _require_numbers(f"{run.path}/{arm.name}", own, model)
        # Tied parameters are stored once, under the first of their names.
        model.load_state_dict(own, strict=False)
    except (RuntimeError, IndexError) as error:
        raise BadInput(
            f"{run.path}/{arm.name} holds another model's weights"
        ) from error
    return model.eval()


def _require_base(run: Run, arm: Arm, model: nn.Module, index: int) -> None:
    """What is not stored must be what it was in training."""
    if arm.stores == "everything":
        return
    found = frozen_hash(arm, dict(model.named_parameters()))
    if found != run.record(arm.name)["frozen"][index]:
        raise BadInput(
            f"{run.path}/{arm.name} was trained from another model: parameters that "
            "are not stored with it differ"
        )


def frozen_hash(arm: Arm, parameters: Mapping[str, Tensor]) -> str:
    """A hash of every parameter that is not stored."""
    return parameter_hash({k: t for k, t in parameters.items() if not arm.is_stored(k)})


def _require_numbers(place: str, own: Mapping[str, Tensor], model: nn.Module) -> None:
    """Tensors of the model's own types, with a value everywhere."""
    expected = model.state_dict()
    for name, tensor in own.items():
        if tensor.dtype != expected[name].dtype:
            raise BadInput(
                f"{place}: {name} is {tensor.dtype}, not {expected[name].dtype}"
            )
        if tensor.is_floating_point() and tensor.isnan().any():
            raise BadInput(f"{place}: {name} of this seed is not a number somewhere")


def _stored_names(arm: Arm, model: nn.Module) -> set[str]:
    names = {name for name, _ in (*model.named_parameters(), *model.named_buffers())}
    return {name for name in names & set(model.state_dict()) if arm.is_stored(name)}

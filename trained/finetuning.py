"""Fine-tuning a pretrained model on facts, as arms of the usual training engine.

A curriculum says which lists of facts are trained on and in which order. All lists
are measured throughout: one that was trained on earlier shows what is retained, one
that never is shows what generalises. Runs are stored, resumed and restored as those of
the small models are, except that only the trained parameters are kept. Where only the
last layers are trained, what the others make of the facts is computed once.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from .arm import Arm, Data, Optimiser, Quantity, Stage
from .ensemble import leaves
from .errors import BadInput, unknown
from .facts import (
    Fact,
    FactBatch,
    ResumedBatch,
    answer_loss,
    answer_scores,
    block_list,
    encode,
    resumed_loss,
    run_frozen,
)
from .finetuning_config import FineTuning as FineTuning

Lists = Mapping[str, Sequence[Fact]]
"""Facts by the name of their list."""


@dataclass(frozen=True)
class Curriculum:
    """The order in which lists are trained on: phases, each of one or more lists.

    Curriculum("joint", (("similarity", "attribution"),))
    Curriculum("SA", (("similarity",), ("attribution",)))
    """

    name: str
    phases: tuple[tuple[str, ...], ...]

    @property
    def trained(self) -> set[str]:
        """The lists that some phase trains on."""
        return {name for phase in self.phases for name in phase}


def fine_tuning(
    model: nn.Module,
    tokenizer: Any,
    curriculum: Curriculum,
    lists: Lists,
    config: FineTuning,
) -> Arm:
    """The arm that fine-tunes copies of a transformers model.

    Its metrics are, for every list, the means over facts of `<list>/logprob`,
    `<list>/rank` and `<list>/exact` (see `Scores`), once per epoch of the first phase.
    The weights at the end of every phase are kept. Dropout is off, so that a resumed
    run repeats an unbroken one; seeds differ in the order of the facts.

    Args:
        model: the pretrained model; it is not changed.
        tokenizer: its tokenizer.
        curriculum: what is trained on, in which order.
        lists: what is measured; the curriculum names some of them.
        config: how.
    """
    _require_lists(curriculum, lists)
    batches = {name: encode(tokenizer, facts) for name, facts in lists.items()}

    def build(_seed: int) -> nn.Module:
        return copy.deepcopy(model).float().eval()

    base = build(0)
    stages = tuple(
        _stage(index, base, encode(tokenizer, _joined(lists, phase)), config)
        for index, phase in enumerate(curriculum.phases)
    )
    ends = [sum(stage.steps for stage in stages[: i + 1]) for i in range(len(stages))]
    return Arm(
        name=curriculum.name,
        build=build,
        stages=stages,
        measure=_measure,
        held_out=lambda _seed: batches,
        record_every=stages[0].steps // config.epochs,
        save_steps=tuple(ends),
        stores="trained",
        stackable=False,
    )


def last_blocks(model: nn.Module, n_blocks: int) -> tuple[str, ...]:
    """Globs of the parameters of a model's last blocks."""
    config: Any = model.config
    n_layers: int = config.num_hidden_layers
    if not 1 <= n_blocks <= n_layers:
        raise unknown("number of last layers", n_blocks, f"1 to {n_layers}")
    name, _ = block_list(model)
    return tuple(f"{name}.{i}.*" for i in range(n_layers - n_blocks, n_layers))


def _stage(index: int, model: nn.Module, facts: FactBatch, config: FineTuning) -> Stage:
    per_epoch = -(-len(facts.tokens) // config.batch_size)
    loss: Quantity = answer_loss
    data: FactBatch | ResumedBatch = facts
    trainable: tuple[str, ...] = ("*",)
    if config.last_layers is not None:
        trainable = last_blocks(model, config.last_layers)
        n_frozen = len(block_list(model)[1]) - config.last_layers
        loss = partial(resumed_loss, n_frozen=n_frozen)
        data = run_frozen(model, facts, n_frozen)
    if config.autocast != "none":
        loss = partial(_loss_in, getattr(torch, config.autocast), loss)
    return Stage(
        name=f"phase-{index}",
        steps=config.epochs * per_epoch,
        optimiser=Optimiser("adamw", config.lr, config.weight_decay),
        loss=loss,
        data=lambda _seed, _step: data,
        batch_size=config.batch_size,
        trainable=trainable,
        clip=config.clip,
    )


def _loss_in(dtype: torch.dtype, loss: Quantity, model: Any, data: Data) -> Tensor:
    with torch.autocast(leaves(data)[0].device.type, dtype):
        return loss(model, data)


def _measure(model: Any, lists: Mapping[str, FactBatch]) -> dict[str, Tensor]:
    """The mean of every score over the facts of each list."""
    return {
        f"{name}/{score}": values.mean()
        for name, facts in lists.items()
        for score, values in answer_scores(model, facts)._asdict().items()
    }


def _joined(lists: Lists, phase: Sequence[str]) -> list[Fact]:
    return [fact for name in phase for fact in lists[name]]


def _require_lists(curriculum: Curriculum, lists: Lists) -> None:
    """Every list exists, and no held-out fact is trained on."""
    for name in sorted(curriculum.trained):
        if name not in lists:
            raise unknown("list of facts", name, sorted(lists))
    seen = {fact for name in curriculum.trained for fact in lists[name]}
    for name in lists.keys() - curriculum.trained:
        leaked = [fact for fact in lists[name] if fact in seen]
        if leaked:
            raise BadInput(f"list {name} is held out, but {leaked[0]} is trained on")

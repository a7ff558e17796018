"""A language model after fine-tuning on facts, observed like the one before."""

import math
import tempfile
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from trained.config import as_dict
from trained.errors import BadInput
from trained.finetuning import Curriculum, Lists, fine_tuning
from trained.finetuning_config import FineTuning
from trained.store import Run
from trained.trainer import Engine
from trained.training import restore, train

from .language_model import LanguageModel, behind
from .open import wrap


def fine_tuned(
    model: LanguageModel,
    curriculum: Curriculum,
    lists: Lists,
    seed: int,
    config: FineTuning,
) -> LanguageModel:
    """Train a copy of a model on lists of facts in the order of a curriculum.

    See `fine_tuned_phases`; this is the model after the last one.
    """
    # One at a time in memory.
    return deque(fine_tuned_phases(model, curriculum, lists, seed, config), 1).pop()


def fine_tuned_phases(
    model: LanguageModel,
    curriculum: Curriculum,
    lists: Lists,
    seed: int,
    config: FineTuning,
) -> Iterator[LanguageModel]:
    """The copy of a model at the end of every phase of a curriculum.

    The run is dropped; `trained.finetuning` with a folder of one's own keeps it.

    Args:
        model: what is copied; it stays as it is.
        curriculum: what is trained on, in which order.
        lists: the facts by the name of their list.
        seed: orders the facts.
        config: how; `trained.finetuning_config.LIGHT` is what a CPU can bear.
    """
    backend, hf = behind(model.module)
    if backend == "bridge":
        raise BadInput(
            f"{model.name} was rebuilt by its bridge and cannot be fine-tuned; open it "
            "with backend hf or nnsight"
        )
    arm = fine_tuning(hf, model.tokenizer, curriculum, lists, config)
    # Nobody reads the metrics of a dropped run, and they cost as much as training.
    arm = replace(arm, measure=None, held_out=None)
    with tempfile.TemporaryDirectory() as folder:
        run = Run.create(
            Path(folder) / "run",
            {
                "study": "fine-tuning",
                "preset": curriculum.name,
                "config": as_dict(config),
                "seeds": [seed],
                "device": model.device.type,
                "environment": {},
            },
        )
        train(run, [arm], engine=Engine(str(model.device), save_seconds=math.inf))
        for step in arm.save_steps:
            trained = restore(run, arm, seed, step=step)
            trained = trained.requires_grad_(False).to(model.device)
            name = f"{model.name} after {curriculum.name}"
            yield wrap(trained, model.tokenizer, backend=backend, name=name)

"""A language model after lessons, for as long as somebody looks at it.

The model is trained in place and put back afterwards: there is no second one.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.models.language_model import LanguageModel, behind
from trained.errors import BadInput, unknown

from .course import Course, Phase, Seen
from .facts import Curriculum, Fact, FactBatch, Lists, Scores, answer_scores, encode
from .parts import checkpointed, trainable
from .resumed import ResumedBatch, block_list, resumed_loss, run_frozen
from .settings import Tuning


@dataclass(frozen=True)
class Lesson:
    """What a model is taught.

    Attributes:
        curriculum: which lists of facts, in which order.
        lists: the facts by the name of their list.
        seed: orders the facts.
        tuning: how.
        asked: what shows that a list was learned, if not the list itself.
    """

    curriculum: Curriculum
    lists: Lists
    seed: int
    tuning: Tuning
    asked: Lists | None = None

    def __post_init__(self) -> None:
        for name in sorted(self.curriculum.trained):
            if name not in self.lists:
                raise unknown("list of facts", name, sorted(self.lists))


@dataclass(frozen=True)
class Taught:
    """A model after a lesson.

    Attributes:
        model: observed like the one before, and only in the block that gives it.
        fits: of every list, the share that is decoded as a whole when the phase that
            teaches it ends.
        seconds: of all steps.
    """

    model: LanguageModel
    fits: Mapping[str, float]
    seconds: float


@contextmanager
def taught(
    model: LanguageModel,
    lesson: Lesson | None,
    *,
    folder: Path | None = None,
) -> Iterator[Taught]:
    """The model after a lesson; after the block it is what it was before.

    Args:
        model: what is trained, in place.
        lesson: on what, and how; None: on nothing.
        folder: where the state is kept, so that it can be taken up again.
    """
    if lesson is None:
        yield Taught(model, {}, 0.0)
        return
    backend, hf = behind(model.module)
    if backend == "bridge":
        raise BadInput(
            f"{model.name} was rebuilt by its bridge and cannot be fine-tuned; open it "
            "with backend hf or nnsight"
        )
    tuning, curriculum = lesson.tuning, lesson.curriculum

    def after(index: int) -> Seen:
        names = curriculum.phases[index]
        asked = lesson.lists if lesson.asked is None else lesson.asked
        return {name: float(exact(model, asked[name]).mean()) for name in names}

    with trainable(hf, tuning, lesson.seed) as trained:
        course = Course(
            f"{curriculum.name}, seed {lesson.seed}",
            trained.parameters,
            tuning,
            lesson.seed,
            folder,
            after,
        )
        recomputed = checkpointed(hf, _frozen(hf, tuning))
        with recomputed if tuning.checkpointing else nullcontext():
            course.run(
                [_phase(model, lesson, i) for i in range(len(curriculum.phases))]
            )
        for parameter in trained.parameters.values():
            parameter.requires_grad_(False)
        if tuning.keep and folder is not None:
            trained.save(folder / "model")
            model.tokenizer.save_pretrained(folder / "model")
        name = f"{model.name} after {curriculum.name}"
        yield Taught(replace(model, name=name), course.found, course.seconds)


def _phase(model: LanguageModel, lesson: Lesson, index: int) -> Phase:
    names, tuning = lesson.curriculum.phases[index], lesson.tuning
    facts = encode(model.tokenizer, [f for name in names for f in lesson.lists[name]])
    _, hf = behind(model.module)
    n_frozen = _frozen(hf, tuning)
    data = ResumedBatch(facts, facts.tokens)
    if n_frozen:
        data = run_frozen(hf, facts, n_frozen)
    per_epoch = -(-len(facts.tokens) // tuning.batch_size)
    loss = partial(_loss, hf, data, n_frozen, model.device)
    return Phase(
        f"phase {index + 1}", len(facts.tokens), tuning.epochs * per_epoch, loss
    )


def _frozen(hf: Any, tuning: Tuning) -> int:
    """How many blocks at the beginning are not trained and need not be run again."""
    return 0 if tuning.last is None else len(block_list(hf)[1]) - tuning.last


def _loss(
    hf: Any, data: ResumedBatch, n_frozen: int, device: torch.device, rows: Tensor
) -> tuple[Float[Tensor, ""], int]:
    """-log p of the answers' tokens of some facts, their sum and number."""
    batch = _rows(data, rows, device)
    count = int(batch.facts.answers.sum())
    return resumed_loss(hf, batch, n_frozen) * count, count


def _rows(data: ResumedBatch, rows: Tensor, device: torch.device) -> ResumedBatch:
    """Some of the facts, no longer than the longest of them.

    Where their answers are is left on the host: to count them on a device, or to find
    them there, would wait for all that it has still to do.
    """
    length = int(data.facts.mask[rows].sum(1).max())
    tokens, mask, answers = (tensor[rows, :length] for tensor in data.facts)
    facts = FactBatch(tokens.to(device), mask.to(device), answers)
    return ResumedBatch(facts, data.residual[rows, :length].to(device))


def scored(model: LanguageModel, facts: Sequence[Fact]) -> Scores:
    """How well a model gives the answer to every fact, all of its tokens."""
    _, hf = behind(model.module)
    found = answer_scores(hf, encode(model.tokenizer, facts))
    return Scores(*(tensor.double() for tensor in found))


def exact(model: LanguageModel, facts: Sequence[Fact]) -> Float[Tensor, " fact"]:
    """1 where greedy decoding gives the whole answer, else 0."""
    return scored(model, facts).exact

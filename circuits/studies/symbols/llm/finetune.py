"""Does pretraining save data? A language model fine-tuned on a template task.

All parameters and a linear readout at the last token are trained by Adam on the squared
error (Figures 7 left and 23; the paper gives no rates), in place.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from circuits.models.borrowed import borrowed, draw_weights
from circuits.models.language_model import LanguageModel, behind
from circuits.tuning.course import Course, Phase, Seen
from circuits.tuning.keeper import Keeper
from circuits.tuning.settings import Tuning
from trained.errors import BadInput
from trained.seeding import generator

from .rows import SPLITS, String
from .settings import FineTune

Start = Literal["pretrained", "reinitialised", "embeddings", "frozen", "shuffled"]
"""What is trained: the pretrained model; the same architecture with random weights; the
pretrained embeddings with random blocks; the readout alone; the pretrained model on
permuted labels."""
AT_ONCE = 64
"""Strings that are scored in one pass."""
UNCLIPPED = 1e9


class Strings(NamedTuple):
    """Strings of equal length with their labels."""

    tokens: Int[Tensor, "string pos"]
    labels: Float[Tensor, " string"]


class Tuned(NamedTuple):
    """What came out: MSE before any step, and at the step that is best on validation.

    Attributes:
        before: on the test, before any step.
        test: at that step.
        train: the same.
        validation: what it is best on.
        lr: the rate.
    """

    before: float
    test: float
    train: float
    validation: float
    lr: float


def strings(
    rows: Sequence[String], tokenizer: Any, n: int, name: str = "strings"
) -> dict[str, Strings]:
    """The splits of the data, the first n strings of the training one.

    Raises:
        BadInput: A split is short, strings differ in length, or two splits share a
            token that is not in every string.
    """
    found: dict[str, list[tuple[list[int], float]]] = {split: [] for split in SPLITS}
    for row in rows:
        tokens = row.tokens or tokenizer.encode(row.text, add_special_tokens=False)
        found[row.split].append((list(tokens), row.label))
    found["train"] = found["train"][:n]
    _check(name, found, n)
    return {
        split: Strings(
            torch.tensor([t for t, _ in own]), torch.tensor([y for _, y in own])
        )
        for split, own in found.items()
    }


def _check(name: str, rows: dict[str, list[tuple[list[int], float]]], n: int) -> None:
    if len(rows["train"]) < n or not (rows["validation"] and rows["test"]):
        raise BadInput(f"{name}: {len(rows['train'])} training strings, {n} are needed")
    lengths = {len(tokens) for own in rows.values() for tokens, _ in own}
    if len(lengths) != 1:
        raise BadInput(
            f"{name}: strings of {sorted(lengths)} tokens, not of one length"
        )
    seen = {
        split: {t for tokens, _ in own for t in tokens} for split, own in rows.items()
    }
    common = set.intersection(
        *(set(tokens) for own in rows.values() for tokens, _ in own)
    )
    for first, second in ((0, 1), (0, 2), (1, 2)):
        both = seen[SPLITS[first]] & seen[SPLITS[second]] - common
        if both:
            names = f"{SPLITS[first]} and {SPLITS[second]}"
            raise BadInput(f"{name}: {names} share tokens {sorted(both)[:5]}")


class Case(NamedTuple):
    """What is fine-tuned.

    Attributes:
        start: from which weights, on which labels.
        n: training strings.
        seed: of the readout, the order of strings, random weights and labels.
    """

    start: Start
    n: int
    seed: int


def finetune(
    model: LanguageModel,
    rows: Callable[[], Sequence[String]],
    case: Case,
    settings: FineTune,
    keeper: Keeper | None = None,
) -> Tuned:
    """Fine-tune at every rate; the best on validation is reported.

    The model is trained in place, and afterwards what it was before; it and the rows
    are looked at only for what is not kept yet.
    """
    splits = cache(lambda: _splits(model, rows(), case))
    keeper = keeper or Keeper()

    def at(lr: float) -> Tuned:
        def make(folder: Path | None) -> dict[str, Tensor]:
            tuned = _at_rate(model, splits(), case, settings, (lr, folder))
            values = tuned._asdict().items()
            return {k: torch.tensor(v, dtype=torch.float64) for k, v in values}

        name = f"{case.start}, n {case.n}, seed {case.seed}, rate {lr:g}"
        return Tuned(**{k: float(t) for k, t in keeper.kept(name, make).items()})

    return min((at(lr) for lr in settings.lrs), key=lambda tuned: tuned.validation)


def _splits(
    model: LanguageModel, rows: Sequence[String], case: Case
) -> dict[str, Strings]:
    """The strings on the model's device, those to train on with a case's labels."""
    splits = strings(rows, model.tokenizer, case.n)
    if case.start == "shuffled":
        source = generator(case.seed, "symbols", "shuffled")
        train = splits["train"]
        order = torch.randperm(case.n, generator=source)
        splits["train"] = Strings(train.tokens, train.labels[order])
    return {k: Strings(*(t.to(model.device) for t in v)) for k, v in splits.items()}


class Reader(nn.Module):
    """The body of a language model with a linear readout at the last token."""

    def __init__(self, body: Any, width: int, seed: int) -> None:
        super().__init__()
        self.body = body
        device = next(body.parameters()).device
        source = generator(seed, "symbols", "readout")
        weight = torch.randn(width, generator=source) * width**-0.5
        self.readout = nn.Parameter(weight.to(device))
        self.bias = nn.Parameter(torch.zeros((), device=device))

    def forward(self, tokens: Int[Tensor, "string pos"]) -> Float[Tensor, " string"]:
        """The answer to every string."""
        states = self.body(input_ids=tokens, use_cache=False).last_hidden_state[:, -1]
        # Of unit scale, whatever the model's: one rate then serves several models.
        states = torch.nn.functional.layer_norm(states.float(), states.shape[-1:])
        return states @ self.readout + self.bias


@contextmanager
def starting(model: LanguageModel, start: Start, seed: int) -> Iterator[Reader]:
    """The model with a readout, from the weights that a start names, to be trained."""
    _, hf = behind(model.module)
    body = dict(hf.base_model.named_parameters())
    with nullcontext() if start == "frozen" else borrowed(body):
        if start in ("reinitialised", "embeddings"):
            embedding = hf.get_input_embeddings().weight
            kept = embedding.detach().clone() if start == "embeddings" else None
            draw_weights(hf.base_model, seed)
            if kept is not None:
                with torch.no_grad():
                    embedding.copy_(kept)
        for parameter in body.values():
            parameter.requires_grad_(start != "frozen")
        yield Reader(hf.base_model, model.d_model, seed)


def _at_rate(
    model: LanguageModel,
    splits: dict[str, Strings],
    case: Case,
    settings: FineTune,
    how: tuple[float, Path | None],
) -> Tuned:
    """What one rate gives, at the step with the least validation MSE."""
    (lr, folder), train = how, splits["train"]
    tuning = Tuning(
        batch_size=settings.batch_size,
        accumulate=settings.accumulate,
        lr=lr,
        clip=UNCLIPPED,
    )
    with starting(model, case.start, case.seed) as reader:

        def loss(rows: Tensor) -> tuple[Tensor, int]:
            rows = rows.to(train.labels.device)
            missed = reader(train.tokens[rows]) - train.labels[rows]
            return missed.square().sum(), len(rows)

        def watch(_step: int) -> Seen:
            return {split: _error(reader, own) for split, own in splits.items()}

        before = _error(reader, splits["test"])
        named = {k: p for k, p in reader.named_parameters() if p.requires_grad}
        name = f"{case.start}, n = {case.n}, rate {lr:g}, seed {case.seed}"
        course = Course(name, named, tuning, case.seed, folder)
        course.watch, course.watch_every = watch, settings.evaluate_every
        course.run([Phase("strings", len(train.labels), settings.steps, loss)])
    best = min(course.watched, key=lambda seen: seen["validation"])
    return Tuned(before, lr=lr, **best)


@torch.no_grad()
def _error(reader: Reader, strings: Strings) -> float:
    """Mean squared error; a constant answer to standardised labels scores 1."""
    starts = range(0, len(strings.labels), AT_ONCE)
    said = [reader(strings.tokens[start : start + AT_ONCE]) for start in starts]
    return float((torch.cat(said) - strings.labels).square().mean())

"""Does pretraining save data? A language model fine-tuned on a template task.

A data set is a JSONL file, one string a line: {"text" or "tokens", "label", "template",
"split"}; symbols are single tokens, and no two splits share one. All parameters and a
linear readout at the last token are trained by Adam on the squared error (Figures 7
left and 23; the paper gives no rates).
"""

import copy
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from circuits.models.language_model import LanguageModel
from circuits.models.open import behind, random_twin
from trained.errors import BadInput, unknown
from trained.seeding import generator
from trained.symbols.tasks import task

from .settings import FineTune

Start = Literal["pretrained", "reinitialised", "embeddings", "frozen", "shuffled"]
"""What is trained: the pretrained model; the same architecture with random weights; the
pretrained embeddings with random blocks; the readout alone; the pretrained model on
permuted labels."""
SPLITS = ("train", "validation", "test")
AT_ONCE = 64
"""Strings that are scored in one pass."""


class Strings(NamedTuple):
    """Strings of equal length with their labels."""

    tokens: Int[Tensor, "string pos"]
    labels: Float[Tensor, " string"]


class Tuned(NamedTuple):
    """What came out: test MSE before any step, and at the best step and rate."""

    before: float
    test: float
    train: float
    lr: float


def write_dataset(
    path: Path,
    model: LanguageModel,
    words: Sequence[str],
    settings: FineTune,
    n: int,
    seed: int,
) -> None:
    """Draw strings of the settings' task from words, a third of them for each split.

    Strings are written as tokens: as text a word would be another token at the start.
    """
    source, chosen = random.Random(seed), task(settings.task, seed)
    vocabulary: dict[str, int] = model.tokenizer.get_vocab()
    regular = {
        symbol: model.tokenizer.encode(symbol, add_special_tokens=False)
        for symbol in chosen.regular
    }
    shuffled = source.sample(list(words), len(words))
    third = len(shuffled) // 3
    if third < chosen.n_wildcards:
        raise BadInput(f"{len(words)} words: too few for task {chosen.name}")
    lines = []
    for index, split in enumerate(SPLITS):
        own = shuffled[index * third : (index + 1) * third]
        for _ in range(n if split == "train" else settings.n_held_out):
            place = source.randrange(len(chosen.templates))
            template = chosen.templates[place]
            drawn = source.sample(own, len(template.wildcards))
            pairs = zip(template.wildcards, drawn, strict=True)
            named = regular | {name: [vocabulary[word]] for name, word in pairs}
            tokens = [token for symbol in template.symbols for token in named[symbol]]
            row = {"tokens": tokens, "label": chosen.values[place]}
            lines.append(row | {"template": str(template), "split": split})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")


def read_dataset(path: Path, tokenizer: Any, n: int) -> dict[str, Strings]:
    """The splits of a data set, the first n strings of the training one.

    Raises:
        BadInput: A line is not as it should be, a split is short, strings differ in
            length, or two splits share a token that is not in every string.
    """
    rows: dict[str, list[tuple[list[int], float]]] = {split: [] for split in SPLITS}
    for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
        try:
            entry = json.loads(line)
            split, label = entry["split"], float(entry["label"])
            tokens = entry.get("tokens")
            if tokens is None:
                tokens = tokenizer.encode(entry["text"], add_special_tokens=False)
        except (ValueError, KeyError, TypeError) as error:
            raise BadInput(f"{path}, line {number}: {error!r}") from error
        if split not in rows:
            raise unknown(f"split in {path}, line {number}", split, SPLITS)
        rows[split].append(([int(t) for t in tokens], label))
    rows["train"] = rows["train"][:n]
    _check(path, rows, n)
    return {
        split: Strings(
            torch.tensor([t for t, _ in own]), torch.tensor([y for _, y in own])
        )
        for split, own in rows.items()
    }


def _check(path: Path, rows: dict[str, list[tuple[list[int], float]]], n: int) -> None:
    if len(rows["train"]) < n or not (rows["validation"] and rows["test"]):
        raise BadInput(f"{path}: {len(rows['train'])} training strings, {n} are needed")
    lengths = {len(tokens) for own in rows.values() for tokens, _ in own}
    if len(lengths) != 1:
        raise BadInput(
            f"{path}: strings of {sorted(lengths)} tokens, not of one length"
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
            raise BadInput(f"{path}: {names} share tokens {sorted(both)[:5]}")


def finetune(
    model: LanguageModel,
    dataset: Path,
    n: int,
    start: Start,
    settings: FineTune,
    *,
    seed: int = 0,
) -> Tuned:
    """Fine-tune a copy at every rate; the best on validation is reported."""
    splits = read_dataset(dataset, model.tokenizer, n)
    if start == "shuffled":
        order = torch.randperm(n, generator=generator(seed, "symbols", "shuffled"))
        train = splits["train"]
        splits["train"] = Strings(train.tokens, train.labels[order])
    found = [_at_rate(model, splits, start, lr, settings, seed) for lr in settings.lrs]
    return min(found, key=lambda pair: pair[0])[1]


class Reader(nn.Module):
    """The body of a language model with a linear readout at the last token."""

    def __init__(self, model: LanguageModel, start: Start, seed: int) -> None:
        super().__init__()
        _, hf = behind(model.module)
        body: Any = copy.deepcopy(hf.base_model)
        if start in ("reinitialised", "embeddings"):
            _, twin = behind(random_twin(model, seed).module)
            kept = hf.get_input_embeddings().weight.detach().clone()
            body = copy.deepcopy(twin.base_model)
            if start == "embeddings":
                with torch.no_grad():
                    body.get_input_embeddings().weight.copy_(kept)
        self.body = body.float().train(False).requires_grad_(start != "frozen")
        source = generator(seed, "symbols", "readout")
        weight = torch.randn(model.d_model, generator=source) * model.d_model**-0.5
        self.readout = nn.Parameter(weight.to(model.device))
        self.bias = nn.Parameter(torch.zeros((), device=model.device))

    def forward(self, tokens: Int[Tensor, "string pos"]) -> Float[Tensor, " string"]:
        """The answer to every string."""
        states = self.body(input_ids=tokens).last_hidden_state[:, -1]
        # Of unit scale, whatever the model's: one rate then serves several models.
        states = torch.nn.functional.layer_norm(states, states.shape[-1:])
        return states @ self.readout + self.bias


def _at_rate(
    model: LanguageModel,
    splits: dict[str, Strings],
    start: Start,
    lr: float,
    settings: FineTune,
    seed: int,
) -> tuple[float, Tuned]:
    """The least validation MSE over training, and what it gives on the test."""
    splits = {k: Strings(*(t.to(model.device) for t in v)) for k, v in splits.items()}
    reader = Reader(model, start, seed)
    chosen = [p for p in reader.parameters() if p.requires_grad]
    optimiser = torch.optim.Adam(chosen, lr=lr)
    source = generator(seed, "symbols", "order")
    train = splits["train"]
    before = _error(reader, splits["test"])
    best: tuple[float, Tuned] | None = None
    for step in range(1, settings.steps + 1):
        rows = torch.randperm(len(train.labels), generator=source)
        rows = rows[: settings.batch_size].to(model.device)
        loss = (reader(train.tokens[rows]) - train.labels[rows]).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if step % settings.evaluate_every == 0 or step == settings.steps:
            scores = {split: _error(reader, own) for split, own in splits.items()}
            if best is None or scores["validation"] < best[0]:
                tuned = Tuned(before, scores["test"], scores["train"], lr)
                best = scores["validation"], tuned
    assert best is not None
    return best


@torch.no_grad()
def _error(reader: Reader, strings: Strings) -> float:
    """Mean squared error; a constant answer to standardised labels scores 1."""
    starts = range(0, len(strings.labels), AT_ONCE)
    said = [reader(strings.tokens[start : start + AT_ONCE]) for start in starts]
    return float((torch.cat(said) - strings.labels).square().mean())

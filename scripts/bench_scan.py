"""Prompts per second of a scan, against a loop that only runs the model.

    python -m scripts.bench_scan [DATA] [--model smollm2] [--signals lens,attention]

The scan measures and makes its tables; the loop is transformers' own forward pass with
the logits of all positions, over the same prompts in batches as large: in the batches
of the scan, and in the order of the file, padded as they come. Both are timed in turn,
in processor time, some prompts at a time. Without a file, the facts of the study of
bridges are asked in turn.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import cycle, islice
from pathlib import Path

import torch

from circuits.datasets.dataset import Dataset, dataset_of, read_dataset
from circuits.inspection.encoding import Item, encode
from circuits.inspection.packing import pack, packed
from circuits.models.language_model import LanguageModel
from circuits.models.open import open as open_model
from circuits.scan.request import Settings
from circuits.scan.shard import measured_shard
from circuits.scan.tables import Labels
from circuits.studies.bridge.llm.rows import SCHEMA

from .bench_timing import Line, interleaved, ratio

SCAN, BUCKETS, IN_ORDER = "scan", "forward, same batches", "forward, as they come"


def plain(model: LanguageModel, batches: Sequence[Sequence[Item]]) -> None:
    """Run the model, and look at nothing."""
    for items in batches:
        own = pack(model, [item.tokens for item in items]).batch
        model.module(input_ids=own.tokens, attention_mask=own.mask, use_cache=False)


def variants(
    model: LanguageModel, data: Dataset, items: list[Item], settings: Settings
) -> dict[str, Callable[[], object]]:
    """What is timed in turn."""
    room = settings.batch_tokens
    like = list(packed(items, lambda item: len(item.tokens), room))
    mean = sum(len(item.tokens) for item in items) / len(items)
    size = max(1, round(room / mean))
    as_they_come = [items[n : n + size] for n in range(0, len(items), size)]
    labels = Labels(data.groups, data.roles)
    return {
        SCAN: partial(measured_shard, model, items, settings, labels),
        BUCKETS: partial(plain, model, like),
        IN_ORDER: partial(plain, model, as_they_come),
    }


@torch.no_grad()
def lines(
    model: LanguageModel, data: Dataset, settings: Settings, prompts: int, rounds: int
) -> Iterator[Line]:
    """Every line of the table, each over some prompts of the data."""
    torch.set_num_threads(settings.threads)
    chosen = tuple(islice(cycle(data.rows), prompts))
    items = encode(model, chosen, 0, settings.signals)
    # Rows that come twice are prompts of their own.
    items = [replace(item, index=number) for number, item in enumerate(items)]
    timed = interleaved(variants(model, data, items, settings), rounds)
    for name, seconds in timed.items():
        yield Line(f"{name}: prompts per second", prompts / min(seconds))
    for base in (BUCKETS, IN_ORDER):
        aim = ("scan.prompts_over_forward", ">= 0.7") if base == BUCKETS else ("", "")
        yield Line(f"scan / {base}", ratio(timed, base, SCAN), *aim)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and print."""
    parser = argparse.ArgumentParser("python -m scripts.bench_scan")
    parser.add_argument("data", nargs="?", type=Path)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--signals", default="lens,attention,alignment")
    parser.add_argument("--batch-tokens", type=int, default=1024)
    parser.add_argument("--prompts", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args(arguments)
    data = (
        read_dataset(given.data)
        if given.data
        else dataset_of(SCHEMA.prompts(SCHEMA.read(SCHEMA.shipped).rows))
    )
    signals = tuple(given.signals.split(","))
    settings = Settings(signals, batch_tokens=given.batch_tokens)
    model = open_model(given.model)
    for line in lines(model, data, settings, given.prompts, given.rounds):
        print(f"{line.name}: {line.value:.3g} {line.aim}".rstrip(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

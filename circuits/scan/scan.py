"""The signals over a dataset: shard by shard, in workers, and on after a kill.

A shard is measured by one process on a fixed number of threads, so its bytes do not
depend on how many others there are. It is written table by table, each whole or not at
all; a shard that lacks a table is measured again.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from circuits.datasets.dataset import Dataset, dataset_of, read_dataset
from circuits.datasets.row import Row
from circuits.inspection.encoding import encode
from circuits.models.language_model import LanguageModel
from circuits.models.open import behind
from circuits.models.open import open as open_model
from circuits.progress import Step, step
from trained.errors import BadInput, Incomplete, in_a_line
from trained.files import sweep, write_json
from trained.lock import owned
from trained.threads import threads
from trained.workers import Executor, Processes, Result

from .folder import SUMMARY, begin, file_of, identity, is_done, shards
from .request import Settings, default_signals, require
from .shard import measured_shard, require_sites
from .summary import summarised
from .tables import Labels, folder_of, write

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

Data = Dataset | str | Path | Iterable[Mapping[str, Any]]

Progress = Callable[[int, int], None]
"""(prompts that are done, all prompts): called at the start and after every shard."""


@dataclass(frozen=True)
class Scan:
    """A finished scan.

    Attributes:
        path: its folder.
        summary: what `summary.json` holds.
    """

    path: Path
    summary: Mapping[str, Any]

    def frame(self, signal: str) -> "pd.DataFrame":
        """The rows of a signal, one per value; see docs/scan.md for the columns."""
        import pandas as pd

        return pd.read_parquet(self.path / folder_of(signal))

    def figures(self) -> "dict[str, Figure]":
        """A figure for every signal that has one."""
        from .figures import all_figures

        return dict(all_figures(self.summary))


def scan(
    model: LanguageModel | str,
    data: Data,
    out: str | Path,
    signals: Sequence[str] | None = None,
    *,
    workers: int | Executor | None = 1,
    progress: Progress | None = None,
    **options: Any,
) -> Scan:
    """Measure signals on every prompt of a dataset, and store them as Parquet.

    A scan that was ended goes on where it stopped when it is called again.

    Args:
        model: a language model, or what `open` takes.
        data: a file (see `read_dataset`), what was read, or rows as dictionaries.
        out: the folder: new, or of the same scan.
        signals: of "lens", "attention", "alignment", "patching", "attribution" and
            "resid_post:12"; None for the first three, as far as rows allow.
        workers: how many processes measure shards, each with a copy of the model that
            is given by name; 1 is this one. None for one per core as far as copies fit
            into the memory; or an executor.
        progress: is also told how many prompts are done.
        **options: further `Settings`: `batch_tokens=1024`, `threads=1`, `seed=0`; of a
            model that is given by name, `dtype`, `device` and `backend`.
    """
    dataset = data if isinstance(data, Dataset) else _read(data)
    chosen = default_signals(dataset) if signals is None else tuple(signals)
    require(chosen, dataset)
    settings, folder = Settings(chosen, **options), Path(out)
    if not isinstance(model, str) and workers != 1:
        raise BadInput("workers open the model themselves: give its name")
    opened = _opened(model, settings) if isinstance(model, str) else model
    made_of = _checked(opened, dataset, settings)
    tasks = _tasks(folder, model if isinstance(model, str) else "", settings, dataset)
    if workers is None:
        workers = min(_fitting(opened, settings.threads), len(tasks))
    executor = _executor(workers, settings.threads)
    about = {"model": Path(opened.name).name, "data": dataset.name}
    with owned(folder, work="scanning"):
        sweep(folder)
        begin(folder, made_of)
        with step("scan: prompt", len(dataset)) as done:
            left = _Left(folder, tasks, _both(done, progress))
            if executor is None:
                left.measure(opened)
            else:
                # Every worker has a copy of its own.
                del opened
                left.hand_out(executor)
        summary = {**about, **summarised(folder, settings, len(tasks))}
        write_json(folder / SUMMARY, summary)
    return Scan(folder, summary)


def _read(data: str | Path | Iterable[Mapping[str, Any]]) -> Dataset:
    return read_dataset(data) if isinstance(data, str | Path) else dataset_of(data)


def _executor(workers: int | Executor, n_threads: int) -> Executor | None:
    """What measures shards elsewhere; None if it is this process."""
    if isinstance(workers, int):
        return None if workers <= 1 else Processes(workers, n_threads)
    return workers


def _fitting(model: LanguageModel, n_threads: int) -> int:
    """One worker per core, unless copies of the model would fill half the memory."""
    if model.device.type != "cpu":
        return 1
    _, hf = behind(model.module)
    size = sum(p.numel() * p.element_size() for p in hf.parameters())
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(1, min((os.cpu_count() or 1) // n_threads, memory // 2 // size))


def _both(done: Step, progress: Progress | None) -> Progress:
    """What tells us, and whoever wants to be told."""

    def tell(n: int, total: int) -> None:
        done(n)
        if progress is not None:
            progress(n, total)

    return tell


def _opened(name: str, settings: Settings) -> LanguageModel:
    return open_model(
        name, backend=settings.backend, device=settings.device, dtype=settings.dtype
    )


def _checked(model: LanguageModel, data: Dataset, asked: Settings) -> dict[str, Any]:
    """What the scan is made of; refuses what cannot be measured on the model."""
    require_sites(model, asked)
    for shard in shards(len(data)):
        rows = data.rows[shard.start : shard.stop]
        encode(model, rows, shard.start, asked.signals)
    backend, hf = behind(model.module)
    found = replace(
        asked,
        dtype=str(next(hf.parameters()).dtype).removeprefix("torch."),
        device=model.device.type,
        backend=backend,
    )
    return identity(model, data, found)


@dataclass(frozen=True)
class Task:
    """All that a worker has to know of a shard."""

    folder: Path
    number: int
    first: int
    rows: tuple[Row, ...]
    labels: Labels
    settings: Settings
    model: str


def _tasks(folder: Path, model: str, settings: Settings, data: Dataset) -> list[Task]:
    labels = Labels(data.groups, data.roles)
    return [
        Task(folder, n, s.start, data.rows[s.start : s.stop], labels, settings, model)
        for n, s in enumerate(shards(len(data)))
    ]


class _Left:
    """The shards that are not there yet."""

    def __init__(self, folder: Path, tasks: Sequence[Task], progress: Progress) -> None:
        self._folder, self._progress = folder, progress
        self._total = sum(len(task.rows) for task in tasks)
        self._tasks = [t for t in tasks if not is_done(folder, t.settings, t.number)]
        self._done = self._total - sum(len(task.rows) for task in self._tasks)
        self._failed: dict[int, Exception] = {}
        progress(self._done, self._total)

    def measure(self, model: LanguageModel) -> None:
        """Measure them here."""
        for task in self._tasks:
            _measure(model, task)
            self._count(task)

    def hand_out(self, executor: Executor) -> None:
        """Let workers measure them; one that fails costs its own shard."""
        if self._tasks:
            executor(measure_shard, self._tasks, self._ended)
        for error in self._failed.values():
            if isinstance(error, BadInput):
                raise error
        if self._failed:
            said = [f"shard {n}: {in_a_line(e)}" for n, e in self._failed.items()]
            raise Incomplete(
                f"not measured: {'; '.join(said)} (the other shards are kept in "
                f"{self._folder}; repeat to take these up again)"
            ) from next(iter(self._failed.values()))

    def _ended(self, task: Task, result: Result) -> Iterable[Task]:
        if result.error is not None:
            self._failed[task.number] = result.error
        else:
            self._count(task)
        return ()

    def _count(self, task: Task) -> None:
        self._done += len(task.rows)
        self._progress(self._done, self._total)


def measure_shard(task: Task) -> None:
    """Measure a shard in a worker, which opens the model once."""
    _measure(_kept(task.model, task.settings), task)


@lru_cache(maxsize=1)
def _kept(name: str, settings: Settings) -> LanguageModel:
    return _opened(name, settings)


def _measure(model: LanguageModel, task: Task) -> None:
    """Measure a shard and write its tables."""
    settings = task.settings
    with threads(settings.threads):
        items = encode(model, task.rows, task.first, settings.signals)
        found = measured_shard(model, items, settings, task.labels)
    for name, stored in found.items():
        write(file_of(task.folder, name, task.number), stored)

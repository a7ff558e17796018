"""What a user asks for, from the command line of the command or of a script.

Free of torch, so that bad input is refused at once.
"""

import argparse
import errno
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from circuits.study import Request, judging_seeds
from trained.cluster import Cluster
from trained.errors import BadInput, Incomplete, in_a_line, unknown
from trained.interrupts import Holding

from .output import patient_stdout

CONFIRMED, NOT_CONFIRMED, BAD_INPUT, FAILED, INTERRUPTED = 0, 1, 2, 3, 130

MOST_SEEDS = 10_000


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Refuse the command line."""
        raise BadInput(f"{message} (see {self.prog} --help)")


def add_request_options(parser: argparse.ArgumentParser) -> None:
    """The options that `request_from` reads."""
    parser.add_argument("--preset", default="quick", help="quick (default) or paper")
    parser.add_argument("--seeds", metavar="N|A,B,..", help="how many, or which")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="assignments",
        help="change a field of the study's config; repeatable",
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda.. or mps")
    parser.add_argument(
        "--fast",
        metavar="A,B,..",
        help="of tf32, bf16, compile, graphs: faster training, fewer digits",
    )
    add_executor_options(parser)
    parser.add_argument("--out", type=Path, default=Path("runs"), metavar="DIR")


EXECUTORS = ("local", "ray")


def add_executor_options(parser: argparse.ArgumentParser) -> None:
    """The options that say where the work is done."""
    parser.add_argument(
        "--jobs", type=int, metavar="N", help="processes; default: one per core"
    )
    parser.add_argument(
        "--executor",
        default="local",
        metavar="|".join(EXECUTORS),
        help="processes here (default), or a Ray cluster",
    )
    parser.add_argument(
        "--address", metavar="HOST:PORT", help="of that cluster; none: one started here"
    )
    parser.add_argument(
        "--cpus", type=float, default=1.0, metavar="N", help="cores of a Ray task"
    )
    parser.add_argument(
        "--gpus", type=float, default=0.0, metavar="N", help="GPUs of a Ray task"
    )


def cluster_from(options: argparse.Namespace) -> Cluster | None:
    """The cluster that parsed options ask for."""
    if options.executor not in EXECUTORS:
        raise unknown("executor", options.executor, EXECUTORS)
    if options.executor == "ray":
        return Cluster(options.address, options.cpus, options.gpus)
    if (options.address, options.cpus, options.gpus) != (None, 1.0, 0.0):
        raise BadInput("--address, --cpus and --gpus go with --executor ray")
    return None


def request_from(study: str, options: argparse.Namespace) -> Request:
    """The request that parsed options make for a study."""
    return Request(
        study=study,
        preset=options.preset,
        assignments=tuple(options.assignments),
        seeds=parse_seeds(options.seeds) if options.seeds else None,
        device=options.device,
        out=options.out,
        jobs=options.jobs,
        cluster=cluster_from(options),
        fast=tuple(options.fast.split(",")) if options.fast else (),
    )


def script_request(study: str, arguments: Sequence[str] | None = None) -> Request:
    """The request on the command line of a study's script."""
    parser = Parser(f"python -m scripts.{study}")
    add_request_options(parser)
    return request_from(study, parser.parse_args(arguments))


def parse_seeds(text: str) -> tuple[int, ...]:
    """`N` means the first N that judge; `3,5` means these, and `5,` the seed 5 alone.

    >>> parse_seeds("3"), parse_seeds("3,5"), parse_seeds("5,")
    ((301, 302, 303), (3, 5), (5,))
    """
    parts = text.removesuffix(",").split(",")
    if not all(part.strip().isdecimal() for part in parts):
        raise BadInput(f"--seeds {text}: give a number, or numbers like 3,5,8")
    numbers = [int(part) for part in parts]
    if "," not in text and numbers[0] > MOST_SEEDS:
        raise BadInput(f"--seeds {text}: at most {MOST_SEEDS}")
    seeds = tuple(numbers) if "," in text else judging_seeds(numbers[0])
    if not seeds or len(set(seeds)) != len(seeds):
        raise BadInput(f"--seeds {text}: give at least one seed, and none twice")
    return seeds


def guarded(work: Callable[[], int], *, debug: bool = False) -> int:
    """The exit code of some work; whatever goes wrong is one line."""
    try:
        with _ended_as_interrupted(), patient_stdout():
            return work()
    except KeyboardInterrupt:
        # One that came inside a library's `exec` lets `python -m` end by SIGINT,
        # whatever is returned here; running a text takes that back.
        exec("")
        print("reasonscope: interrupted; repeat the command to go on", file=sys.stderr)
        return INTERRUPTED
    except Exception as error:
        if debug:
            traceback.print_exc()
        print(f"reasonscope: {_said(error)}", file=sys.stderr)
        return BAD_INPUT if _is_mendable(error) else FAILED


@contextmanager
def _ended_as_interrupted() -> Iterator[None]:
    """Let SIGTERM do what Ctrl-C does, at a moment that can be interrupted."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with Holding():
            yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _is_mendable(error: Exception) -> bool:
    """Whether the user gave something wrong: a value, or a path that cannot be used."""
    if isinstance(error, OSError):
        return error.errno not in (errno.ENOSPC, errno.EIO, errno.EDQUOT)
    return isinstance(error, BadInput)


def _said(error: Exception) -> str:
    """An error on one line; what was stored is still there."""
    text = in_a_line(error)
    if isinstance(error, BadInput | Incomplete | OSError):
        return text
    return (
        f"failed: {text} (what was finished is kept; repeat the command to go on, or "
        "add --debug)"
    )

"""Where results go: a JSON file or standard output, and pipes that close early."""

import argparse
import io
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from circuits.progress import say
from trained.errors import BadInput

STDOUT = (Path("-"), Path("/dev/stdout"))
"""`--json -`: the JSON on standard output, all words on standard error."""


def add_json_option(parser: argparse.ArgumentParser, what: str) -> None:
    """The option that means the same for every verb."""
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help=f"write {what} there; - prints it"
    )


class JsonOutput:
    """Where `--json` asked for the results; refuses a bad place at once.

    Regular files are replaced as a whole, also behind a link, so that no reader sees a
    half. What is no regular file (a pipe, `/dev/stdout`) is written to, never replaced,
    and only once.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._streams = path in STDOUT or (path is not None and _is_special(path))
        if path not in STDOUT:
            check_output("--json", path)

    @property
    def takes_stdout(self) -> bool:
        """Whether words have to go to standard error."""
        return self._path in STDOUT

    def say(self, words: str) -> None:
        """Print words where they leave standard output to the JSON alone."""
        say(words, out=not self.takes_stdout)

    def keep(self, value: Any) -> None:
        """Write what there is so far, where that can be replaced later."""
        if self._path is not None and not self._streams:
            from trained.store import write_json

            write_json(self._path.resolve(), value)

    def finish(self, value: Any) -> None:
        """Write the whole."""
        if self._path in STDOUT:
            print(json.dumps(value, indent=1))
        elif self._path is not None and self._streams:
            with self._path.open("w") as file:
                file.write(json.dumps(value, indent=1) + "\n")
        else:
            self.keep(value)


def check_output(option: str, path: Path | None) -> None:
    """Refuse a file that cannot be written before the work is done, not after.

    A file is tried beside the place where it will be, since rights alone do not say
    whether a disk is writable; a pipe or device has to be there and to be writable.
    """
    if path is None:
        return
    target = path.resolve()
    folder = next((f for f in target.parents if f.exists()), target)
    try:
        if target.is_dir() or not folder.is_dir():
            raise OSError("a file cannot be written there")
        if _is_special(target):
            if not os.access(target, os.W_OK):
                raise OSError("not writable")
        else:
            with tempfile.NamedTemporaryFile(dir=folder, prefix=".reasonscope-"):
                pass
    except OSError as error:
        raise BadInput(f"{option} {path}: {error.strerror or error}") from error


def _is_special(path: Path) -> bool:
    return path.exists() and not path.is_file()


class PatientStdout(io.TextIOBase):
    """Standard output that goes on when its reader has left, as `| head` does.

    The rest is thrown away, so that neither the exit code nor a file depends on who
    reads the words.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @property
    def encoding(self) -> str:  # type: ignore[override]  # TextIOBase says Any
        """As the stream's own."""
        return str(self._stream.encoding)

    def isatty(self) -> bool:
        """As the stream's own."""
        return bool(self._stream.isatty())

    def fileno(self) -> int:
        """As the stream's own."""
        return int(self._stream.fileno())

    def write(self, text: str) -> int:
        """Write, or drop what nobody reads."""
        try:
            self._stream.write(text)
        except BrokenPipeError:
            self._leave()
        return len(text)

    def flush(self) -> None:
        """Flush, or drop what nobody reads."""
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._leave()

    def _leave(self) -> None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())


@contextmanager
def patient_stdout() -> Iterator[None]:
    """Go on when nobody reads standard output any more."""
    before = sys.stdout
    patient = PatientStdout(before)
    sys.stdout = patient
    try:
        yield
    finally:
        patient.flush()
        sys.stdout = before

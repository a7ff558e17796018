"""What the faults did: a table fault | tries | lost | tracebacks."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from trained.store import Run


@dataclass
class Row:
    """One kind of fault."""

    fault: str
    tries: int = 0
    lost: int = 0
    tracebacks: int = 0
    notes: list[str] = field(default_factory=list)

    def add(self, said: str, complaints: Iterable[str]) -> None:
        """One more try: what the command said, and what is wrong afterwards."""
        found = list(complaints)
        self.tries += 1
        self.lost += bool(found)
        self.tracebacks += "Traceback" in said
        self.notes += found
        if "Traceback" in said:
            self.notes.append(said)

    @property
    def clean(self) -> bool:
        """Whether nothing was lost, and said in a line what had to be said."""
        return self.tries > 0 and self.lost == self.tracebacks == 0


def table(rows: Iterable[Row]) -> str:
    """The rows, and below them what was wrong."""
    rows = list(rows)
    width = max(len(row.fault) for row in rows)
    lines = [f"{'fault':{width}} | tries | lost | tracebacks"]
    lines += [
        f"{row.fault:{width}} | {row.tries:5} | {row.lost:4} | {row.tracebacks:10}"
        for row in rows
    ]
    lines += [f"{row.fault}: {note}" for row in rows for note in row.notes]
    return "\n".join(lines)


Hashes = dict[str, dict[str, str]]


def hashes(run: Run) -> Hashes:
    """Arm -> the hash of each of its files."""
    return {
        file.parent.name: run.record(file.parent.name)["files"] for file in _done(run)
    }


def _done(run: Run) -> list[Path]:
    return sorted(run.path.glob("*/arm.json"))


def litter(run: Run) -> list[str]:
    """What a finished run should not hold."""
    odd = [*run.path.rglob("*.partial"), *run.path.rglob(".lock")]
    odd += [*run.path.glob("*/plan.json"), *run.path.glob("*/group-*")]
    return [f"{file} was left behind" for file in odd]

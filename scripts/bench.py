"""All benchmarks as one table, and as bench.json.

    python -m scripts.bench                        # everything
    python -m scripts.bench extraction patching    # some of it
    python -m scripts.bench --out FILE

Ratios are measured within one run and in turn (`bench_timing`), so they hold on a busy
machine too. Numbers that we aim at have a key; bench.json maps the keys to the numbers
and, under "aims", to what we aim at, and keeps those of benchmarks that were not run
now. A benchmark that fails is named at the end (exit code 3); the others run.
"""

import argparse
import json
import platform
import sys
import traceback
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import transformers

from .bench_timing import Line, device

PARTS = (
    *("machine", "extraction", "lens", "patching", "generation"),
    *("seeds", "growth", "demo"),
)
FAILED = 3
COMPARISONS = {">=": float.__ge__, "<=": float.__le__}


def part(name: str, **options: Any) -> Iterator[Line]:
    """The lines of one benchmark."""
    lines: Iterator[Line] = import_module(f"scripts.bench_{name}").lines(**options)
    return lines


def row(line: Line) -> str:
    """A line of the table."""
    met = "" if not line.aim else "yes" if is_met(line) else "no"
    return f"| {line.name} | {line.value:.3g} | {line.key} | {line.aim} | {met} |"


def is_met(line: Line) -> bool:
    """Whether a number is what we aim at."""
    comparison, bound = line.aim.split()
    return bool(COMPARISONS[comparison](float(line.value), float(bound)))


def write(file: Path, lines: Sequence[Line]) -> None:
    """Numbers by key, beside those that the file has already."""
    known: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    known |= {line.key: line.value for line in lines if line.key}
    aims = {line.key: line.aim for line in lines if line.aim}
    known["aims"] = known.get("aims", {}) | aims
    known["environment"] = {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "machine": platform.machine(),
        "device": str(device()),
    }
    file.write_text(json.dumps(known, indent=1) + "\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print and write."""
    parser = argparse.ArgumentParser("python -m scripts.bench", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--out", type=Path, default=Path("bench.json"))
    options = parser.parse_args(arguments)
    unknown = sorted({*options.parts} - {*PARTS})
    if unknown:
        parser.error(f"unknown part {unknown[0]!r}; choose from: {', '.join(PARTS)}")
    transformers.logging.set_verbosity_error()
    print("| what | found | key | aim | met |\n|---|---|---|---|---|")
    failed = [name for name in options.parts or PARTS if not run(name, options.out)]
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return FAILED if failed else 0


def run(name: str, file: Path) -> bool:
    """Print and write the lines of one benchmark; whether it ran to its end."""
    lines = []
    try:
        for line in part(name):
            print(row(line), flush=True)
            lines.append(line)
    except Exception:
        # The others do not depend on it.
        traceback.print_exc()
        return False
    finally:
        # Part by part, so that nothing is lost when a later one fails.
        write(file, lines)
    return True


if __name__ == "__main__":
    sys.exit(main())

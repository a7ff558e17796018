"""Train the shipped runs anew: `python -m scripts.build_zoo [STUDY...]`.

Each study's `zoo` preset is small; its run replaces `trained/checkpoints/<study>`.
"""

import shutil
import sys
import tempfile
from pathlib import Path

from circuits.command.request import CONFIRMED, Request, guarded
from circuits.confirm import prepare, train_run
from circuits.study import STUDIES
from trained.store import SHIPPED


def main() -> int:
    """Train every study that is named, or all, and put the runs in place."""
    for slug in sys.argv[1:] or STUDIES:
        with tempfile.TemporaryDirectory() as folder:
            run = prepare(Request(slug, preset="zoo", out=Path(folder)))
            train_run(run)
            shutil.rmtree(SHIPPED / slug, ignore_errors=True)
            shutil.copytree(run.path, SHIPPED / slug)
        size = sum(file.stat().st_size for file in (SHIPPED / slug).rglob("*"))
        print(f"{SHIPPED / slug}: {size / 1e6:.2f} MB")
    return CONFIRMED


if __name__ == "__main__":
    raise SystemExit(guarded(main))

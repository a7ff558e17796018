"""Train the shipped runs anew: `python -m scripts.build_zoo [STUDY...]`.

Each study's `zoo` preset is small; its run replaces `trained/checkpoints/<study>`. Runs
are put in place when all are trained, so that each names the commit it was made from.
"""

import shutil
import sys
import tempfile
from pathlib import Path

from circuits.command.request import CONFIRMED, guarded
from circuits.study import STUDIES, Request
from circuits.training import prepare, train_run
from trained.zoo import SHIPPED


def main() -> int:
    """Train every study that is named, or all, and put the runs in place."""
    slugs = sys.argv[1:] or STUDIES
    with tempfile.TemporaryDirectory() as folder:
        # Not the seeds that judge: shipped runs calibrate, and may be looked at.
        requests = [
            Request(slug, "zoo", seeds=(0, 1, 2), out=Path(folder)) for slug in slugs
        ]
        runs = [prepare(request) for request in requests]
        for run in runs:
            train_run(run)
        for slug, run in zip(slugs, runs, strict=True):
            shutil.rmtree(SHIPPED / slug, ignore_errors=True)
            shutil.copytree(run.path, SHIPPED / slug)
            files = [f for f in (SHIPPED / slug).rglob("*") if f.is_file()]
            size = sum(file.stat().st_size for file in files)
            print(f"{SHIPPED / slug}: {size / 1e6:.2f} MB")
    return CONFIRMED


if __name__ == "__main__":
    raise SystemExit(guarded(main))

"""Judge the studies' claims on a pretrained language model.

    python -m scripts.pretrained smollm2 recall symbols --seeds 3 --json verdicts.json

MODEL is what `circuits.models.open.open` takes: smollm2, a directory, a GGUF file or a
name on the hub. A random-weight twin of it serves as the null.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from circuits.command.request import (
    CONFIRMED,
    NOT_CONFIRMED,
    Parser,
    check_json,
    guarded,
    parse_seeds,
)
from circuits.study import STUDIES, Study, find
from trained.errors import unknown

TWIN_SEED = 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Open, measure, judge; the exit code says whether all was confirmed."""
    options = _parser().parse_args(arguments)
    seeds = parse_seeds(options.seeds)
    studies = _studies(options.studies)
    check_json(options.json)

    from circuits.confirm_llm import confirm_pretrained
    from circuits.models import open as pretrained
    from circuits.tables import console, print_verdicts
    from trained.store import write_json

    model = pretrained.open(
        options.model, backend=options.backend, device=options.device
    )
    twin = pretrained.random_twin(model, TWIN_SEED)
    confirmations = []
    for study in studies:
        done = confirm_pretrained(study, model, twin, seeds)
        title = (
            f"{study.slug} on {model.name}, {len(seeds)} seeds, {done.seconds:.0f} s"
        )
        print_verdicts(console(), title, done.verdicts)
        confirmations.append(done)
        objects = [confirmation.as_dict() for confirmation in confirmations]
        if options.json:
            write_json(options.json, objects[0] if len(objects) == 1 else objects)
        write_json(options.out / f"{study.slug}-pretrained.json", objects[-1])
    return CONFIRMED if all(c.passed for c in confirmations) else NOT_CONFIRMED


def _parser() -> argparse.ArgumentParser:
    parser = Parser("python -m scripts.pretrained", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument(
        "studies", nargs="*", metavar="STUDY", help="default: all that have such a part"
    )
    parser.add_argument("--seeds", default="3", metavar="N|A,B,..")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--backend", default="hf", help="hf (default) or nnsight")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the verdicts")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("runs") / "pretrained",
        metavar="DIR",
        help="where each study's verdicts are written (default: runs/pretrained)",
    )
    return parser


def _studies(slugs: Sequence[str]) -> list[Study]:
    """The studies asked for, of those that have a part on language models."""
    able = [slug for slug in STUDIES if Study(slug).has_pretrained]
    for slug in slugs:
        find(slug)
        if slug not in able:
            raise unknown("study with a part on language models", slug, able)
    return [find(slug) for slug in slugs or able]


if __name__ == "__main__":
    raise SystemExit(guarded(main))

"""Train the symbols study's models, then probe them.

    python -m scripts.symbols --preset quick --seeds 3 --set multiplier=1

The same verdicts as `reasonscope confirm symbols`, as library calls to start from.
"""

from circuits.command.request import CONFIRMED, NOT_CONFIRMED, guarded, script_request
from circuits.confirm import confirm_run, prepare, train_run
from circuits.studies.symbols.figures import FIGURES
from circuits.tables import console, print_verdicts
from probes.figures import save


def main() -> int:
    """Train, measure, judge, draw; the exit code says whether all was confirmed."""
    request = script_request("symbols")
    run = prepare(request)
    train_run(run, jobs=request.jobs)
    confirmation = confirm_run(run)
    print_verdicts(console(), str(run.path), confirmation.verdicts)
    for kind in ("efficiency",):
        print(save(FIGURES[kind](run), run.path / "figures" / f"{kind}.png"))
    return CONFIRMED if confirmation.passed else NOT_CONFIRMED


if __name__ == "__main__":
    raise SystemExit(guarded(main))

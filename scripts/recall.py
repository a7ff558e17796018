"""Train the recall study's models, then probe them.

    python -m scripts.recall --preset quick --seeds 5 --set n_subjects=9

The same verdicts as `reasonscope confirm recall`, as library calls to start from.
"""

from circuits.command.request import CONFIRMED, NOT_CONFIRMED, guarded, script_request
from circuits.confirm import confirm_run, prepare, train_run
from circuits.studies.recall.figures import attention
from circuits.tables import console, print_verdicts
from probes.figures import save


def main() -> int:
    """Train, measure, judge, draw; the exit code says whether all was confirmed."""
    request = script_request("recall")
    run = prepare(request)
    train_run(run, jobs=request.jobs)
    confirmation = confirm_run(run)
    print_verdicts(console(), str(run.path), confirmation.verdicts)
    print(save(attention(run), run.path / "figures" / "attention.png"))
    return CONFIRMED if confirmation.passed else NOT_CONFIRMED


if __name__ == "__main__":
    raise SystemExit(guarded(main))

"""Train the recall study's models, then probe them.

    python -m scripts.recall --preset quick --seeds 5 --set n_subjects=9

The same verdicts as `reasonscope confirm recall`, as library calls to start from.
"""

from circuits.command.request import CONFIRMED, NOT_CONFIRMED, guarded, script_request
from circuits.confirm import confirm_run, open_lab
from circuits.report.terminal import console, print_confirmation
from circuits.training import executor_for, prepare, train_run
from probes.figures import save


def main() -> int:
    """Train, measure, judge, draw; the exit code says whether all was confirmed."""
    request = script_request("recall")
    run = prepare(request)
    train_run(run, executor=executor_for(request))
    confirmation = confirm_run(run)
    print_confirmation(console(), confirmation)
    lab = open_lab(run)
    figure = lab.study.figures["attention"](lab)
    print(save(figure, run.path / "figures" / "attention.png"))
    return CONFIRMED if confirmation.passed else NOT_CONFIRMED


if __name__ == "__main__":
    raise SystemExit(guarded(main))

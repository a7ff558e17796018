"""Train the analogy study's models, then probe them.

    python -m scripts.analogy --preset quick --seeds 3 --set curricula=joint,AS_T

The same verdicts as `reasonscope confirm analogy`, as library calls to start from.
"""

from circuits.command.request import CONFIRMED, NOT_CONFIRMED, guarded, script_request
from circuits.confirm import confirm_lab, open_lab
from circuits.report.terminal import console, print_confirmation
from circuits.training import executor_for, prepare, train_run
from probes.figures import save


def main() -> int:
    """Train, measure, judge, draw; the exit code says whether all was confirmed."""
    request = script_request("analogy")
    run = prepare(request)
    train_run(run, executor=executor_for(request))
    lab = open_lab(run)
    confirmation = confirm_lab(lab)
    print_confirmation(console(), confirmation)
    figure = lab.study.figures["dynamics"](lab)
    print(save(figure, run.path / "figures" / "dynamics.png"))
    return CONFIRMED if confirmation.passed else NOT_CONFIRMED


if __name__ == "__main__":
    raise SystemExit(guarded(main))

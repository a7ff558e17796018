"""Train the lego study's models, then probe them.

    python -m scripts.lego --preset quick --seeds 3 --set groups=C7,S4

The same verdicts as `reasonscope confirm lego`, as library calls to start from.
"""

from circuits.command.request import CONFIRMED, NOT_CONFIRMED, guarded, script_request
from circuits.confirm import confirm_lab, open_lab
from circuits.report.terminal import console, print_confirmation
from circuits.training import executor_for, prepare, train_run
from probes.figures import save


def main() -> int:
    """Train, measure, judge, draw; the exit code says whether all was confirmed."""
    request = script_request("lego")
    run = prepare(request)
    train_run(run, executor=executor_for(request))
    lab = open_lab(run)
    confirmation = confirm_lab(lab)
    print_confirmation(console(), confirmation)
    for kind in ("figure1", "figure2", "figure67", "scaling"):
        figure = lab.study.figures[kind](lab)
        print(save(figure, run.path / "figures" / f"{kind}.png"))
    return CONFIRMED if confirmation.passed else NOT_CONFIRMED


if __name__ == "__main__":
    raise SystemExit(guarded(main))

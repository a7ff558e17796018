"""Train the bridge study's models, then probe them.

    python -m scripts.bridge --preset quick --seeds 3 --set gpt.steps=200

The same verdicts as `reasonscope confirm bridge`, as library calls to start from.
"""

from circuits.command.request import CONFIRMED, NOT_CONFIRMED, guarded, script_request
from circuits.confirm import confirm_run, open_lab
from circuits.report.terminal import console, print_confirmation
from circuits.training import executor_for, prepare, train_run
from probes.figures import save


def main() -> int:
    """Train, measure, judge, draw; the exit code says whether all was confirmed."""
    request = script_request("bridge")
    run = prepare(request)
    train_run(run, executor=executor_for(request))
    confirmation = confirm_run(run)
    print_confirmation(console(), confirmation)
    lab = open_lab(run)
    for kind in ("accuracy", "templates", "polar", "timeline"):
        figure = lab.study.figures[kind](lab)
        print(save(figure, run.path / "figures" / f"{kind}.png"))
    return CONFIRMED if confirmation.passed else NOT_CONFIRMED


if __name__ == "__main__":
    raise SystemExit(guarded(main))

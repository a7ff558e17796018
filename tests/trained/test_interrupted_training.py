"""Training that is interrupted goes on to the same bits."""

import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.engine_runs import (
    BATCHINGS,
    Diary,
    InterruptAfter,
    Interrupted,
    NewRun,
    assert_same_run,
    trained,
)
from tests.toy import (
    long_arm,
    start_run,
    two_stage_arm,
)
from trained.store import Run
from trained.trainer import Engine
from trained.training import train

ROOT = Path(__file__).parents[2]


# Two stages of four steps: 8 steps stacked. In a loop 22, as the second seed stops
# after two steps of its first stage. Steps 4 and 5 are the two sides of the border; a
# loop's step 8 is the last of its first seed, 10 and 11 are around the second's stop.
STEPS = {"vmap": 8, "loop": 22}
PLACES = [("vmap", k) for k in (1, 2, 4, 5, 8)]
PLACES += [("loop", k) for k in (1, 4, 5, 8, 9, 10, 11, 14, 15, 22)]


@pytest.mark.parametrize(("batching", "steps"), PLACES)
def test_an_interrupted_run_goes_on_to_the_same_bits(
    new_run: NewRun, batching: str, steps: int
) -> None:
    arm = two_stage_arm(4)
    unbroken = trained(new_run("unbroken"), arm, batching)
    engine = Engine(batching=batching, save_seconds=0.0)
    broken = new_run("broken")
    with pytest.raises(Interrupted):
        train(broken, [arm], engine=engine, observer=InterruptAfter(steps))
    assert not broken.is_done("net")
    diary = Diary()
    train(broken, [arm], engine=engine, observer=diary)
    taken = [event for event in diary.events if event[0] == "step"]
    # Only the interrupted step is repeated.
    assert len(taken) == STEPS[batching] - steps + 1
    assert_same_run(unbroken, broken, "net")


@pytest.mark.parametrize("batching", BATCHINGS)
def test_a_run_interrupted_at_every_step_ends_with_the_same_bits(
    new_run: NewRun, batching: str
) -> None:
    arm = two_stage_arm(4)
    unbroken = trained(new_run("unbroken"), arm, batching)
    engine, broken = Engine(batching=batching, save_seconds=0.0), new_run("broken")
    for _ in range(STEPS[batching]):
        # The second step of each attempt ends it; the first repeats the one before.
        with suppress(Interrupted):
            train(broken, [arm], engine=engine, observer=InterruptAfter(2))
    assert_same_run(unbroken, broken, "net")


@pytest.mark.parametrize("batching", BATCHINGS)
def test_a_run_interrupted_after_its_last_step_is_only_put_together(
    new_run: NewRun, monkeypatch: pytest.MonkeyPatch, batching: str
) -> None:
    arm = two_stage_arm(4)
    unbroken = trained(new_run("unbroken"), arm, batching)
    broken = new_run("broken")

    def interrupt(*_: object) -> None:
        raise Interrupted

    with monkeypatch.context() as patch:
        patch.setattr(Run, "save_weights", interrupt)
        with pytest.raises(Interrupted):
            trained(broken, arm, batching)
    diary = Diary()
    engine = Engine(batching=batching)
    train(broken, [arm], engine=engine, observer=diary)
    assert [event[0] for event in diary.events] == ["arm", "finish"]
    assert_same_run(unbroken, broken, "net")


def test_a_run_killed_in_mid_training_ends_with_the_same_bits(tmp_path: Path) -> None:
    code = f"from tests.toy import train_slowly; train_slowly({str(tmp_path)!r})"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if int(line) == 300:
                process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    killed = Run.open(tmp_path)
    assert not killed.is_done("net")
    diary = Diary()
    arm = long_arm()
    train(killed, [arm], engine=Engine(), observer=diary)
    steps_taken = [event[2] for event in diary.events if event[0] == "step"]
    assert steps_taken[0] > 0
    unbroken = trained(start_run(tmp_path / "unbroken"), arm)
    assert_same_run(unbroken, killed, "net")

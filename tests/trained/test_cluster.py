"""Tasks on a Ray cluster of several nodes that is really started, and really hurt."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from circuits.confirm import confirm_run
from circuits.study import Request
from circuits.training import prepare, train_run
from trained.cluster import Cluster
from trained.errors import BadInput, Lost
from trained.store import Run
from trained.workers import Result

ray = pytest.importorskip("ray", reason="the extra `ray` is not installed")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    """Two nodes of one core each beside a head that does no work."""
    from ray.cluster_utils import Cluster as Nodes

    cluster = Nodes(initialize_head=True, head_node_args={"num_cpus": 0})
    cluster.add_node(num_cpus=1)
    cluster.add_node(num_cpus=1)
    yield cluster
    cluster.shutdown()


def toy(out: Path) -> Run:
    return prepare(Request("tests.toy:STUDY", seeds=(0, 4), out=out))


def same(one: Run, other: Run) -> bool:
    names = [path.parent.name for path in sorted(other.path.glob("*/arm.json"))]
    assert names
    return all(
        torch.equal(one.weights(name, step)[key], tensor)
        for name in names
        for step in other.record(name)["saved_steps"]
        for key, tensor in other.weights(name, step).items()
    )


def slow_then_write(task: tuple[Path, int]) -> int:
    """Say where it runs, wait to be killed the first time, then do the work."""
    folder, index = task
    with (folder / f"tries-{index}").open("a") as file:
        file.write(f"{os.getpid()} {ray.get_runtime_context().get_node_id()}\n")
    if len((folder / f"tries-{index}").read_text().splitlines()) == 1:
        time.sleep(20.0)
    (folder / f"done-{index}").write_text(str(index))
    return index


def give(task: int) -> int:
    return 10 // task


def none(_task: Any, _result: Result) -> tuple[()]:
    return ()


def test_values_and_errors_come_back_and_what_follows_is_done(nodes: Any) -> None:
    found: dict[int, Result] = {}

    def done(task: int, result: Result) -> list[int]:
        found[task] = result
        return [5] if task == 2 else []

    Cluster(nodes.address)(give, [0, 2], done)
    assert isinstance(found[0].error, ZeroDivisionError)
    assert (found[2].value, found[5].value) == (5, 2)


def test_a_run_on_the_cluster_has_the_bits_of_this_process(
    nodes: Any, tmp_path: Path
) -> None:
    there, here = toy(tmp_path / "there"), toy(tmp_path / "here")
    cluster = Cluster(nodes.address)
    train_run(there, executor=cluster)
    train_run(here)
    assert same(there, here)
    judged = [confirm_run(there, executor=cluster), confirm_run(here)]
    one, other = ([v.values for v in done.verdicts] for done in judged)
    assert one == other


def test_a_worker_and_a_node_that_are_killed_cost_nothing(
    nodes: Any, tmp_path: Path
) -> None:
    """Each of two tasks loses its place once: one its process, one its node."""
    nodes.add_node(num_cpus=1)
    lost = nodes.add_node(num_cpus=1)
    ended: list[Result] = []

    def done(_task: object, result: Result) -> tuple[()]:
        ended.append(result)
        return ()

    over = threading.Event()
    hurt = threading.Thread(target=_hurt, args=(nodes, lost, tmp_path, over))
    hurt.start()
    Cluster(nodes.address)(slow_then_write, [(tmp_path, i) for i in range(NODES)], done)
    over.set()
    hurt.join()
    assert [result.error for result in ended] == [None] * NODES
    assert sorted(result.value for result in ended) == list(range(NODES))
    tries = [_tries(tmp_path, i) for i in range(NODES)]
    assert sum(len(lines) >= 2 for lines in tries) == 2
    assert all((tmp_path / f"done-{i}").read_text() == str(i) for i in range(NODES))


NODES = 4
"""As many as tasks, so that each has one to lose."""


def _tries(folder: Path, index: int) -> list[str]:
    file = folder / f"tries-{index}"
    return file.read_text().splitlines() if file.exists() else []


def _hurt(nodes: Any, lost: Any, folder: Path, over: threading.Event) -> None:
    """Kill a node with its task, and the process of a task elsewhere."""
    while not all(_tries(folder, index) for index in range(NODES)):
        if over.wait(0.1):
            return
    places = [_tries(folder, index)[0].split() for index in range(NODES)]
    elsewhere = next(pid for pid, node in places if node != lost.node_id)
    os.kill(int(elsewhere), signal.SIGKILL)
    nodes.remove_node(lost, allow_graceful=False)


def test_no_cluster_at_the_address_is_one_line() -> None:
    with pytest.raises(BadInput, match=r"no Ray cluster at '127\.0\.0\.1:1'"):
        Cluster("127.0.0.1:1")(give, [1], none)


@pytest.mark.parametrize("sizes", [(0.0, 0.0), (float("nan"), 0.0), (1.0, -1.0)])
def test_a_task_without_cores_is_refused(sizes: tuple[float, float]) -> None:
    with pytest.raises(BadInput, match="a task of"):
        Cluster(None, *sizes)


def test_a_task_that_ends_its_worker_every_time_is_given_up(nodes: Any) -> None:
    ended: list[Result] = []

    def done(_task: object, result: Result) -> tuple[()]:
        ended.append(result)
        return ()

    Cluster(nodes.address)(os._exit, [1], done)
    assert isinstance(ended[0].error, Lost)

"""Judge many claims: here one after the other, or side by side, headline by headline.

The claims of a headline share what they measure, so that they go to one process; what
comes back are values, and the verdict follows from them here as anywhere.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from trained.courses import Course, Round
from trained.errors import Incomplete, in_a_line
from trained.store import Run
from trained.threads import threads
from trained.workers import Executor, Result

from . import progress
from .claims import Claim, Verdict, by_headline, judge
from .conditions import Outcome
from .lab import Lab
from .results import claim_seconds
from .study import find

OnHeadline = Callable[[Sequence[Verdict]], None]
"""Is given the verdicts of a headline as soon as all of them are known."""


def judging(
    lab: Lab, claims: Sequence[Claim], executor: Executor | None, told: OnHeadline
) -> Course[tuple[Verdict, ...]]:
    """The verdict on every claim, in their order.

    Args:
        lab: an opened run.
        claims: of its study, at its configuration.
        executor: what will do it side by side; None: one after the other, here, with no
            rounds.
        told: is told of every headline that is done.
    """
    title = f"{lab.study.slug}: judging"
    if executor is None:
        # Small matrices gain nothing from a second thread.
        with threads(1):
            return one_by_one(title, lab, claims, told)
    path, known, failed = lab.run.path.resolve(), dict[str, Verdict](), list[str]()
    by_id = {claim.id: claim for claim in claims}

    def done(task: _Task, result: Result) -> tuple[()]:
        if result.error is not None:
            failed.append(f"{', '.join(task.claims)}: {in_a_line(result.error)}")
            return ()
        new = {name: _dressed(by_id[name], bare) for name, bare in result.value.items()}
        known.update(new)
        judged(len(known))
        told(tuple(new.values()))
        return ()

    with progress.step(title, len(claims)) as judged:
        took = claim_seconds(lab.study.slug, lab.run.manifest["preset"])
        tasks = [_Task(path, ids) for ids in _in_turn(claims, took)]
        yield Round(_judge_some, tasks, done)
    if failed:
        raise Incomplete(f"not judged: {'; '.join(failed)}; repeat to try again")
    return tuple(known[claim.id] for claim in claims)


def one_by_one(
    title: str, lab: Any, claims: Sequence[Claim], told: OnHeadline
) -> tuple[Verdict, ...]:
    """The verdict on every claim, in their order, measured here."""
    known: dict[str, Verdict] = {}
    branches = by_headline(claims)
    in_turn = list(chain(*branches.values()))
    for claim in progress.each(title, in_turn, lambda one: one.id):
        known[claim.id] = judge(claim, lab)
        branch = branches[claim.headline]
        if claim is branch[-1]:
            told([known[one.id] for one in branch])
    return tuple(known[claim.id] for claim in claims)


def _in_turn(
    claims: Sequence[Claim], took: Mapping[str, float]
) -> list[tuple[str, ...]]:
    """The claims of each headline: a short one, then the others, the longest first.

    The first verdicts are then there soon, and no process is left alone with the last.
    How long they take is what they took in a stored run of the preset.
    """
    groups = [tuple(c.id for c in branch) for branch in by_headline(claims).values()]
    groups.sort(key=lambda ids: -sum(took.get(name, 0.0) for name in ids))
    return [*groups[-1:], *groups[:-1]]


@lru_cache(maxsize=1)
def kept_lab(path: Path) -> Lab:
    """The lab of a trained run, the same one until that of another run is asked for.

    What a worker has measured for one headline it then knows for the next, and for the
    figures of the page.
    """
    run = Run.open(path)
    lab: Lab = find(run.study).lab(run)
    return lab


class _Task(NamedTuple):
    path: Path
    claims: tuple[str, ...]


def _judge_some(task: _Task) -> dict[str, dict[str, Any]]:
    """Claim id -> the fields of its verdict, without the functions that measured."""
    lab = kept_lab(task.path)
    claims = (c for c in lab.study.claims_at(lab.config) if c.id in task.claims)
    with threads(1):
        return {claim.id: _bare(judge(claim, lab)) for claim in claims}


_MEASURED = ("conditions", "preconditions", "controls")


def _bare(verdict: Verdict) -> dict[str, Any]:
    values = {
        name: [outcome.raw for outcome in getattr(verdict, name)] for name in _MEASURED
    }
    rest = ("nulls", "shown", "missing", "seconds")
    return {**values, **{name: getattr(verdict, name) for name in rest}}


def _dressed(claim: Claim, bare: dict[str, Any]) -> Verdict:
    outcomes = {
        name: tuple(
            Outcome(condition, values)
            for condition, values in zip(getattr(claim, name), bare[name], strict=False)
        )
        for name in _MEASURED
    }
    return replace(Verdict(claim), **{**bare, **outcomes})

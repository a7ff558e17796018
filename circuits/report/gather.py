"""What the page is made from: runs, shipped runs and verdict files."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from circuits.claims import digest
from circuits.confirm import confirm_lab, opened
from circuits.judging import kept_lab
from circuits.lab import Lab
from circuits.language import VERDICTS, judged_in
from circuits.progress import each, step
from circuits.results import file_of
from circuits.study import STUDIES, find
from circuits.training import code_hash
from trained.courses import Course, Round
from trained.store import Run, name_of, read_json
from trained.threads import threads
from trained.workers import Result
from trained.zoo import shipped_names

from .attention import attention_views
from .figures import Drawn, draw_all, draw_kinds
from .files import read_objects
from .page import Paper
from .verdicts import Judged, Tally, judged, tally


def default_targets() -> list[str]:
    """Every shipped run, and the stored verdicts on language models."""
    language = [file_of(study, language=True) for study in STUDIES]
    shipped = [name for name in STUDIES if name in shipped_names()]
    return [*shipped, *(str(file) for file in language if file.is_file())]


def papers(targets: Sequence[str]) -> list[Paper]:
    """What the page shows of runs, zoo names and verdict files, in their order."""
    # All are opened before any is judged, so that a bad one costs no minutes.
    opened = [open_target(target) for target in targets]
    found: list[Paper] = []
    for one in each("report:", opened):
        found += one if isinstance(one, list) else [from_lab(one, name_of(one.run))]
    return found


def drawing(path: Path) -> Course[list[Paper]]:
    """The course of `papers` for a run that was judged: its figures side by side."""
    parts: dict[str, Any] = {}

    def done(task: _Task, result: Result) -> tuple[()]:
        if result.error is not None:
            raise result.error
        parts[task.kind] = result.value
        drawn(len(parts))
        return ()

    kinds = tuple(find(Run.open(path).study).figures_part)
    tasks = [_Task(path, kind) for kind in (REST, *kinds)]
    with step(f"report: {path.name}", len(tasks)) as drawn:
        yield Round(_part_of, tasks, done)
    figures = chain.from_iterable(parts[kind] for kind in kinds)
    return [replace(parts[REST], figures=tuple(figures))]


REST = ""
"""What of a paper is no kind of figure."""


class _Task(NamedTuple):
    path: Path
    kind: str


def _part_of(task: _Task) -> Paper | list[Drawn]:
    lab = kept_lab(task.path.resolve())
    with threads(1):
        if task.kind == REST:
            return _without_figures(lab, str(task.path))
        return list(draw_kinds(lab, [task.kind]))


def open_target(target: str) -> Lab | list[Paper]:
    """A run, opened but not measured yet; or what needs no measuring."""
    if Path(target).is_file():
        return list(_from_file(Path(target)))
    lab = opened(target)
    if isinstance(lab, Lab):
        return lab
    # What `confirm --model` left behind has its verdicts.
    (paper,) = _from_file(judged_in(Path(target)))
    return [replace(paper, figures=tuple(draw_all(lab)), where=target)]


def _from_file(file: Path) -> Iterator[Paper]:
    for one in read_objects(file):
        known = judged(one, str(file))
        study = find(known.study) if known.study in STUDIES else None
        yield Paper(
            known,
            title=study.title if study else known.study,
            mechanism=study.mechanism if study else "",
            where=str(file),
            stored=stored_score(known),
        )


def stored_score(found: Judged) -> Tally | None:
    """How the stored long run came out, on all of its claims; None without one.

    Its claims are not those of another preset: a claim of a size has its own id.
    """
    if found.study not in STUDIES or not any(leaf.stored for leaf in found.leaves):
        return None
    file = file_of(found.study, language=bool(found.model))
    branches = judged(read_json(file), str(file)).branches
    return tally([leaf for branch in branches for leaf in branch.leaves])


def from_lab(lab: Lab, name: str) -> Paper:
    """A trained run, by what it is called: its verdicts, figures and attention."""
    return replace(_without_figures(lab, name), figures=tuple(draw_all(lab)))


def _without_figures(lab: Lab, name: str) -> Paper:
    known = judged(verdicts_of(lab), name, target=name)
    return Paper(
        judged=known,
        title=lab.study.title,
        mechanism=lab.study.mechanism,
        attention=tuple(attention_views(lab)),
        where=name,
        stored=stored_score(known),
    )


def verdicts_of(lab: Lab) -> dict[str, Any]:
    """Those stored beside a run if claims and code are still the same, else new."""
    file = lab.run.path / VERDICTS
    if file.is_file():
        kept: dict[str, Any] = read_json(file)
        claims = digest(lab.study.claims_at(lab.config))
        made = (kept.get("claims_sha256"), kept.get("code_sha256"))
        if made == (claims, code_hash(lab.study)):
            return kept
    return confirm_lab(lab).as_dict()

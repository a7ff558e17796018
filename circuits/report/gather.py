"""What the page is made from: runs, shipped runs and verdict files."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from circuits.claims import digest
from circuits.confirm import confirm_lab, open_lab
from circuits.lab import Lab
from circuits.results import file_of
from circuits.study import STUDIES, find
from circuits.training import code_hash
from trained.store import name_of, open_run, read_json, shipped_names

from .attention import attention_views
from .figures import draw_all
from .files import read_objects
from .mechanisms import MECHANISMS
from .page import Paper
from .verdicts import judged


def default_targets() -> list[str]:
    """Every shipped run, and the stored verdicts on language models."""
    language = [file_of(study, language=True) for study in STUDIES]
    shipped = [name for name in STUDIES if name in shipped_names()]
    return [*shipped, *(str(file) for file in language if file.is_file())]


def open_target(target: str) -> Lab | list[Paper]:
    """A run or zoo name, opened but not measured yet; or what a verdict file shows."""
    if Path(target).is_file():
        return list(_from_file(Path(target)))
    return open_lab(open_run(target))


def _from_file(file: Path) -> Iterator[Paper]:
    for one in read_objects(file):
        known = judged(one, str(file))
        yield Paper(
            known,
            title_of(known.study),
            MECHANISMS.get(known.study, ""),
            where=str(file),
        )


def from_lab(lab: Lab) -> Paper:
    """A trained run: its verdicts, figures and attention."""
    run = lab.run
    name = name_of(run)
    return Paper(
        judged=judged(verdicts_of(lab), name, target=name),
        title=lab.study.title,
        mechanism=MECHANISMS.get(lab.study.slug, ""),
        figures=tuple(draw_all(lab)),
        attention=tuple(attention_views(lab)),
        where=name,
    )


def verdicts_of(lab: Lab) -> dict[str, Any]:
    """Those stored beside a run if claims and code are still the same, else new."""
    file = lab.run.path / "verdicts.json"
    if file.is_file():
        kept: dict[str, Any] = read_json(file)
        claims = digest(lab.study.claims_at(lab.config))
        made = (kept.get("claims_sha256"), kept.get("code_sha256"))
        if made == (claims, code_hash(lab.study)):
            return kept
    return confirm_lab(lab).as_dict()


def title_of(slug: str) -> str:
    """The paper's title where the study is one of ours."""
    return find(slug).title if slug in STUDIES else slug

"""A page for each study, written when the documentation is built (a hook of mkdocs).

    mkdocs build

The claims come from the code and the verdicts from `results/`, so that no page can say
something that neither says.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from circuits.report.terminal import measured
from circuits.report.verdicts import Judged, Leaf, judged
from circuits.results import RESULTS
from circuits.study import STUDIES, Study, find, first_line
from trained.config import meanings
from trained.store import read_json

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files


def on_files(files: "Files", config: "MkDocsConfig") -> "Files":
    """Add the pages of the studies to those of `docs/`."""
    from mkdocs.structure.files import File

    for slug in STUDIES:
        text = page(find(slug))
        files.append(File.generated(config, f"studies/{slug}.md", content=text))
    return files


def page(study: Study) -> str:
    """The page of a study in Markdown."""
    return "\n".join([*_head(study), *_verdicts(study), *_settings(study)])


def _head(study: Study) -> Iterator[str]:
    yield f"# {study.slug}: {study.title}\n"
    yield f"{study.mechanism}\n"
    yield "| preset | seeds | cost |\n|---|---|---|"
    for name, preset in study.presets.items():
        yield f"| `{name}` | {preset.n_seeds} | {preset.cost} |"
    yield f"\n```\nreasonscope confirm {study.slug}\n```\n"


def _verdicts(study: Study) -> Iterator[str]:
    """Every stored verdict on the paper's claims, or the claims without one."""
    known = [RESULTS / f"{study.slug}{kind}.json" for kind in ("", "-quick", "-llm")]
    stored = [file for file in known if file.is_file()]
    if not stored:
        yield "No verdicts are stored yet.\n"
    for file in stored:
        yield from _table(judged(read_json(file), file.name), file.name)


def _table(found: Judged, name: str) -> Iterator[str]:
    yield f"## Verdicts at preset {found.preset} (`results/{name}`)\n"
    yield f"Seeds {', '.join(map(str, found.seeds))}: `{found.command}`\n"
    for branch in found.branches:
        yield f"### {branch.headline}\n"
        yield "| claim | says | measured | expected | paper | verdict |"
        yield "|---|---|---|---|---|---|"
        yield from (_row(leaf) for leaf in branch.leaves)
        yield ""


def _row(leaf: Leaf) -> str:
    found = leaf.decisive
    cells = (
        f"`{leaf.id}`",
        leaf.statement,
        measured(found) if found else "",
        found.expected if found else "",
        "" if leaf.paper is None else f"{leaf.paper:g}",
        leaf.verdict
        if leaf.verdict == "confirmed"
        else f"{leaf.verdict}: {leaf.reason}",
    )
    return f"| {' | '.join(_cell(cell) for cell in cells)} |"


def _cell(text: str) -> str:
    """Text that neither ends a cell nor becomes a tag."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def _settings(study: Study) -> Iterator[str]:
    yield "## What can be set\n"
    config: Any = study.presets["paper"].config
    for key, meaning in meanings(config).items():
        yield f"- `{key}`{': ' + _cell(meaning) if meaning else ''}"
    yield "\n## Figures\n"
    for kind, part in study.figures_part.items():
        yield f"- `{kind}`: {first_line(part)}"

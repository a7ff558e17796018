"""One self-contained HTML page: no server, no network, safe to open from a file.

Everything is inlined, whatever comes from outside is escaped by the templates, and the
page's own policy lets nothing run but the scripts it was built with.
"""

import csv
import io
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from trained.errors import BadInput

from .figures import Drawn
from .inspected import Inspected
from .verdicts import WORDS, Judged, Leaf, Reading, Tally, tally
from .whisker import describe, measured, number, whisker

LARGEST = 5_000_000
"""Bytes of a page."""

FOR_FIGURES = 3_200_000
"""Bytes of a page that figures and their numbers may take."""

STYLES = ("page.css", "rows.css", "views.css")
SCRIPTS = ("theme.js", "rows.js", "files.js", "attention.js", "grid.js")

GLYPHS = dict(zip(WORDS, ("✓", "✗", "?", "–"), strict=True))


@dataclass(frozen=True)
class Paper:
    """What the page shows of one study on one run or model."""

    judged: Judged
    title: str
    mechanism: str = ""
    figures: tuple[Drawn, ...] = ()
    left_out: tuple[str, ...] = ()
    """Figures for which the page has no room."""
    attention: tuple[dict[str, Any], ...] = ()
    where: str = ""
    """The run, if it is at hand."""
    stored: Tally | None = None
    """Of the paper's claims in the stored long run, if there is one."""

    @property
    def score(self) -> Tally:
        """Of the paper's claims."""
        return tally([x for x in self.judged.leaves if x.origin == "paper"])

    @property
    def own(self) -> Tally:
        """Of the claims that are ours."""
        return tally([x for x in self.judged.leaves if x.origin != "paper"])

    @property
    def causal(self) -> list[Leaf]:
        """The claims that rest on an edit of the model."""
        return [leaf for leaf in self.judged.leaves if leaf.kind == "causal"]

    @property
    def numbers(self) -> str:
        """Every verdict as CSV."""
        return _csv(self.judged.leaves)


def write_page(
    path: Path, papers: Sequence[Paper], inspected: Sequence[Inspected] = ()
) -> Path:
    """Write the page, whole or not at all."""
    text = render(papers, inspected)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text, "utf-8")
    return partial.replace(path)


def render(papers: Sequence[Paper], inspected: Sequence[Inspected] = ()) -> str:
    """The page as text.

    Args:
        papers: in the order of the page.
        inspected: prompts of a language model.
    """
    script = "\n".join(_static(name) for name in SCRIPTS)
    digest = b64encode(sha256(script.encode()).digest()).decode()
    text = (
        _environment()
        .get_template("page.html")
        .render(
            papers=within(papers, FOR_FIGURES),
            inspected=inspected,
            style=Markup("\n".join(_static(name) for name in STYLES)),
            script=Markup(script),
            script_hash=f"sha256-{digest}",
            version=version("reasonscope"),
        )
    )
    size = len(text.encode())
    if size > LARGEST:
        raise BadInput(
            f"the page would have {size / 1e6:.1f} MB, more than {LARGEST / 1e6:.0f}; "
            "give fewer runs"
        )
    return text


def within(papers: Sequence[Paper], room: int) -> list[Paper]:
    """Papers whose figures fit; the largest are named instead of shown."""
    sizes = sorted(len(f.uri) + len(f.numbers) for p in papers for f in p.figures)
    while sizes and sum(sizes) > room:
        sizes.pop()
    largest = sizes[-1] if sizes else 0
    fitted = []
    for paper in papers:
        fits = [len(f.uri) + len(f.numbers) <= largest for f in paper.figures]
        both = list(zip(paper.figures, fits, strict=True))
        shown = tuple(figure for figure, fit in both if fit)
        left = tuple(figure.kind for figure, fit in both if not fit)
        left = (*paper.left_out, *left)
        fitted.append(replace(paper, figures=shown, left_out=left))
    return fitted


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("circuits.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(
        WORDS=WORDS, GLYPHS=GLYPHS, whisker=whisker, describe=describe, tally=tally
    )
    environment.filters.update(number=number, measured=measured)
    return environment


def _static(name: str) -> str:
    """A file of ours that is inlined; it must not end the element it stands in."""
    text = files("circuits.report").joinpath("static", name).read_text("utf-8")
    assert "</" not in text, f"{name} would end its element"
    return text


def _csv(leaves: Sequence[Leaf]) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    fixed = ("claim", "headline", "origin", "kind", "weight", "verdict")
    found = ("quantity", "expected", "mean", "low", "high", "values")
    writer.writerow((*fixed, *found, "paper", "nulls", "source"))
    for leaf in leaves:
        nulls = "; ".join(f"{n.name}: {n.mean}" for n in leaf.nulls)
        claim = (leaf.id, leaf.headline, leaf.origin, leaf.kind, leaf.weight)
        for cells in map(_numbers, leaf.conditions) if leaf.conditions else [[""] * 6]:
            row = (*claim, leaf.verdict, *cells, leaf.paper, nulls, leaf.source)
            writer.writerow(row)
    return file.getvalue()


def _numbers(reading: Reading) -> list[Any]:
    values = " ".join(map(str, reading.values))
    found = [reading.mean, reading.low, reading.high, values]
    return [reading.name, reading.expected, *found]

"""How large and how tangled the code is, beside what we aim at.

    python -m scripts.measures                       # the table
    python -m scripts.measures --run bridge --claim bridge.ood.small.k1 --files

One claim's walk is traced: the files of ours in which a function runs while
`reasonscope probe` judges it on a shipped run, imports aside.
"""

import argparse
import ast
import contextlib
import io
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import reasonscope as rs
from circuits.command.cli import main as command
from circuits.command.request import Parser, guarded
from circuits.study import STUDIES, find
from trained.store import open_run

ROOT = Path(__file__).parents[1]
PACKAGES = ("probes", "trained", "circuits")

ERRANDS = {
    "a pattern": 'rs.load("lego").models("C6").pattern()',
    "a patch sweep": 'rs.patch(model, clean, corrupt, "resid_post")',
    "an ablation": 'rs.ablate(model, clean, rs.Part("head_out", 3, head=4), "zero")',
    "a lens": "rs.lens(model, clean)",
    "judging part of a run": 'rs.load("lego").confirm("lego.length.*")',
}
"""What a notebook does with one import line, if the names are there."""


class Measure(NamedTuple):
    """One line of the table."""

    name: str
    found: str
    aim: str
    met: bool


def measures(run: str, claim: str) -> Iterator[Measure]:
    """Every line of the table."""
    loose = len(list((ROOT / "circuits").glob("[!_]*.py")))
    yield Measure("loose files in circuits/", str(loose), "<= 8", loose <= 8)
    files, lines = size(_sources(*PACKAGES))
    met = files <= 215 and lines <= 33_000
    found = f"{files} / {lines:,}"
    yield Measure("source files / lines", found, "<= 215 / <= 33,000", met)
    walked = walk(run, claim)
    found = f"{len(walked)} ({claim} on {run})"
    yield Measure("files that one claim passes", found, "<= 20", len(walked) <= 20)
    standing = [study for study in STUDIES if stands_on_the_instrument(study)]
    found = f"{len(standing)} of {len(STUDIES)}"
    yield Measure("studies on interventions/", found, "5 of 5", len(standing) == 5)
    repeated = repeated_ids()
    found = ", ".join([str(len(repeated)), *sorted(repeated)[:5]])
    yield Measure("claim ids written twice", found, "0", not repeated)
    needed = {what: import_lines(code) for what, code in ERRANDS.items()}
    found = ", ".join(map(str, needed.values()))
    met = set(needed.values()) == {1}
    yield Measure(f"import lines for {', '.join(needed)}", found, "1 each", met)
    sizes = {study: size(_study_sources(study))[0] for study in STUDIES}
    small = min(sizes, key=lambda study: sizes[study])
    met = sizes[small] <= 18
    found = f"{sizes[small]} ({small})"
    yield Measure("smallest study, source files", found, "<= 18", met)
    idle = unused_probes()
    found = ", ".join([str(len(idle)), *idle])
    yield Measure("public functions of probes unused", found, "0", not idle)


def size(files: Sequence[Path]) -> tuple[int, int]:
    """Number of files and of lines."""
    return len(files), sum(len(file.read_text().splitlines()) for file in files)


def walk(run: str, claim: str) -> set[str]:
    """The files of ours in which a function runs while a stored run is judged."""
    arguments = ["probe", run, "--only", claim]
    walked: set[str] = set()

    def note(frame: FrameType, event: str, _argument: Any) -> None:
        # The options of other verbs are declared on the way, but not passed.
        if event == "call" and not frame.f_code.co_name.endswith("_options"):
            walked.add(frame.f_code.co_filename)

    with contextlib.redirect_stdout(io.StringIO()):
        # Once before, so that what runs at import is not counted.
        command(arguments)
        sys.setprofile(note)
        try:
            command(arguments)
        finally:
            sys.setprofile(None)
    ours = {str(file): file for file in _sources(*PACKAGES)}
    return {str(ours[file].relative_to(ROOT)) for file in walked & ours.keys()}


def stands_on_the_instrument(study: str) -> bool:
    """Whether a study's evidence on small models imports the interventions."""
    files = (ROOT / "circuits" / "studies" / study).rglob("*.py")
    small = [file for file in files if "llm" not in file.parts]
    return any(
        module.startswith("circuits.interventions")
        for file in small
        for module, _ in _imported(_tree(file))
    )


def repeated_ids() -> set[str]:
    """Claim ids that are written out in two places.

    What an f-string makes cannot be told from its text; that no id is made twice is
    checked whenever claims are listed. `substitutes.py` names the claims that a planted
    mechanism must confirm: a list to be held against them, not a second writing.
    """
    shape = re.compile(rf"({'|'.join(STUDIES)})(\.[\w-]+)+")
    found = Counter(
        text
        for file in _sources("circuits/studies")
        if file.name != "substitutes.py"
        for text in _texts(_tree(file))
        if shape.fullmatch(text)
    )
    return {text for text, count in found.items() if count > 1}


def import_lines(code: str) -> int:
    """Import lines that a piece of a notebook needs: one if `rs` has its names."""
    names = {
        node.attr
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "rs"
    }
    return 1 + sum(not hasattr(rs, name) for name in names)


def unused_probes() -> list[str]:
    """Public functions of probes that nothing outside of it leads to."""
    mentions: dict[str, set[str]] = {}
    public = []
    for file in sorted((ROOT / "probes").glob("*.py")):
        for node in _tree(file).body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                mentions[node.name] = _mentioned(node)
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                public.append(node.name)
    outside = [*_sources("circuits", "trained", "scripts"), ROOT / "reasonscope.py"]
    reached: set[str] = set()
    waiting = {"Measurement"}.union(*(_probes_used(_tree(file)) for file in outside))
    while waiting:
        name = waiting.pop()
        reached.add(name)
        waiting |= mentions.get(name, set()) - reached
    return [name for name in public if name not in reached]


def _probes_used(tree: ast.Module) -> set[str]:
    """What a file takes from probes, by name or as an attribute of a module."""
    taken = list(_imported(tree))
    modules = {name for home, name in taken if home == "probes"}
    used = {name for home, name in taken if home.startswith("probes.")}
    return used | {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in modules
    }


def _mentioned(node: ast.AST) -> set[str]:
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)


def _texts(tree: ast.Module) -> Iterator[str]:
    """Every string that is written out, parts of f-strings aside."""
    formatted = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    parts = {id(part) for node in formatted for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from [] if id(node) in parts else [node.value]


def _tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


def _sources(*folders: str) -> list[Path]:
    return [file for name in folders for file in sorted((ROOT / name).rglob("*.py"))]


def _study_sources(study: str) -> list[Path]:
    return _sources(f"trained/{study}", f"circuits/studies/{study}")


def _causal_claim(run: str) -> str:
    """The first claim with causal evidence that is judged on a run."""
    stored = open_run(run)
    study = find(stored.study)
    claims = study.claims_at(study.config_of(stored.manifest["config"]))
    return next(c.id for c in claims if c.kind == "causal" and not c.not_tested)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = Parser("python -m scripts.measures")
    parser.add_argument("--run", default="recall", help="the run that is judged")
    parser.add_argument("--claim", help="whose walk is traced; default: a causal one")
    parser.add_argument(
        "--files", action="store_true", help="print the files of that walk instead"
    )

    def work() -> int:
        options: argparse.Namespace = parser.parse_args(arguments)
        claim = options.claim or _causal_claim(options.run)
        if options.files:
            print("\n".join(sorted(walk(options.run, claim))))
            return 0
        print("| measure | found | aim | met |\n|---|---|---|---|")
        for name, found, aim, met in measures(options.run, claim):
            print(f"| {name} | {found} | {aim} | {'yes' if met else 'no'} |")
        return 0

    return guarded(work)


if __name__ == "__main__":
    sys.exit(main())

"""The verb `completion`: what a shell needs to complete the command."""

import argparse
from collections.abc import Iterator

from circuits.study import STUDIES
from trained.errors import unknown

from .request import CONFIRMED

SHELLS = ("bash", "zsh", "tcsh")

_NAMES = " ".join(STUDIES)
_STUDY = {"bash": "_reasonscope_study", "zsh": f"({_NAMES})", "tcsh": _NAMES}
_RUN = {**_STUDY, "bash": "_reasonscope_run"}
_FILE = {"bash": "_shtab_compgen_files", "zsh": "_files", "tcsh": "f"}
_DIR = {"bash": "_shtab_compgen_dirs", "zsh": "_files -/", "tcsh": "d"}
WORDS = {
    "STUDY": _STUDY,
    **dict.fromkeys(("RUN", "RUN_OR_ZOO", "STUDY_OR_RUN"), _RUN),
    **dict.fromkeys(("FILE", "DATA", "A.json", "B.json", "FILE.html"), _FILE),
    "DIR": _DIR,
}
"""What an argument is called in the help -> what may stand there, by shell."""

BASH = (
    f'_reasonscope_study() {{ compgen -W "{_NAMES}" -- "$1"; }}\n'
    f'_reasonscope_run() {{ compgen -W "{_NAMES}" -- "$1"; compgen -d -- "$1"; }}\n'
)
"""A shipped run has its study's name; another run is a directory."""


def add_completion_options(parser: argparse.ArgumentParser) -> None:
    """The options of `completion`."""
    parser.add_argument("shell", metavar="|".join(SHELLS))


def print_completion(parser: argparse.ArgumentParser, shell: str) -> int:
    """Print what a shell runs to complete a parser's words."""
    import shtab

    if shell not in SHELLS:
        raise unknown("shell", shell, SHELLS)
    for action in _actions(parser):
        if action.metavar in WORDS:
            action.complete = WORDS[action.metavar]  # type: ignore[attr-defined]
    print(shtab.complete(parser, shell, preamble=BASH if shell == "bash" else ""))
    return CONFIRMED


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """All arguments of a parser and of its verbs."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for verb in action.choices.values():
                yield from _actions(verb)

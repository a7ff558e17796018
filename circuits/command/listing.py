"""The verb `list`: what there is to confirm, and to set and draw of one study."""

import argparse
import os
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from circuits.claims import Claim, by_headline
from circuits.study import STUDIES, Part, Study, find, first_line
from trained.config import Preset, keys, meanings, values

from .output import JsonOutput, add_json_option
from .request import CONFIRMED


def add_list_options(parser: argparse.ArgumentParser) -> None:
    """The options of `list`."""
    parser.add_argument("studies", nargs="*", metavar="STUDY", help="default: all")
    add_json_option(parser, "all of it")


def run_list(options: argparse.Namespace) -> int:
    """Print the studies with their trees of claims."""
    studies = [find(name) for name in options.studies or STUDIES]
    if options.json:
        output = JsonOutput(options.json)
        output.finish([entry(study) for study in studies])
        # The words would say the same once more, on standard error.
        if output.takes_stdout:
            return CONFIRMED
    for study in studies:
        _print(study, details=bool(options.studies))
    if not options.studies:
        _put(
            "reasonscope list STUDY: what each claim says, what can be set, figures", 0
        )
    return CONFIRMED


def entry(study: Study) -> dict[str, Any]:
    """All that is known of a study before anything is trained."""
    language = study.language
    return {
        "study": study.slug,
        "title": study.title,
        "presets": _presets(study.presets),
        "config": keys(largest(study.presets)),
        "claims": [claim.as_dict() for claim in _claims(study)],
        "language": language
        and {
            "presets": _presets(language.presets),
            "settings": keys(largest(language.presets)),
            "claims": [claim.as_dict() for claim in _language_claims(study)],
        },
    }


def largest(presets: Mapping[str, Preset[Any]]) -> Any:
    """The configuration that asks for most: the paper's, or the only one there is."""
    return presets.get("paper", next(iter(presets.values()))).config


def _claims(study: Study) -> tuple[Claim, ...]:
    return study.claims_at(largest(study.presets))


def _language_claims(study: Study) -> tuple[Claim, ...]:
    if study.language is None:
        return ()
    return study.language_claims(largest(study.language.presets))


def _presets(presets: Mapping[str, Preset[Any]]) -> dict[str, dict[str, Any]]:
    return {
        name: {"seeds": preset.n_seeds, "cost": preset.cost}
        for name, preset in presets.items()
    }


def _print(study: Study, *, details: bool) -> None:
    _put(f"{study.slug}: {study.title}", 0)
    _print_part(study.presets, _claims(study), details=details)
    if study.language is not None:
        _put("with --model MODEL, on a pretrained language model:", 2)
        claims = _language_claims(study)
        _print_part(study.language.presets, claims, details=details)
    if details:
        _print_figures(study)


def _put(text: str, indent: int) -> None:
    """Print a line; where a width is known, words that do not fit go below its text."""
    line = f"{' ' * indent}{text}"
    if sys.stdout.isatty() or os.environ.get("COLUMNS"):
        width, below = shutil.get_terminal_size().columns, " " * (indent + 4)
        line = textwrap.fill(
            line, width, subsequent_indent=below, break_on_hyphens=False
        )
    print(line)


def _print_part(
    presets: Mapping[str, Preset[Any]], claims: Sequence[Claim], *, details: bool
) -> None:
    """What can be asked for, what is claimed, and what can be set."""
    for name, preset in presets.items():
        seeds = f"{preset.n_seeds} seed" + "s" * (preset.n_seeds != 1)
        _put(f"--preset {name}: {seeds}, {preset.cost}", 2)
    _print_tree(claims, details=details)
    if details:
        first = next(iter(presets))
        _put(f"--set KEY=VALUE; in brackets, what --preset {first} has:", 2)
        own = values(presets[first].config)
        for key, meaning in meanings(largest(presets)).items():
            told = f"{key}: {meaning}" if meaning else key
            # A group that the first preset leaves out has no values there.
            _put(f"{told} [{_typed(own[key])}]" if key in own else told, 4)


def _typed(value: Any) -> str:
    """A value as `--set` takes it; a list may be broken between its parts."""
    if isinstance(value, (tuple, list)):
        return ", ".join(map(_typed, value))
    return "none" if value is None else str(value)


def _print_tree(claims: Sequence[Claim], *, details: bool) -> None:
    """The claims by headline: what each says if asked for, else the paper's names."""
    shown = [claim for claim in claims if details or claim.origin == "paper"]
    for headline, leaves in by_headline(shown).items():
        _put(headline or "claims", 2)
        if not details:
            _put(", ".join(claim.id for claim in leaves), 4)
        for claim in leaves if details else ():
            note = f"weight {claim.weight}" if claim.origin == "paper" else "ours"
            _put(f"{claim.id} ({claim.source}; {note}): {claim.statement}", 4)
    if len(shown) < len(claims):
        _put(f"and {len(claims) - len(shown)} of our own", 2)


def _print_figures(study: Study) -> None:
    """The kinds of `reasonscope figure` with a line each, and the shipped run."""
    from trained.zoo import shipped_names

    _put("figures (reasonscope figure KIND RUN_OR_ZOO -o FILE):", 2)
    _print_kinds(study.figures_part)
    if study.language is not None and (kinds := study.language.figures_part):
        _put("figures of what confirm --model stores (runs/STUDY-llm-...):", 2)
        _print_kinds(kinds)
    if study.slug in shipped_names():
        _put(f"a small trained run is shipped: use {study.slug} for RUN_OR_ZOO", 2)


def _print_kinds(figures: Mapping[str, Part]) -> None:
    for kind, part in figures.items():
        _put(f"{kind}: {first_line(part)}", 4)

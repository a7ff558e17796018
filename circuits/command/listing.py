"""The verb `list`: what there is to confirm, and to set and draw of one study."""

import argparse
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from circuits.claims import Claim
from circuits.study import STUDIES, Study, find
from trained.config import Preset, keys, meanings

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
        JsonOutput(options.json).finish([entry(study) for study in studies])
        return CONFIRMED
    for study in studies:
        _print(study, details=bool(options.studies))
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
    print(f"{study.slug}: {study.title}")
    _print_presets(study.presets, details=details)
    _print_tree(_claims(study), details=details)
    if study.language is not None:
        print("  with --model MODEL, on a pretrained language model:")
        _print_presets(study.language.presets, details=details)
        _print_tree(_language_claims(study), details=details)
    if details:
        _print_figures(study)


def _print_presets(presets: Mapping[str, Preset[Any]], *, details: bool) -> None:
    for name, preset in presets.items():
        print(f"  --preset {name}: {preset.n_seeds} seeds, {preset.cost}")
    if details:
        print("  --set KEY=VALUE:")
        for key, meaning in meanings(largest(presets)).items():
            print(f"    {key}: {meaning}" if meaning else f"    {key}")


def _print_tree(claims: Sequence[Claim], *, details: bool) -> None:
    """The claims by headline; of our own only the number unless asked for."""
    shown = [claim for claim in claims if details or claim.origin == "paper"]
    for headline, leaves in groupby(shown, key=lambda claim: claim.headline):
        print(f"  {headline or 'claims'}")
        for claim in leaves:
            note = f"weight {claim.weight}" if claim.origin == "paper" else "ours"
            print(f"    {claim.id} ({claim.source}; {note}): {claim.statement}")
    if len(shown) < len(claims):
        print(f"  and {len(claims) - len(shown)} of our own")


def _print_figures(study: Study) -> None:
    """The kinds of `reasonscope figure` with a line each, and the shipped run."""
    from trained.store import shipped_names

    print("  figures (reasonscope figure KIND RUN_OR_ZOO -o FILE):")
    for kind, draw in study.figures.items():
        print(f"    {kind}: {(draw.__doc__ or '').partition(chr(10))[0]}")
    if study.slug in shipped_names():
        print(f"  a small trained run is shipped: use {study.slug} for RUN_OR_ZOO")

"""The verb `list`: what there is to confirm, without a heavy library."""

import argparse
import json
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from circuits.claims import Claim
from circuits.study import STUDIES, Study, find
from trained.config import Preset, keys

from .request import CONFIRMED


def add_list_options(parser: argparse.ArgumentParser) -> None:
    """The options of `list`."""
    parser.add_argument("studies", nargs="*", metavar="STUDY", help="default: all")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run_list(options: argparse.Namespace) -> int:
    """Print the studies with their trees of claims."""
    studies = [find(name) for name in options.studies or STUDIES]
    if options.json:
        print(json.dumps([entry(study) for study in studies], indent=1))
        return CONFIRMED
    for study in studies:
        _print(study, keys_too=bool(options.studies))
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


def _print(study: Study, *, keys_too: bool) -> None:
    print(f"{study.slug}: {study.title}")
    for name, preset in study.presets.items():
        print(f"  --preset {name}: {preset.n_seeds} seeds, {preset.cost}")
    if keys_too:
        print(f"  --set: {', '.join(keys(largest(study.presets)))}")
    _print_tree(_claims(study))
    if study.language is None:
        return
    print("  with --model MODEL, on a pretrained language model:")
    for name, preset in study.language.presets.items():
        print(f"  --preset {name}: {preset.n_seeds} seeds, {preset.cost}")
    if keys_too:
        print(f"  --set: {', '.join(keys(largest(study.language.presets)))}")
    _print_tree(_language_claims(study))


def _print_tree(claims: Sequence[Claim]) -> None:
    for headline, leaves in groupby(claims, key=lambda claim: claim.headline):
        print(f"  {headline or 'claims'}")
        for claim in leaves:
            note = f"weight {claim.weight}" if claim.origin == "paper" else "ours"
            print(f"    {claim.id} ({claim.source}; {note}): {claim.statement}")

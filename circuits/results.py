"""Verdicts of long runs, stored in `results/` and shown beside those of a short one."""

from pathlib import Path
from typing import Any

from trained.store import read_json

RESULTS = Path(__file__).resolve().parent.parent / "results"
"""Where they are, in a checkout and in an installation alike."""


def file_of(study: str, *, language: bool = False, folder: Path = RESULTS) -> Path:
    """Where the verdicts of a study at the paper's size are stored, if they are."""
    return folder / f"{study}{'-llm' if language else ''}.json"


def arm_seconds(study: str, preset: str, folder: Path = RESULTS) -> dict[str, float]:
    """Arm -> what it took in the stored run of a preset; empty where there is none."""
    arms = _at_preset(study, preset, folder).get("arms", {})
    return {arm: of["seconds"] for arm, of in arms.items() if of}


def claim_seconds(study: str, preset: str, folder: Path = RESULTS) -> dict[str, float]:
    """Claim -> what judging it took there."""
    verdicts = _at_preset(study, preset, folder).get("verdicts", [])
    return {verdict["claim"]: verdict["seconds"] for verdict in verdicts}


def _at_preset(study: str, preset: str, folder: Path) -> dict[str, Any]:
    """The stored run of a preset; empty where there is none."""
    for file in (folder / f"{study}-{preset}.json", file_of(study, folder=folder)):
        if file.is_file() and (found := read_json(file))["preset"] == preset:
            return dict(found)
    return {}


def stored(
    study: str, *, language: bool = False, folder: Path = RESULTS
) -> dict[str, dict[str, Any]]:
    """Claim -> what the stored run said of it; empty where there is none."""
    file = file_of(study, language=language, folder=folder)
    if not file.is_file():
        return {}
    found = read_json(file)
    run = {name: found.get(name) for name in ("preset", "seeds", "model")}
    kept = ("verdict", "mean", "ci95", "expected", "reason")
    return {
        verdict["claim"]: {**{name: verdict[name] for name in kept}, **run}
        for verdict in found["verdicts"]
    }

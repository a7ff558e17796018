"""What `confirm STUDY --model M` leaves in a folder, and how it is opened again.

See `tuning.keeper` for what is in it.
"""

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from trained.config import as_dict, from_dict
from trained.errors import BadInput
from trained.files import write_json
from trained.fingerprint import parameter_hash
from trained.schema import check_manifest
from trained.store import Run, read_json

from .datasets.schema import Rows
from .lab import LanguageLab
from .models.language_model import LanguageModel, behind
from .study import Study, find, loaded
from .training import environment
from .tuning.keeper import LANGUAGE, Keeper

ASKED = "asked.json"
"""The preset and seeds that were last asked for."""

VERDICTS = "verdicts.json"
"""What was judged, here or on a trained run."""

SOME = "verdicts-of-some.json"
"""What was last judged by `--only`, since all was."""


def keeper_in(
    out: Path,
    name: str,
    model: LanguageModel,
    settings: Any,
    data: Rows[Any] | None = None,
) -> Keeper:
    """What stores the fine-tuning and long measurements of a study, and finds them.

    Its folder is named by all that they depend on: the model's weights, the rows, the
    settings and the code.

    Args:
        out: where runs are stored.
        name: the study's.
        model: on what.
        settings: sizes of the experiment.
        data: the rows, if they are not the study's own.
    """
    study = find(name)
    part = study.needs_language()
    rows = data or (part.schema.own() if part.data else None)
    _, hf = behind(model.module)
    parameters = dict(hf.named_parameters())
    manifest = {
        "kind": LANGUAGE,
        "study": name,
        "model": model.name,
        "weights": parameter_hash(parameters),
        "dtype": str(next(iter(parameters.values())).dtype).removeprefix("torch."),
        "device": model.device.type,
        "data": None if rows is None else {"name": rows.name, "sha256": rows.sha256},
        "config": as_dict(settings),
    }
    hashed = hashlib.blake2b(json.dumps(manifest).encode(), digest_size=4)
    for file in language_sources(study):
        hashed.update(file.read_bytes())
    path = out / f"{study.slug}-llm-{hashed.hexdigest()}"
    run = Run.create(path, {**manifest, "environment": environment()})
    return Keeper(run.path)


def language_sources(study: Study) -> list[Path]:
    """The files that what is measured on a language model depends on."""
    own = sys.modules[loaded(study.needs_language().lab).__module__].__file__ or ""
    tuning = Path(__file__).parent / "tuning"
    return [*sorted(tuning.glob("*.py")), *sorted(Path(own).parent.glob("*.py"))]


def is_language(path: Path) -> bool:
    """Whether `confirm --model` made a folder."""
    file = path / "manifest.json"
    return file.is_file() and read_json(file).get("kind") == LANGUAGE


class Unopened(LanguageModel):
    """Stands where a language model would whose numbers are stored; has its name."""

    def __init__(self, name: str) -> None:
        object.__setattr__(self, "name", name)

    def __getattr__(self, name: str) -> Any:
        raise BadInput(f"{self.name} is not opened, and its {name} is not stored")


def open_language(path: Path) -> LanguageLab:
    """What `confirm STUDY --model M` left in a folder, without the model.

    Such a lab gives what was stored for the seeds that were last asked for; the rest is
    `BadInput`.
    """
    if not (path / ASKED).is_file():
        raise BadInput(f"{path}: nothing was judged there; repeat its confirm --model")
    manifest = {**Run(path).manifest, **read_json(path / ASKED)}
    check_manifest(path / "manifest.json", manifest)
    study = find(manifest["study"])
    lab: LanguageLab = study.language_lab(
        Unopened(str(manifest.get("model"))),
        from_dict(study.needs_language().settings, manifest["config"]),
        tuple(manifest["seeds"]),
        keeper=Keeper(path, only_reads=True),
    )
    return lab.other(study=study, preset=manifest["preset"], data=None)


def judged_in(path: Path) -> Path:
    """The verdicts on a language model; `BadInput` if not all claims were judged."""
    file = path / VERDICTS
    if not file.is_file():
        raise BadInput(f"{path}: not judged as a whole; confirm it without --only")
    return file


def keep_verdicts(path: Path, found: Any, *, whole: bool) -> None:
    """Store the verdicts on a language model; those of some claims stand aside."""
    if whole:
        (path / SOME).unlink(missing_ok=True)
    write_json(path / (VERDICTS if whole else SOME), found)


def judged_claim(path: Path, claim: str) -> Path:
    """The verdicts on a language model that hold the newest one of a claim."""
    some = path / SOME
    known = read_json(some)["verdicts"] if some.is_file() else ()
    return some if claim in (one["claim"] for one in known) else judged_in(path)

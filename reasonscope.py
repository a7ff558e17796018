"""The public face: `import reasonscope as rs`.

Every function takes (model, prompts): a small model of a lab with a `Batch`, or a
language model with what its `prompts` made. Names load when they are first used, so
that importing this file costs nothing; what each does is written where it is defined.

    model = rs.open("smollm2")
    clean = model.prompts(["The capital of France is"], [" Paris"])
    rs.lens(model, clean).plot()
    lab = rs.load("lego")
    lab.confirm("lego.length.*")
"""

from collections.abc import Iterable
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from circuits.claims import Claim, Null
    from circuits.conditions import Mean
    from circuits.confirm import Confirmation
    from circuits.datasets.dataset import read_dataset
    from circuits.generation.generate import generate
    from circuits.hooks import Signal, intervene, measure, record
    from circuits.inspection.ablation import ablate, knock_out
    from circuits.inspection.alignment import alignment
    from circuits.inspection.attention import attention
    from circuits.inspection.doctor import doctor
    from circuits.inspection.inspect import inspect
    from circuits.inspection.lens import lens, log_prob
    from circuits.inspection.patching import attribute, patch, path_patch
    from circuits.interventions.part import Part
    from circuits.lab import Lab
    from circuits.models.language_model import LanguageModel
    from circuits.models.open import open
    from circuits.scan.scan import scan
    from circuits.sites import Site
    from circuits.study import Study
    from trained.arm import Arm, Optimiser, Stage
    from trained.config import Preset
    from trained.decoder import Decoder, DecoderConfig
    from trained.errors import BadInput
    from trained.fit import fit
    from trained.seeding import generator
    from trained.task import Batch

__all__ = [
    "Arm",
    "BadInput",
    "Batch",
    "Claim",
    "Decoder",
    "DecoderConfig",
    "Lab",
    "Mean",
    "Null",
    "Optimiser",
    "Part",
    "Preset",
    "Signal",
    "Site",
    "Stage",
    "Study",
    "ablate",
    "alignment",
    "attention",
    "attribute",
    "confirm",
    "doctor",
    "fit",
    "generate",
    "generator",
    "inspect",
    "intervene",
    "knock_out",
    "lens",
    "list_studies",
    "load",
    "log_prob",
    "measure",
    "open",
    "patch",
    "path_patch",
    "read_dataset",
    "record",
    "scan",
]

__version__ = version("reasonscope")

_HOMES = {
    "circuits.claims": ("Claim", "Null"),
    "circuits.conditions": ("Mean",),
    "circuits.datasets.dataset": ("read_dataset",),
    "circuits.generation.generate": ("generate",),
    "circuits.hooks": ("Signal", "intervene", "measure", "record"),
    "circuits.inspection.ablation": ("ablate", "knock_out"),
    "circuits.inspection.alignment": ("alignment",),
    "circuits.inspection.attention": ("attention",),
    "circuits.inspection.doctor": ("doctor",),
    "circuits.inspection.inspect": ("inspect",),
    "circuits.inspection.lens": ("lens", "log_prob"),
    "circuits.inspection.patching": ("attribute", "patch", "path_patch"),
    "circuits.interventions.part": ("Part",),
    "circuits.lab": ("Lab",),
    "circuits.models.open": ("open",),
    "circuits.scan.scan": ("scan",),
    "circuits.sites": ("Site",),
    "circuits.study": ("Study",),
    "trained.arm": ("Arm", "Optimiser", "Stage"),
    "trained.config": ("Preset",),
    "trained.decoder": ("Decoder", "DecoderConfig"),
    "trained.errors": ("BadInput",),
    "trained.fit": ("fit",),
    "trained.seeding": ("generator",),
    "trained.task": ("Batch",),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return globals().setdefault(name, getattr(import_module(home), name))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def list_studies() -> dict[str, str]:
    """The studies and the papers that they are about."""
    from circuits.study import STUDIES, find

    return {slug: find(slug).title for slug in STUDIES}


def load(run: str | Path) -> "Lab":
    """A trained run, opened for measuring: its folder, or the name of a shipped one."""
    from circuits.confirm import open_lab
    from trained.store import open_run

    return open_lab(open_run(str(run)))


def confirm(  # noqa: PLR0913 (one call is the whole command)
    study: str,
    model: "LanguageModel | str | None" = None,
    *,
    seeds: int | Iterable[int] | None = None,
    only: str = "*",
    preset: str = "quick",
    out: str | Path = "runs",
    data: str | Path | None = None,
    columns: Iterable[str] = (),
    **settings: Any,
) -> "Confirmation":
    """Judge a study's claims: on models that it trains, or on a language model.

    Args:
        study: its name, or `package.module:STUDY` for one of your own.
        model: a language model (or what `open` takes) to judge on; None trains the
            study's own models first, in this process, or finds them in `out`.
        seeds: how many, or which; None for the preset's own number.
        only: a pattern of claims, such as "lego.length.*".
        preset: "quick", "paper" or another of the study's.
        out: where runs are stored.
        data: a file of rows for the language model, of the study's own schema; None:
            those that come with the study.
        columns: `old=new` for columns that the file names otherwise.
        **settings: changes of the preset, such as `n_subjects=9`; a field of a group
            as `**{"gpt.steps": 200}`.
    """
    from circuits.confirm import confirm_language, confirm_run
    from circuits.language import keeper_in
    from circuits.study import Request, find, judging_seeds
    from circuits.training import prepare, train_run
    from trained.config import override

    numbers = judging_seeds(seeds) if isinstance(seeds, int) else tuple(seeds or ())
    changes = tuple(f"{key}={_text(value)}" for key, value in settings.items())
    if model is None:
        request = Request(study, preset, changes, numbers or None, out=Path(out))
        run = prepare(request)
        train_run(run)
        return confirm_run(run, only=only)
    chosen = find(study)
    plan = chosen.language_preset(preset)
    sizes = override(plan.config, changes)
    if isinstance(model, str):
        from circuits.models.open import open as open_model

        model = open_model(model)
    schema = chosen.needs_language().schema if data else None
    rows = schema.read(data, tuple(columns)) if schema and data else None
    lab = chosen.language_lab(
        model,
        sizes,
        numbers or judging_seeds(plan.n_seeds),
        data=rows,
        keeper=keeper_in(Path(out), study, model, sizes, rows),
    )
    return confirm_language(chosen, lab, preset=preset, only=only)


def _text(value: Any) -> str:
    """A value as it would be written after `--set key=`."""
    several = isinstance(value, (tuple, list))
    return ",".join(map(str, value)) if several else str(value)

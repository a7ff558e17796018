"""A study as a value: what is trained, what the paper says, how it is measured.

The five studies are `circuits/studies/<slug>` with a `STUDY` each; anybody else's is
found as `package.module:STUDY`. Free of torch, so that listing is quick: parts that
need it are given as `module:name` and imported when first asked for.
"""

import ast
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from trained.cluster import Cluster
from trained.config import Preset, from_dict, override
from trained.device import check_device
from trained.errors import BadInput, unknown

from .claims import Claim, chosen
from .datasets.schema import Schema

STUDIES = ("recall", "analogy", "bridge", "symbols", "lego")
"""The one line that a new study of ours is added to."""

FIRST_SEED = 301
"""Of those that judge; settings that a paper leaves open are chosen on 100 to 109."""

Part = Any
"""A value, or `module:name` of one that is imported when first asked for."""

Figures = Mapping[str, Callable[..., Any]]
"""Figure kind -> what draws it from a lab; its docstring is the caption."""

Claims = Callable[[Any], Iterable[Claim]]
"""Configuration or settings -> the claims, free of torch."""


@dataclass(frozen=True)
class LanguagePart:
    """A paper's experiment on a pretrained language model."""

    settings: type
    """A frozen dataclass of sizes."""
    presets: Mapping[str, Preset[Any]]
    claims: Claims
    lab: Part
    """(model, settings, seeds, data=, keeper=) -> a LanguageLab."""
    data: Part = None
    """The `Schema` of its data."""
    figures_part: Mapping[str, Part] = field(default_factory=dict)
    """Figure kind -> what draws it from a LanguageLab, of stored numbers alone."""

    @property
    def figures(self) -> Figures:
        """Figure kinds and what draws each (imports matplotlib)."""
        return {kind: loaded(part) for kind, part in self.figures_part.items()}

    @property
    def schema(self) -> Schema[Any]:
        """What the rows of its data are; `BadInput` if it takes none."""
        found: Schema[Any] | None = loaded(self.data)
        if found is None:
            raise BadInput("this study takes no data of yours")
        return found


@dataclass(frozen=True)
class Substitute:
    """A lab that takes the place of the real one, with a mechanism that is known.

    Attributes:
        name: what it is.
        role: `null` lacks the mechanism, `planted` has it by construction, `impostor`
            behaves alike by another route.
        make: the real lab -> the substitute.
        confirms: ids, as patterns, that a planted mechanism has to confirm.
    """

    name: str
    role: Literal["null", "planted", "impostor"]
    make: Callable[[Any], Any]
    confirms: tuple[str, ...] = ()


@dataclass(frozen=True)
class Study:
    """A paper: its models, its assertions, its figures."""

    slug: str
    title: str
    config: type
    """A frozen dataclass of sizes."""
    presets: Mapping[str, Preset[Any]]
    claims: Claims
    arms_part: Part
    """config -> the arms."""
    lab_part: Part
    """(study, run) -> the Lab that claims measure through."""
    figures_part: Mapping[str, Part] = field(default_factory=dict)
    """Figure kind -> what draws it from a lab."""
    mechanism: str = ""
    """What the paper says happens, in three sentences."""
    sizes: tuple[str, ...] = ()
    """Keys of the configuration that captions name; none: its first numbers."""
    figure_sizes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Figure kind -> what its caption names instead, where those are not its sizes."""
    language: LanguagePart | None = None
    substitutes_part: Part = ()
    """Labs whose mechanism is known: planted ones and impostors, for `calibrate`."""

    def preset(self, name: str) -> Preset[Any]:
        """One named configuration."""
        return _preset(self.presets, name)

    def config_of(self, mapping: Mapping[str, Any]) -> Any:
        """The configuration that a manifest holds."""
        return from_dict(self.config, mapping)

    def claims_at(self, config: Any) -> tuple[Claim, ...]:
        """The claims at a configuration; no id twice, each with the study's name."""
        return _checked(self, self.claims(config))

    def language_claims(self, settings: Any) -> tuple[Claim, ...]:
        """The claims about a pretrained language model."""
        return _checked(self, self.needs_language().claims(settings))

    def needs_language(self) -> LanguagePart:
        """The experiment on language models; `BadInput` if there is none."""
        if self.language is None:
            raise BadInput(f"study {self.slug} has no part on language models")
        return self.language

    def language_preset(self, name: str) -> Preset[Any]:
        """One named setting of the experiment on language models."""
        return _preset(self.needs_language().presets, name)

    def arms(self, config: Any) -> tuple[Any, ...]:
        """What is trained (imports torch)."""
        return tuple(loaded(self.arms_part)(config))

    def lab(self, run: Any) -> Any:
        """A run opened for measuring (imports torch)."""
        return loaded(self.lab_part)(self, run)

    def language_lab(
        self, model: Any, settings: Any, seeds: tuple[int, ...], **more: Any
    ) -> Any:
        """A language model opened for this study's measurements.

        Args:
            model: the language model.
            settings: sizes of the experiment.
            seeds: each draws of its own.
            **more: `data`, the rows that it is about, if not those that come with the
                study; `keeper`, which stores what took long.
        """
        return loaded(self.needs_language().lab)(model, settings, seeds, **more)

    @property
    def figures(self) -> Figures:
        """Figure kinds and what draws each from a lab (imports matplotlib)."""
        return {kind: loaded(part) for kind, part in self.figures_part.items()}

    @property
    def substitutes(self) -> tuple["Substitute", ...]:
        """The planted labs and the impostors (imports torch)."""
        return tuple(loaded(self.substitutes_part))

    @property
    def claim_sources(self) -> list[Path]:
        """The file that the claims of a study are written in, or begin in."""
        return [Path(sys.modules[self.claims.__module__].__file__ or "")]

    @property
    def sources(self) -> list[Path]:
        """The files that training depends on, beside the engine's."""
        module = sys.modules[loaded(self.arms_part).__module__]
        file = Path(module.__file__ or "")
        ours = module.__name__.startswith("trained.")
        return sorted(file.parent.rglob("*.py")) if ours else [file]


@dataclass(frozen=True)
class Request:
    """A study at a preset, changed here and there, and how to train it."""

    study: str
    preset: str = "quick"
    assignments: tuple[str, ...] = ()
    """`key=value` changes of the preset's configuration."""
    seeds: tuple[int, ...] | None = None
    """None for the preset's own number of seeds."""
    device: str = "auto"
    out: Path = Path("runs")
    jobs: int | None = None
    """Processes that train and judge; None for one per core on a CPU."""
    cluster: Cluster | None = None
    """What does it instead of processes."""
    fast: tuple[str, ...] = ()
    """Ways to train faster that may cost digits (see `trained.fast`)."""

    def __post_init__(self) -> None:
        self.config()
        check_device(self.device)
        if self.jobs is not None and self.jobs < 1:
            raise BadInput(f"--jobs {self.jobs}: give at least 1")

    def config(self) -> Any:
        """The preset's configuration with its changes; `BadInput` for bad ones."""
        return override(find(self.study).preset(self.preset).config, self.assignments)

    def claims(self, only: str = "*") -> list[Claim]:
        """What will be judged; `BadInput` for a pattern that no claim matches."""
        return chosen(find(self.study).claims_at(self.config()), only)


def judging_seeds(count: int) -> tuple[int, ...]:
    """The first seeds that nothing was chosen on."""
    return tuple(range(FIRST_SEED, FIRST_SEED + count))


def find(name: str) -> Study:
    """The study with this slug, or the one at `package.module:STUDY`."""
    if ":" in name:
        return _foreign(name)
    if name not in STUDIES:
        raise unknown("study", name, (*STUDIES, "package.module:STUDY"))
    study: Study = import_module(f"circuits.studies.{name}").STUDY
    return study


def loaded(part: Part) -> Any:
    """A part that may be given as `module:name`."""
    if not isinstance(part, str):
        return part
    module, _, name = part.partition(":")
    return getattr(import_module(module), name)


def first_line(part: Part) -> str:
    """What a function says of itself first; `module:name` is read, not imported."""
    if not isinstance(part, str):
        said = inspect.getdoc(part)
    else:
        module, _, name = part.partition(":")
        spec = find_spec(module)
        tree = ast.parse(Path(spec.origin).read_bytes() if spec and spec.origin else "")
        found = (node for node in tree.body if isinstance(node, ast.FunctionDef))
        said = next((ast.get_docstring(f) for f in found if f.name == name), None)
    return (said or "").partition("\n")[0]


def _foreign(reference: str) -> Study:
    # As for any tool that is given a module: those beside the caller count too.
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        study = loaded(reference)
    except (ImportError, AttributeError, ValueError) as error:
        raise BadInput(f"study '{reference}': {error}") from error
    if not isinstance(study, Study):
        raise BadInput(f"study '{reference}' is a {type(study).__name__}, not a Study")
    return study


def _preset(presets: Mapping[str, Preset[Any]], name: str) -> Preset[Any]:
    if name not in presets:
        raise unknown("preset", name, presets)
    return presets[name]


def _checked(study: Study, claims: Iterable[Claim]) -> tuple[Claim, ...]:
    found = tuple(claims)
    ids = [claim.id for claim in found]
    odd = [name for name in ids if not name.startswith(f"{study.slug}.")]
    odd += sorted({name for name in ids if ids.count(name) > 1})
    if odd:
        raise ValueError(f"{study.slug} has foreign claims, or one twice: {odd}")
    return found

"""The studies, found by slug; light enough to list without importing torch.

A study lives in the same places for every paper: `trained/<slug>/config.py` (Config,
PRESETS) and `arms.py` (arms), `circuits/<slug>/claims.py` (TITLE, claims),
`evidence.py` (observe) and `figures.py` (FIGURES). Its part on a pretrained language
model, where it has one, is `circuits/<slug>/claims_pretrained.py` (CLAIMS) and
`pretrained.py` (observe).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from trained.config import Preset, from_dict
from trained.errors import unknown

from .claims import Claim

STUDIES = ("recall", "analogy", "bridge", "symbols", "lego")
"""The one line that a new study is added to."""


@dataclass(frozen=True)
class Study:
    """The parts of one study, each imported when it is first asked for."""

    slug: str

    @property
    def title(self) -> str:
        """The paper's title."""
        return str(self._part("circuits.studies", "claims").TITLE)

    @property
    def presets(self) -> Mapping[str, Preset[Any]]:
        """The named configurations."""
        return dict(self._part("trained", "config").PRESETS)

    def preset(self, name: str) -> Preset[Any]:
        """One named configuration."""
        if name not in self.presets:
            raise unknown("preset", name, self.presets)
        return self.presets[name]

    def config(self, mapping: Mapping[str, Any]) -> Any:
        """The configuration that a manifest holds."""
        return from_dict(self._part("trained", "config").Config, mapping)

    def claims(self, config: Any) -> tuple[Claim, ...]:
        """The claims that can be judged at a configuration."""
        return tuple(self._part("circuits.studies", "claims").claims(config))

    def arms(self, config: Any) -> tuple[Any, ...]:
        """What is trained (imports torch)."""
        return tuple(self._part("trained", "arms").arms(config))

    @property
    def observe(self) -> Callable[..., Any]:
        """(run, report) -> claim id -> Observed (imports torch)."""
        return self._part("circuits.studies", "evidence").observe

    @property
    def figures(self) -> Mapping[str, Callable[..., Any]]:
        """Figure kinds and what draws each from a run (imports matplotlib)."""
        return dict(self._part("circuits.studies", "figures").FIGURES)

    @property
    def has_pretrained(self) -> bool:
        """Whether the study has a part on pretrained language models."""
        return find_spec(f"circuits.studies.{self.slug}.llm.claims") is not None

    @property
    def claims_pretrained(self) -> tuple[Claim, ...]:
        """The claims about a pretrained language model."""
        return tuple(self._part("circuits.studies", "llm.claims").CLAIMS)

    @property
    def observe_pretrained(self) -> Callable[..., Any]:
        """(model, random twin, seeds) -> claim id -> Observed (imports torch)."""
        return self._part("circuits.studies", "llm.lab").observe

    def _part(self, package: str, module: str) -> Any:
        return import_module(f"{package}.{self.slug}.{module}")


def find(slug: str) -> Study:
    """The study with this slug."""
    if slug not in STUDIES:
        raise unknown("study", slug, STUDIES)
    return Study(slug)

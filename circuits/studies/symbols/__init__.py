"""When can transformers reason with abstract symbols?"""

from circuits.study import LanguagePart, Study
from trained.symbols.config import Config
from trained.symbols.presets import PRESETS

from .claims import claims
from .llm.claims import claims as language_claims
from .llm.settings import PRESETS as LANGUAGE_PRESETS
from .llm.settings import Settings

STUDY = Study(
    slug="symbols",
    title="When can transformers reason with abstract symbols?",
    config=Config,
    presets=PRESETS,
    claims=claims,
    arms_part="trained.symbols.arms:arms",
    lab_part="circuits.studies.symbols.lab:SymbolsLab",
    figures_part="circuits.studies.symbols.figures:FIGURES",
    substitutes_part="circuits.studies.symbols.substitutes:SUBSTITUTES",
    language=LanguagePart(
        settings=Settings,
        presets=LANGUAGE_PRESETS,
        claims=language_claims,
        lab="circuits.studies.symbols.llm.lab:SymbolsLanguageLab",
        data="circuits.studies.symbols.llm.rows:SCHEMA",
    ),
)

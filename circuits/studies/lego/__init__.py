"""Chain-of-thought length generalisation on LEGO state tracking."""

from circuits.study import LanguagePart, Study
from trained.lego.config import Config
from trained.lego.presets import PRESETS

from .claims import claims
from .llm.claims import claims as language_claims
from .llm.settings import PRESETS as LANGUAGE_PRESETS
from .llm.settings import Settings

STUDY = Study(
    slug="lego",
    title=(
        "Transformers Provably Learn Chain-of-Thought Reasoning with Length"
        " Generalization"
    ),
    config=Config,
    presets=PRESETS,
    claims=claims,
    arms_part="trained.lego.arms:arms",
    lab_part="circuits.studies.lego.lab:LegoLab",
    figures_part="circuits.studies.lego.figures:FIGURES",
    substitutes_part="circuits.studies.lego.substitutes:SUBSTITUTES",
    language=LanguagePart(
        settings=Settings,
        presets=LANGUAGE_PRESETS,
        claims=language_claims,
        lab="circuits.studies.lego.llm.lab:LegoLanguageLab",
        data="circuits.studies.lego.llm.rows:SCHEMA",
    ),
)

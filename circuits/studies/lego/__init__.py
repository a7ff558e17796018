"""Chain-of-thought length generalisation on LEGO state tracking."""

from circuits.study import LanguagePart, Study
from trained.lego.config import Config
from trained.lego.presets import PRESETS

from .claims import claims
from .llm.claims import SETTINGS, Settings
from .llm.claims import claims as language_claims

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
        presets=SETTINGS,
        claims=language_claims,
        lab="circuits.studies.lego.llm.lab:LegoLanguageLab",
    ),
)

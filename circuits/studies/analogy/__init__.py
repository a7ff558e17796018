"""Feature resemblance: do shared properties align entities, and does that transfer?"""

from circuits.study import LanguagePart, Study
from trained.analogy.config import PRESETS, Config

from .claims import claims
from .llm.claims import claims as language_claims
from .llm.settings import PRESETS as LANGUAGE_PRESETS
from .llm.settings import Settings

STUDY = Study(
    slug="analogy",
    title="Feature Resemblance: Analogical Reasoning in Transformers",
    config=Config,
    presets=PRESETS,
    claims=claims,
    arms_part="trained.analogy.arms:arms",
    lab_part="circuits.studies.analogy.lab:AnalogyLab",
    figures_part="circuits.studies.analogy.figures:FIGURES",
    substitutes_part="circuits.studies.analogy.substitutes:SUBSTITUTES",
    language=LanguagePart(
        settings=Settings,
        presets=LANGUAGE_PRESETS,
        claims=language_claims,
        lab="circuits.studies.analogy.llm.lab:AnalogyLanguageLab",
        data="circuits.studies.analogy.llm.rows:SCHEMA",
    ),
)

"""Fine-tuning dynamics of in-context factual recall: an associative memory, read."""

from circuits.study import LanguagePart, Study
from trained.recall.config import PRESETS, Config

from .claims import claims
from .llm.claims import claims as language_claims
from .llm.settings import PRESETS as LANGUAGE_PRESETS
from .llm.settings import Settings

STUDY = Study(
    slug="recall",
    title="Fine-Tuning Dynamics of In-Context Factual Recall in Transformers",
    config=Config,
    presets=PRESETS,
    claims=claims,
    arms_part="trained.recall.arms:arms",
    lab_part="circuits.studies.recall.lab:RecallLab",
    figures_part="circuits.studies.recall.figures:FIGURES",
    substitutes_part="circuits.studies.recall.substitutes:SUBSTITUTES",
    language=LanguagePart(
        settings=Settings,
        presets=LANGUAGE_PRESETS,
        claims=language_claims,
        lab="circuits.studies.recall.llm.lab:RecallLanguageLab",
        data="circuits.studies.recall.llm.rows:SCHEMA",
    ),
)

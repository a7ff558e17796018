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
    mechanism=(
        "Two entities that are trained to the same label receive the same gradient, so "
        "their representations become alike. "
        "A property that is later taught of one entity then transfers to the other, "
        "which was never seen with it. "
        "The order matters (similarity before attribution), and two-hop reasoning is "
        "the same effect as soon as the bridge entity is also trained to name itself."
    ),
    sizes=("block.n_entities", "block.d_model", "gpt.n_entities", "gpt.layers"),
    config=Config,
    presets=PRESETS,
    claims=claims,
    arms_part="trained.analogy.arms:arms",
    lab_part="circuits.studies.analogy.lab:AnalogyLab",
    figures_part={
        "dynamics": "circuits.studies.analogy.figures.training:dynamics",
        "alignment": "circuits.studies.analogy.figures.compared:alignment",
        "transfer": "circuits.studies.analogy.figures.compared:transfer",
        "phase": "circuits.studies.analogy.figures.compared:phase",
        "depth": "circuits.studies.analogy.figures.depth:depth",
        "late": "circuits.studies.analogy.figures.compared:late",
        "multiplicity": "circuits.studies.analogy.figures.training:multiplicity",
    },
    substitutes_part="circuits.studies.analogy.substitutes:SUBSTITUTES",
    language=LanguagePart(
        settings=Settings,
        presets=LANGUAGE_PRESETS,
        claims=language_claims,
        lab="circuits.studies.analogy.llm.lab:AnalogyLanguageLab",
        data="circuits.studies.analogy.llm.rows:SCHEMA",
        figures_part={
            "llm-transfer": "circuits.studies.analogy.figures.language:transfer",
        },
    ),
)

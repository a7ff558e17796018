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
    mechanism=(
        "Facts live in a frozen memory; only attention is fine-tuned, to name the "
        "hidden relation of the examples first and then the answer. "
        "Attention settles on a pairwise pattern: equal weight on the two tokens of an "
        "example, different weight across examples, none on the query. "
        "Training passes a saddle at which the examples weigh the same and confusable "
        "relations tie, until a small perturbation lets one example win."
    ),
    sizes=("n_subjects", "n_relations", "n_examples", "temperature"),
    figure_sizes={
        "dynamics": ("warmup.steps", "warmup.escape_steps"),
        "few": ("few.temperatures", "few.draws"),
        "prompts": ("samples.subjects", "samples.steps"),
    },
    config=Config,
    presets=PRESETS,
    claims=claims,
    arms_part="trained.recall.arms:arms",
    lab_part="circuits.studies.recall.lab:RecallLab",
    figures_part={
        "attention": "circuits.studies.recall.figures:attention",
        "causes": "circuits.studies.recall.figures:causes",
        "dynamics": "circuits.studies.recall.figures:dynamics",
        "few": "circuits.studies.recall.figures:few",
        "prompts": "circuits.studies.recall.figures:learning",
    },
    substitutes_part="circuits.studies.recall.substitutes:SUBSTITUTES",
    language=LanguagePart(
        settings=Settings,
        presets=LANGUAGE_PRESETS,
        claims=language_claims,
        lab="circuits.studies.recall.llm.lab:RecallLanguageLab",
        data="circuits.studies.recall.llm.rows:SCHEMA",
    ),
)

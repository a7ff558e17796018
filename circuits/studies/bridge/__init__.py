"""Identity Bridge: does a zero-hop task let one-hop facts compose?"""

from circuits.study import LanguagePart, Study
from trained.bridge.config import PRESETS, Config

from .claims import claims
from .llm.claims import claims as language_claims
from .llm.settings import PRESETS as LANGUAGE_PRESETS
from .llm.settings import Settings

STUDY = Study(
    slug="bridge",
    title="Identity Bridge: Enabling Implicit Reasoning via Shared Latent Memory",
    mechanism=(
        "A model that learns A→B and B→C does not answer A→C, because B as an output "
        "and B as an input share nothing. "
        "Adding the trivial task B→B makes the cheapest solution reuse one direction "
        "for the subject and its bridge, a shared latent memory. "
        "Where a subject has several objects this only narrows the answer; small "
        "initialisation or weight decay then lets the hidden state of (A, relation) "
        "collapse onto that of B."
    ),
    sizes=("n_subjects", "gpt.d_model", "gpt.n_layers", "gpt.steps"),
    figure_sizes={"templates": ("n_subjects", "embedding.width", "embedding.steps")},
    config=Config,
    presets=PRESETS,
    claims=claims,
    arms_part="trained.bridge.arms:arms",
    lab_part="circuits.studies.bridge.lab:BridgeLab",
    figures_part={
        "accuracy": "circuits.studies.bridge.figures.accuracy:accuracy",
        "templates": "circuits.studies.bridge.figures.memory:templates",
        "polar": "circuits.studies.bridge.figures.alignment:polar_alignment",
        "timeline": "circuits.studies.bridge.figures.alignment:timeline",
        "in-distribution": "circuits.studies.bridge.figures.accuracy:in_distribution",
        "causal": "circuits.studies.bridge.figures.causal:causal",
        "margins": "circuits.studies.bridge.figures.memory:margins",
        "phases": "circuits.studies.bridge.figures.phases:phases",
    },
    substitutes_part="circuits.studies.bridge.substitutes:SUBSTITUTES",
    language=LanguagePart(
        settings=Settings,
        presets=LANGUAGE_PRESETS,
        claims=language_claims,
        lab="circuits.studies.bridge.llm.lab:BridgeLanguageLab",
        data="circuits.studies.bridge.llm.rows:SCHEMA",
        figures_part={
            "llm-omitted": "circuits.studies.bridge.figures.language:omitted",
        },
    ),
)

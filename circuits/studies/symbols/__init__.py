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
    mechanism=(
        "Attention sees which positions hold equal tokens, whatever the tokens are, so "
        "a relation can be applied to symbols that were never trained. "
        "Learning this from data alone takes many examples; one scalar per head that "
        "adds the identity to the query-key product cuts the need by an order. "
        "Copying an unseen symbol fails, and more so in wider models, until a scalar "
        "adds the identity to the value-output product."
    ),
    sizes=("model.d_model", "model.depth", "model.n_heads"),
    figure_sizes={
        "copying": ("copying.depth", "copying.n_heads", "copying.steps"),
        "kernel": ("kernel.beta", "kernel.gamma"),
        "kernel-regression": ("kernel.beta", "kernel.gamma", "kernel.n_test"),
        "nonsingular": ("kernel.refinements",),
        "first-step": ("first_step.n_tokens", "first_step.n_heads"),
    },
    config=Config,
    presets=PRESETS,
    claims=claims,
    arms_part="trained.symbols.arms:arms",
    lab_part="circuits.studies.symbols.lab:SymbolsLab",
    figures_part={
        "efficiency": "circuits.studies.symbols.figures.curves:efficiency",
        "paper": "circuits.studies.symbols.figures.curves:beside_paper",
        "copying": "circuits.studies.symbols.figures.curves:copying_error",
        "programs": "circuits.studies.symbols.figures.curves:programs",
        "psychometric": "circuits.studies.symbols.figures.curves:psychometric_error",
        "diagonals": "circuits.studies.symbols.figures.weights:diagonals",
        "causal": "circuits.studies.symbols.figures.weights:causal",
        "kernel": "circuits.studies.symbols.figures.theory:kernel",
        "kernel-regression": "circuits.studies.symbols.figures.theory:regression",
        "nonsingular": "circuits.studies.symbols.figures.theory:nonsingular",
        "first-step": "circuits.studies.symbols.figures.theory:first_step",
    },
    substitutes_part="circuits.studies.symbols.substitutes:SUBSTITUTES",
    language=LanguagePart(
        settings=Settings,
        presets=LANGUAGE_PRESETS,
        claims=language_claims,
        lab="circuits.studies.symbols.llm.lab:SymbolsLanguageLab",
        data="circuits.studies.symbols.llm.rows:SCHEMA",
        figures_part={
            "llm-perplexity": "circuits.studies.symbols.figures.language:perplexity",
            "llm-finetune": "circuits.studies.symbols.figures.language:finetune",
            "llm-diagonals": "circuits.studies.symbols.figures.language:diagonals",
        },
    ),
)

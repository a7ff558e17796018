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
    mechanism=(
        "Attention retrieves the two clauses that the next step needs by matching "
        "their shared variable; the feed-forward part applies the action to the value. "
        "The second part does not see the length, so a longer chain fails only where "
        "attention is diluted, and sharp attention generalises to it. "
        "Simply transitive actions force sharp attention; symmetry actions allow "
        "distractors, and need rounds of self-training that double the length."
    ),
    sizes=("n_variables", "train_length", "n_heads"),
    figure_sizes={
        **dict.fromkeys(("theory", "features"), ("theory.n_variables", "theory.clip")),
        **dict.fromkeys(
            ("figure1", "figure2", "figure67"),
            ("standard.n_variables", "train_length", "standard.epochs"),
        ),
        "scaling": ("theory.clip",),
    },
    config=Config,
    presets=PRESETS,
    claims=claims,
    arms_part="trained.lego.arms:arms",
    lab_part="circuits.studies.lego.lab:LegoLab",
    figures_part={
        "length": "circuits.studies.lego.figures.folded:length",
        "selftrain": "circuits.studies.lego.figures.folded:selftrain",
        "training": "circuits.studies.lego.figures.folded:training",
        "attention": "circuits.studies.lego.figures.folded:attention",
        "dose": "circuits.studies.lego.figures.folded:dose",
        "theory": "circuits.studies.lego.figures.theory:theory",
        "features": "circuits.studies.lego.figures.theory:features",
        "figure1": "circuits.studies.lego.figures.paper:figure1",
        "figure2": "circuits.studies.lego.figures.paper:figure2",
        "figure67": "circuits.studies.lego.figures.paper:figure67",
        "scaling": "circuits.studies.lego.figures.theory:scaling",
    },
    substitutes_part="circuits.studies.lego.substitutes:SUBSTITUTES",
    language=LanguagePart(
        settings=Settings,
        presets=LANGUAGE_PRESETS,
        claims=language_claims,
        lab="circuits.studies.lego.llm.lab:LegoLanguageLab",
        data="circuits.studies.lego.llm.rows:SCHEMA",
    ),
)

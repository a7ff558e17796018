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
    config=Config,
    presets=PRESETS,
    claims=claims,
    arms_part="trained.bridge.arms:arms",
    lab_part="circuits.studies.bridge.lab:BridgeLab",
    figures_part="circuits.studies.bridge.figures:FIGURES",
    substitutes_part="circuits.studies.bridge.substitutes:SUBSTITUTES",
    language=LanguagePart(
        settings=Settings,
        presets=LANGUAGE_PRESETS,
        claims=language_claims,
        lab="circuits.studies.bridge.llm.lab:BridgeLanguageLab",
        data="circuits.studies.bridge.llm.rows:SCHEMA",
    ),
)

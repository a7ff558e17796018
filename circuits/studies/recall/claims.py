"""What the recall paper says, as claims with expectations fixed before this code ran.

Where a derivation in the paper has a slip, the corrected value is expected and the
paper's own is shown beside it; the statement says so.
"""

from circuits.claims import Claim
from trained.recall.config import Config

from . import claims_causal, claims_figures, claims_theory

TITLE = "Fine-Tuning Dynamics of In-Context Factual Recall in Transformers"


def claims(config: Config) -> tuple[Claim, ...]:
    """Every claim that can be judged at a configuration."""
    return (
        *claims_theory.memory(config),
        *claims_theory.no_chain_of_thought(config),
        *claims_theory.prompt_types(config),
        *claims_theory.saddle(),
        *claims_theory.theorem2(),
        *claims_theory.optimum(),
        *claims_theory.general(config),
        *claims_theory.end_state(config),
        *claims_figures.figure2(config),
        *claims_figures.figure3(config),
        *claims_figures.figure4(config),
        *claims_causal.order(config),
        *claims_causal.causes(config),
        *claims_causal.disruptions(config),
        *claims_causal.second_step_causes(),
    )

"""What the bridge paper says, as claims with expectations fixed before this code ran.

The paper's text carries no numbers, so the thresholds are ours. `ood` is
accuracy over the whole vocabulary on two-hop queries, `ood_obj` over objects only: both
are always shown, and no claim about composing rests on `ood_obj` alone. Without the
identity task an untied model *must* be at chance (input and output bridges can be
relabelled apart), so that control is a leak test, not evidence for the mechanism.

How free the setting was: a prototype chose it among some 137 configurations judged by
two-hop accuracy, as there is no validation set; the quick preset then cut its steps
from 300 to 120 on seeds that the verdicts do not use. The gap between the arms is far
larger than that choice; the accuracies themselves may be optimistic.
"""

from circuits.claims import Claim
from trained.bridge.config import Config

from .claims_causal import causes
from .claims_embedding import embeddings
from .claims_gpt import transformers
from .claims_variants import variants

TITLE = "Identity Bridge: Enabling Implicit Reasoning via Shared Latent Memory"


def claims(config: Config) -> tuple[Claim, ...]:
    """Every claim that can be judged at a configuration."""
    return (
        *embeddings(config),
        *transformers(config),
        *causes(config),
        *variants(config),
    )

"""What the lego paper says, as claims with expectations fixed before this code ran.

The paper's experiments are figures without numbers, so the thresholds are ours. `all`
is the share of sentences whose greedy rollout is right throughout; per-step accuracy is
named where it is meant.

How free the settings were: a prototype tried several learning rates of the attention,
saw that at the first one the cyclic group did not reach length 160, and went on with a
rate at which it did; the thresholds were written after its results on seeds 0 to 2 were
known. So passing at the presets' groups and seeds shows that this code repeats that
prototype; other groups, seeds, lengths and numbers of variables (--set, --seeds) are
the evidence. This code's own choices (a constant rate, when the FFN and the start of
self-training stop, the budgets) were made on seeds 100 to 102, which no verdict uses.
With them the cyclic group solves twice the length of the symmetric one on all three
seeds at the prototype's FFN width of 256, but at width 128 the ratio was 1/2, 2 and 1:
whether the groups separate depends on the budget, which is why it is a sweep, and on
the FFN's tolerance of misplaced attention, which is why the two are exchanged.
"""

from circuits.claims import Claim
from trained.lego.config import Config

from .claims_attention import attentions
from .claims_causal import causes
from .claims_features import learned_features
from .claims_length import lengths
from .claims_self import self_trained
from .claims_standard import standard
from .claims_theory import theorems

TITLE = (
    "Transformers Provably Learn Chain-of-Thought Reasoning with Length Generalization"
)

PARTS = (
    lengths,
    attentions,
    self_trained,
    causes,
    theorems,
    learned_features,
    standard,
)


def claims(config: Config) -> tuple[Claim, ...]:
    """Every claim that can be judged at a configuration."""
    return tuple(claim for part in PARTS for claim in part(config))

"""What the analogy paper says, as claims with expectations fixed before this code ran.

The paper does not say which data its "attribution, then similarity" rows used, so both
readings stand apart: AS_T (Theorem 3) and AS_E (Section 5). Its claim that they do not
transfer is judged with the value map frozen in the second phase, as in its theory;
models trained end to end are conditional claims. Free of torch.

How free the settings were: a prototype tried 9 ReLU and 7 GPT-2 settings before these,
judged on success too, and the strength of stage 1 is calibrated on one number of the
paper (SA's cosine, 0.9689), so that SA's alignment is no prediction; the others are.
"""

from collections.abc import Iterator

from circuits.claims import Claim
from trained.analogy.config import Config

from . import claims_block, claims_causal, claims_depth, claims_free

TITLE = "Feature Resemblance: Analogical Reasoning in Transformers"


def claims(config: Config) -> tuple[Claim, ...]:
    """Every claim that can be judged at a configuration."""
    return tuple(_claims(config))


def _claims(config: Config) -> Iterator[Claim]:
    if "block" in config.parts:
        yield from claims_block.claims(config)
        yield from claims_causal.block(config)
    if "relu" in config.parts:
        yield from claims_free.relu(config)
    if "gpt" in config.parts:
        yield from claims_free.gpt(config)
        yield from claims_causal.gpt(config)
        yield from claims_depth.gpt(config)
    if "linear" in config.parts:
        yield from claims_depth.linear(config)

"""What the bridge paper says, as claims with expectations fixed in advance.

The paper's text carries hardly a number, so most thresholds are ours. `ood` is accuracy
over the whole vocabulary on two-hop queries, `ood_obj` over objects only, shown beside
it and never instead. Without the identity task an untied model *must* be at chance
(input and output bridges can be relabelled apart): that null is a leak test, not
evidence for the mechanism.

How free the setting was: a prototype chose it among some 137 configurations judged by
two-hop accuracy, as there is no validation set; the quick preset then cut its steps
from 300 to 120 on seeds that the verdicts do not use.
"""

from collections.abc import Iterator
from dataclasses import replace
from fnmatch import fnmatchcase

from circuits.claims import Claim
from trained.bridge.config import Config

from .mechanism import mechanism
from .ood import answers
from .ours import ours


def claims(config: Config) -> Iterator[Claim]:
    """Every claim, as far as it can be judged at a configuration."""
    for claim in (*answers(config), *mechanism(config), *ours(config)):
        missing = "" if claim.kind == "theory" else _missing(config, claim)
        yield replace(claim, not_tested=claim.not_tested or missing)


WHOLE = ("bridge.memory.*", "*.decayed-direction", "*.truncation")
"""What asks for the identity task on every bridge; others read those that have it."""


def _missing(config: Config, claim: Claim) -> str:
    """Why the share of bridges with the identity task forbids to judge a claim."""
    if config.identity == 0:
        return "identity=0: no bridge has the zero-hop task"
    if config.identity < 1 and any(fnmatchcase(claim.id, name) for name in WHOLE):
        return f"identity={config.identity:g}: it asks for the task on every bridge"
    return ""

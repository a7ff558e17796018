"""What the bridge paper says, as claims with expectations fixed in advance.

The paper's text carries hardly a number, so most thresholds are ours. Its GPT has a
tied head and positions from 0; one recipe (rate, steps, warm-up) serves all of its
arms, chosen from one grid on seeds 900 to 902 (`results/bridge-search.json`).
"""

from collections.abc import Iterator
from dataclasses import replace
from fnmatch import fnmatchcase

from circuits.claims import Claim, under
from trained.bridge.config import Config

from .align import aligned
from .decline import decline
from .memory import memory
from .ood import unlocked
from .ours import beside, program, rows
from .theory import account
from .untied import untied_head

HEADLINES = {
    "Identity unlocks two-hop reasoning out of distribution": unlocked,
    "Complexity, and what slows the decline": decline,
    "Cross-task memory in the logit matrix": memory,
    "The nuclear-norm account": account,
    "Alignment of first-hop states with bridges": aligned,
    "Ours: beside the paper's GPT": beside,
    "Ours: the program": program,
    "Ours: Emb-MLP": rows,
    "Ours: GPT, untied head and offsets": untied_head,
}

WHOLE = ("bridge.memory.*", "bridge.bias.*", "*.decayed-direction", "*.truncation")
"""What asks for the identity task on every bridge; others read those that have it."""


def claims(config: Config) -> Iterator[Claim]:
    """Every claim, as far as it can be judged at a configuration."""
    for headline, part in HEADLINES.items():
        for claim in under(headline, part(config)):
            missing = "" if claim.kind == "theory" else _missing(config, claim)
            yield replace(claim, not_tested=claim.not_tested or missing)


def _missing(config: Config, claim: Claim) -> str:
    """Why the share of bridges with the identity task forbids to judge a claim."""
    if config.identity == 0:
        return "identity=0: no bridge has the zero-hop task"
    if config.identity < 1 and any(fnmatchcase(claim.id, name) for name in WHOLE):
        return f"identity={config.identity:g}: it asks for the task on every bridge"
    return ""

"""What a run of the analogy study shows, claim by claim."""

from circuits.claims import Observed
from trained.store import Run

from .causal import observe_block_causes, observe_gpt_causes
from .depth import observe_gpt_depth, observe_linear
from .free import observe_gpt, observe_relu
from .readings import Reader
from .transfer import observe_block

_PARTS = {
    "block": (observe_block, observe_block_causes),
    "relu": (observe_relu,),
    "gpt": (observe_gpt, observe_gpt_causes, observe_gpt_depth),
    "linear": (observe_linear,),
}


def observe(run: Run) -> dict[str, Observed]:
    """One observation for every claim at the run's configuration."""
    reader = Reader(run)
    return {
        claim: observed
        for part in reader.config.parts
        for observe_part in _PARTS[part]
        for claim, observed in observe_part(reader).items()
    }

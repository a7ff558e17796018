"""What the analogy study trains, at a configuration.

`block-*` is the one-layer block with layer-wise stages, `relu-*` the ReLU block end to
end, `gpt-*` GPT-2 from scratch, `linear` the deep linear network.
"""

from trained.arm import Arm

from . import deep_linear, end_to_end, gpt, layerwise
from .config import Config

_PARTS = {
    "block": layerwise.arms,
    "relu": end_to_end.arms,
    "gpt": gpt.arms,
    "linear": deep_linear.arms,
}


def arms(config: Config) -> tuple[Arm, ...]:
    """Every arm of the parts that the configuration asks for."""
    return tuple(arm for part in config.parts for arm in _PARTS[part](config))

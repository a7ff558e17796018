"""Judge the studies' claims about language models on one of them.

    python -m scripts.pretrained smollm2 [STUDY...] [--seeds 3] [--json FILE]

The same as `reasonscope confirm [STUDY...] --model smollm2`.
"""

import sys
from collections.abc import Sequence

from circuits.command.cli import main as command


def main(arguments: Sequence[str] | None = None) -> int:
    """Hand the model over to the command."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    model = ["--model", given.pop(0)] if given else ["--model"]
    return command(["confirm", *given, *model])


if __name__ == "__main__":
    raise SystemExit(main())

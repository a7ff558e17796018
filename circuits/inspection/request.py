"""What `reasonscope inspect` is asked for; free of torch, so it is refused at once."""

import argparse
from dataclasses import dataclass
from pathlib import Path

from circuits.command.request import DEVICES
from trained.errors import BadInput, unknown

SIGNALS = ("lens", "attention", "alignment", "patching")
DEFAULT_SIGNALS = ("lens", "attention")
BACKENDS = ("hf", "bridge", "nnsight")


@dataclass(frozen=True)
class InspectRequest:
    """A model, the prompts to run it on, and the signals to show."""

    model: str
    prompts: tuple[str, ...]
    answer: str | None = None
    corrupt: str | None = None
    signals: tuple[str, ...] = DEFAULT_SIGNALS
    backend: str = "hf"
    device: str = "auto"
    out: Path | None = None

    def __post_init__(self) -> None:
        for signal in self.signals:
            if signal not in SIGNALS:
                raise unknown("signal", signal, SIGNALS)
        if self.backend not in BACKENDS:
            raise unknown("backend", self.backend, BACKENDS)
        if self.device not in DEVICES:
            raise unknown("device", self.device, DEVICES)
        if any(not prompt.strip() for prompt in self.prompts):
            raise BadInput("a prompt is empty; give some text")
        if ("patching" in self.signals) != (self.corrupt is not None):
            raise BadInput(
                "--signal patching and --corrupt PROMPT go together: the corrupt "
                "prompt has as many tokens and another answer"
            )


def add_inspect_options(parser: argparse.ArgumentParser) -> None:
    """The options that `inspect_request` reads."""
    parser.add_argument("model", metavar="MODEL", help="smollm2, a path or a hub name")
    parser.add_argument("prompts", nargs="+", metavar="PROMPT")
    parser.add_argument("--answer", metavar="TOKEN", help='one token, such as " Paris"')
    parser.add_argument(
        "--signal",
        action="append",
        dest="signals",
        metavar="|".join(SIGNALS),
        help=f"repeatable; default: {' and '.join(DEFAULT_SIGNALS)}",
    )
    parser.add_argument(
        "--corrupt", metavar="PROMPT", help="the other prompt of --signal patching"
    )
    parser.add_argument("--backend", default="hf", metavar="|".join(BACKENDS))
    parser.add_argument("--device", default="auto", help=", ".join(DEVICES))
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="DIR",
        help="write inspect.json and figures there",
    )


def inspect_request(options: argparse.Namespace) -> InspectRequest:
    """The request that parsed options make."""
    return InspectRequest(
        model=options.model,
        prompts=tuple(options.prompts),
        answer=options.answer,
        corrupt=options.corrupt,
        signals=tuple(dict.fromkeys(options.signals or DEFAULT_SIGNALS)),
        backend=options.backend,
        device=options.device,
        out=options.output,
    )

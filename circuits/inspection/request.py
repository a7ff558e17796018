"""What `reasonscope inspect` is asked for; free of torch, so it is refused at once."""

from dataclasses import dataclass
from pathlib import Path

from circuits.study import check_device
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
        if self.device != "spread":
            check_device(self.device)
        if any(not prompt.strip() for prompt in self.prompts):
            raise BadInput("a prompt is empty; give some text")
        if ("patching" in self.signals) != (self.corrupt is not None):
            raise BadInput(
                "--signal patching and --corrupt PROMPT go together: the corrupt "
                "prompt has as many tokens and another answer"
            )

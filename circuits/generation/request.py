"""What `reasonscope inspect --generate` is asked for; free of torch."""

from dataclasses import dataclass, field
from pathlib import Path

from circuits.inspection.request import Opening, check_style
from trained.errors import BadInput, unknown

from .outline import SIGNALS, Outline

SHOWN_SIGNALS = ("attention", "lens")
"""What the command looks at if nothing is said."""


@dataclass(frozen=True)
class GenerateRequest:
    """A model, prompts that it goes on from, and what is looked at.

    Attributes:
        opening: the model.
        prompts: their texts.
        n_tokens: the most that is written.
        signals: what is read.
        outline: how prompts and steps are cut.
        chat: whether prompts are put into the tokenizer's template.
        knock_out: steps that later tokens can no longer see, each on its own.
        exchange: a step and a layer: the state that the donor gives.
        donor: the other prompt of an exchange.
        out: where figures go.
        style: how they look.
    """

    opening: Opening
    prompts: tuple[str, ...]
    n_tokens: int
    signals: tuple[str, ...] = SHOWN_SIGNALS
    outline: Outline = field(default_factory=Outline)
    chat: bool = False
    knock_out: tuple[int, ...] = ()
    exchange: tuple[int, int] | None = None
    donor: str | None = None
    out: Path | None = None
    style: str = "paper"

    def __post_init__(self) -> None:
        check_style(self.style)
        for signal in self.signals:
            if signal not in SIGNALS:
                raise unknown("signal", signal, SIGNALS)
        if self.n_tokens < 1:
            raise BadInput(f"--generate {self.n_tokens}: at least one token")
        if any(not prompt.strip() for prompt in self.prompts):
            raise BadInput("a prompt is empty; give some text")
        if (self.exchange is None) != (self.donor is None):
            raise BadInput(
                "--exchange STEP:LAYER and --corrupt PROMPT go together: the state of "
                "the step comes from what is written after the corrupt prompt"
            )


def exchange_of(text: str | None) -> tuple[int, int] | None:
    """A step and a layer.

    >>> exchange_of("2:12")
    (2, 12)
    """
    if text is None:
        return None
    step, _, layer = text.partition(":")
    if not (step.isdecimal() and layer.isdecimal()):
        raise BadInput(f"--exchange {text}: give STEP:LAYER, such as 2:12")
    return int(step), int(layer)

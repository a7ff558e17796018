"""One prompt through the signals that were asked for: readings and JSON."""

from dataclasses import dataclass
from typing import Any

from probes.measurement import Measurement
from trained.errors import BadInput

from .alignment import read_alignment
from .attention import AttentionReading, read_attention
from .lens import LensReading, read_lens
from .patching import read_patching
from .request import InspectRequest
from .subject import Subject

SCHEMA = 1

FEWEST_TOKENS = 3
"""The first is where attention rests, the last is what looks."""


@dataclass(frozen=True)
class Inspection:
    """The readings of one prompt; a signal that was not asked for is None.

    The answer's rank and log-probability by layer are always read.
    """

    subject: Subject
    lens: LensReading
    attention: AttentionReading | None = None
    alignment: Measurement | None = None
    patching: Measurement | None = None

    def as_dict(self) -> dict[str, Any]:
        """The object that the command writes."""
        subject = self.subject
        found: dict[str, Any] = {
            "schema": SCHEMA,
            "model": subject.model.name,
            "prompt": subject.text,
            "tokens": subject.tokens,
            "answer": subject.model.tokenizer.decode([subject.answer]),
            "answer_source": subject.answer_source,
            "top_tokens": [{"token": t, "probability": p} for t, p in subject.top],
            "layers": list(self.lens.answer_rank.labels["layer"]),
            "answer_rank": self.lens.answer_rank.values.tolist(),
            "answer_logprob": self.lens.answer_logprob.values.tolist(),
            "lens_top_tokens": [list(row) for row in self.lens.top_tokens],
        }
        if self.attention is not None:
            found["attention"] = {
                "axes": ["layer", "head", "key"],
                "last_row": self.attention.last_row.values.tolist(),
                "strongest_heads": list(self.attention.patterns.labels["head"]),
            }
        for name in ("alignment", "patching"):
            grid = getattr(self, name)
            if grid is not None:
                found[name] = {"axes": list(grid.axes), "values": grid.values.tolist()}
        return found


def inspect(subject: Subject, request: InspectRequest) -> Inspection:
    """Take the readings that a request asks for on one prompt."""
    wanted = request.signals
    if len(subject.tokens) < FEWEST_TOKENS:
        raise BadInput(
            f"the prompt {subject.text!r} has {len(subject.tokens)} tokens; give at "
            f"least {FEWEST_TOKENS}, so that the last has something to look at"
        )
    return Inspection(
        subject=subject,
        lens=read_lens(subject),
        attention=read_attention(subject) if "attention" in wanted else None,
        alignment=read_alignment(subject) if "alignment" in wanted else None,
        patching=read_patching(subject, request.corrupt) if request.corrupt else None,
    )

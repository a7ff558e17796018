"""A study's claims judged on a pretrained language model."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .claims import Verdict, judge
from .confirm import environment
from .models.language_model import LanguageModel
from .study import Study

SCHEMA = 1
"""Of the objects that `as_dict` gives, the same as those of `reasonscope confirm`."""


@dataclass(frozen=True)
class PretrainedConfirmation:
    """The verdicts of a study on a language model."""

    study: str
    model: str
    seeds: tuple[int, ...]
    device: str
    seconds: float
    verdicts: tuple[Verdict, ...]

    @property
    def passed(self) -> bool:
        """Whether every gated claim was confirmed."""
        return all(v.passed for v in self.verdicts if v.claim.gated)

    def as_dict(self) -> dict[str, Any]:
        """The object that `--json` writes."""
        return {
            "schema": SCHEMA,
            "study": self.study,
            "preset": "pretrained",
            "config": {"model": self.model},
            "seeds": list(self.seeds),
            "device": self.device,
            "seconds": round(self.seconds, 1),
            "environment": environment(),
            "verdicts": [verdict.as_dict() for verdict in self.verdicts],
        }


def confirm_pretrained(
    study: Study, model: LanguageModel, twin: LanguageModel, seeds: Sequence[int]
) -> PretrainedConfirmation:
    """Measure and judge a study's claims on a language model.

    Args:
        study: one that `has_pretrained`.
        model: the pretrained model.
        twin: its architecture with random weights, the null of most claims.
        seeds: each draws prompts of its own.
    """
    started = time.perf_counter()
    observed = study.observe_pretrained(model, twin, tuple(seeds))
    return PretrainedConfirmation(
        study=study.slug,
        model=model.name,
        seeds=tuple(seeds),
        device=str(model.device),
        seconds=time.perf_counter() - started,
        verdicts=judge(study.claims_pretrained, observed),
    )

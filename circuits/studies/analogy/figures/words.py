"""What arms and readings are called in figures, for readers who do not know the code.

Similarity facts give source and target the same property; attribution facts give the
source alone a new one. The test asks for the target's.
"""

from collections.abc import Callable, Iterable

from circuits.studies.analogy.lab import AnalogyLab, Values, When
from trained.errors import BadInput

Reading = Callable[[AnalogyLab, str, When], Values]

READINGS: dict[str, Reading] = {
    "target right": AnalogyLab.success,
    "right among the new properties": AnalogyLab.c_only,
    "source still right": AnalogyLab.retained,
    "shared property instead": AnalogyLab.shared_answer,
}
CURRICULA = {
    "joint": "all facts at once (joint)",
    "SA": "similarity first (SA)",
    "AS_T": "target's similarity last (AS_T)",
    "AS_E": "all similarity last (AS_E)",
    "bridge": "two hops, with bridge",
    "no_bridge": "two hops, no bridge",
}
TITLES = {"block": "One-layer block", "relu-main": "ReLU block", "gpt": "GPT-2"}


def curricula(lab: AnalogyLab, part: str) -> list[str]:
    """Those that a part was trained by."""
    names = (*lab.config.curricula, "bridge", "no_bridge")
    return [name for name in names if lab.has(lab.named(part, name))]


def trained(lab: AnalogyLab, *groups: str) -> list[str]:
    """Those that the run trained; `BadInput` if it trained none."""
    parts = [group.partition("-")[0] for group in groups]
    found = [g for g, p in zip(groups, parts, strict=True) if p in lab.config.parts]
    if not found:
        names = ",".join(parts)
        raise BadInput(f"the run lacks what this figure shows; train parts={names}")
    return found


def in_words(names: Iterable[str]) -> tuple[str, ...]:
    """Curricula as they are called in figures."""
    return tuple(CURRICULA[name] for name in names)

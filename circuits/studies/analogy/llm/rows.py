"""The study's data: facts about look-alikes, 206 of which come with it."""

from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from circuits.datasets.schema import Schema
from trained.analogy.facts import Fact, attribution_prompt


def as_prompts(facts: Sequence[Fact]) -> Iterator[dict[str, Any]]:
    """The questions about both subjects as rows for `reasonscope scan`."""
    for fact in facts:
        named = {"source": fact.subject1, "target": fact.subject2}
        for group, subject in named.items():
            prompt, end = attribution_prompt(subject), len(subject)
            yield {
                "prompt": prompt,
                "answer": f" {fact.category}",
                "roles": {"subject": [0, end], "relation": [end + 1, len(prompt)]},
                "group": group,
            }


SCHEMA = Schema(
    Fact, Path(str(resources.files("trained.analogy") / "facts.json")), as_prompts
)

"""Figure 8 in one call: a model, a file of two-hop facts, settings."""

from dataclasses import replace
from pathlib import Path

from circuits.confirm import Confirmation, confirm_language
from circuits.models.language_model import LanguageModel

from .claims import Settings


def bridge_llm(
    model: LanguageModel,
    facts: Path | None = None,
    settings: Settings | None = None,
    *,
    seeds: tuple[int, ...] = (301,),
) -> Confirmation:
    """Fine-tune a model on single hops and judge what the paper says of it.

    Args:
        model: opened by `reasonscope.open`.
        facts: a file of rows (see `rows`); None for the landmarks of the study.
        settings: sizes and how to fine-tune.
        seeds: each draws bridges and fine-tunes anew.
    """
    from circuits.studies.bridge import STUDY

    sizes = settings or Settings()
    if facts is not None:
        sizes = replace(sizes, facts=str(facts))
    return confirm_language(STUDY, STUDY.language_lab(model, sizes, seeds))

"""What a study says of a language model is the same there, fine-tuning included."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
import torch

from circuits.claims import Claim, judge
from circuits.lab import LanguageLab
from circuits.models.language_model import LanguageModel
from circuits.models.open import wrap
from circuits.studies.analogy.llm.lab import AnalogyLanguageLab
from circuits.studies.bridge.llm.lab import BridgeLanguageLab
from circuits.studies.lego.llm.lab import LegoLanguageLab
from circuits.studies.lego.llm.settings import Settings as LegoSettings
from circuits.studies.symbols.llm.lab import SymbolsLanguageLab
from circuits.study import STUDIES, find
from circuits.tuning.tuned import Lesson, taught
from tests.circuits.studies.analogy import test_llm as analogy
from tests.circuits.studies.bridge import test_llm as bridge
from tests.circuits.studies.lego import test_llm as lego
from tests.circuits.studies.recall import test_llm as recall
from tests.circuits.studies.symbols import test_llm as symbols
from tests.circuits.studies.symbols import test_llm_leaves as symbols_leaves
from tests.circuits.tuning import test_tuned as tuning
from tests.device import standin
from tests.device.check_evidence import alike, numbers
from tests.word_models import word_model

SHORT: Any = {"epochs": 2, "resamples": 100}
CHOOSING = {"analogy.llm.sparse": 0.02}
"""It keeps the largest activations, so round-off may choose another one where two are
nearly equal: likely what differs by .007 of a cosine on one machine; not traced."""


class Tiny(NamedTuple):
    """A study's experiment on a random model that knows its words."""

    texts: list[str]
    lab: Callable[[LanguageModel], LanguageLab]


def analogy_lab(model: LanguageModel) -> LanguageLab:
    all_of_it = {"replay": True, "invented": True, "exchanged": True}
    settings = replace(analogy.SETTINGS, facts=3, n_aligned=4, **SHORT, **all_of_it)
    return AnalogyLanguageLab(model, settings, (0,))


def bridge_lab(model: LanguageModel) -> LanguageLab:
    settings = replace(bridge.SETTINGS, bridges=4, rows=2, epochs=2, two_hop_share=0.5)
    return BridgeLanguageLab(model, settings, (0,))


def lego_lab(model: LanguageModel) -> LanguageLab:
    settings = LegoSettings(long=6, n_shortest=2, n_short=3, n_long=1, n_hidden=2)
    return LegoLanguageLab(model, settings, (0,))


def symbols_lab(model: LanguageModel) -> LanguageLab:
    settings = replace(
        symbols.TINY, finetune=replace(symbols_leaves.TINY, steps=2, n_seeds=1)
    )
    return SymbolsLanguageLab(model, settings, (0,))


LABS = {
    "recall": Tiny(recall.vocabulary(), recall.lab_of),
    "analogy": Tiny(analogy.TEXTS, analogy_lab),
    "bridge": Tiny(bridge.TEXTS, bridge_lab),
    "symbols": Tiny(symbols.TEXTS, symbols_lab),
    "lego": Tiny(lego.vocabulary(), lego_lab),
}


def at_once(claim: Claim) -> Claim:
    """A claim that is measured although its preconditions fail."""
    conditions = (*claim.preconditions, *claim.conditions)
    return replace(claim, preconditions=(), conditions=conditions)


def opened(texts: list[str], place: torch.device) -> LanguageModel:
    plain = word_model(texts)
    return wrap(plain.module.to(place), plain.tokenizer)


def measured(study: str, place: torch.device) -> dict[str, list[float] | str]:
    own = LABS[study]
    lab = own.lab(opened(own.texts, place))
    assert lab.model.device.type == place.type
    claims = find(study).language_claims(lab.settings)
    verdicts = [judge(at_once(claim), lab) for claim in claims]
    return {v.claim.id: v.missing or numbers(v) for v in verdicts}


@pytest.mark.slow
@pytest.mark.parametrize("study", STUDIES)
def test_the_verdicts_on_a_language_model_are_the_same(study: str) -> None:
    here = measured(study, torch.device("cpu"))
    with standin.device() as place:
        there = measured(study, place)
        assert standin.COPIES
    known = [claim for claim, found in here.items() if not isinstance(found, str)]
    assert len(known) > len(here) / 2
    for claim, found in here.items():
        within = CHOOSING.get(claim, 1e-4)
        assert alike(found, there[claim], within), (claim, found, there[claim])


def copies(epochs: int, accumulate: int) -> int:
    """How often something came to the host while facts were taught."""
    with standin.device() as place:
        model = opened(tuning.TEXTS, place)
        how = replace(tuning.SHORT, epochs=epochs, accumulate=accumulate, batch_size=99)
        with taught(model, Lesson(tuning.ONCE, tuning.LISTS, 0, how)):
            return standin.COPIES.total()


@pytest.mark.parametrize("accumulate", [1, 2])
def test_what_a_step_of_fine_tuning_brings_to_the_host(accumulate: int) -> None:
    """Whether the loss is finite, the norm of all gradients, and for every part of the
    batch what transformers asks: whether its mask is full."""
    few, many = copies(2, accumulate), copies(5, accumulate)
    assert many - few == (2 + accumulate) * 3

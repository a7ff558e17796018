"""Facts about look-alikes: prompts, lists and readings, planted and on tiny models."""

import random
from dataclasses import replace

import pytest
import torch

from circuits.confirm import confirm_language
from circuits.models.language_model import LanguageModel
from circuits.models.tuned import fine_tuned
from circuits.studies.analogy import STUDY
from circuits.studies.analogy.llm.claims import Settings
from circuits.studies.analogy.llm.data import (
    AS,
    JOINT,
    SA,
    category_tokens,
    draw,
    lists,
    subjects,
    written,
)
from circuits.studies.analogy.llm.lab import (
    AnalogyLanguageLab,
    alignment,
    layer_alignment,
    read,
    successes,
)
from tests.word_models import word_model
from trained.analogy.facts import (
    Fact,
    attribution_sentence,
    load_facts,
    permuted_categories,
    similarity_sentence,
)
from trained.finetuning_config import FineTuning

SHORT = FineTuning(epochs=15, batch_size=16, lr=0.01, last_layers=2)
SETTINGS = Settings(n_facts=6, n_aligned=12, tuning=SHORT)
FALCON = Fact("Falcon", "Kestrel", "diving at prey", "CapableOf", "raptor")
TEXTS = [
    sentence(fact, subject)
    for fact in (FALCON, *load_facts())
    for subject in (fact.subject1, fact.subject2)
    for sentence in (similarity_sentence, attribution_sentence)
]


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return word_model(TEXTS)


def text_at(model: LanguageModel, names: list[str], role: str) -> list[str]:
    prompts = written(model, names)
    rows = zip(prompts.tokens, prompts.role(role), strict=True)
    return [
        "".join(model.tokenizer.convert_ids_to_tokens(tokens[at].tolist()))
        for tokens, at in rows
    ]


def test_lists_by_hand(model: LanguageModel) -> None:
    found = lists(model, [FALCON])
    assert [tuple(fact) for fact in found["similarity"]] == [
        ("<s>Falcon is capable of", " diving at prey"),
        ("<s>Kestrel is capable of", " diving at prey"),
    ]
    assert [tuple(fact) for fact in found["attribution"]] == [
        ("<s>Falcon is classified as", " raptor")
    ]
    assert [tuple(fact) for fact in found["test"]] == [
        ("<s>Kestrel is classified as", " raptor")
    ]


def test_no_curriculum_trains_on_the_test(model: LanguageModel) -> None:
    found = lists(model, load_facts())
    tested = {fact.prompt for fact in found["test"]}
    for curriculum in (JOINT, SA, AS):
        assert "test" not in curriculum.trained
        for name in curriculum.trained:
            assert not tested & {fact.prompt for fact in found[name]}
    assert SA.phases == AS.phases[::-1]
    assert JOINT.trained == SA.trained == {"similarity", "attribution"}


def test_prompts_end_in_the_relation(model: LanguageModel) -> None:
    names = ["Kestrel", "Tennis ball"]
    assert text_at(model, names, "relation") == [" is classified as"] * 2
    prompts = written(model, names)
    assert torch.equal(prompts.role("relation")[:, -1], prompts.last)
    assert torch.equal(prompts.role("subject")[:, -1], prompts.last - 3)
    assert subjects([FALCON, replace(FALCON, subject1="Owl", subject2="Hawk")]) == [
        "Falcon",
        "Owl",
        "Kestrel",
        "Hawk",
    ]


@pytest.mark.parametrize("seed", range(4))
def test_drawn_categories_begin_differently(model: LanguageModel, seed: int) -> None:
    facts = draw(model, 20, random.Random(seed))
    assert len(facts) == len(set(facts)) == 20
    assert len(category_tokens(model, facts).unique()) == 20
    assert facts == draw(model, 20, random.Random(seed))
    assert facts != draw(model, 20, random.Random(seed + 1))


def test_successes_by_hand() -> None:
    # Two facts with categories 3 and 1; token 0 is no category and does not count.
    logits = torch.tensor(
        [[9.0, 1, 0, 2], [9, 3, 0, 2], [9, 3, 0, 2], [9, 3, 0, 4]]  # 3, 1, 1, 3
    )
    right = successes(logits, torch.tensor([3, 1]))
    assert right.tolist() == [[1, 1], [0, 0]]


def test_equal_subjects_are_alike_and_others_are_not(model: LanguageModel) -> None:
    facts = [replace(f, subject2=f.subject1) for f in draw(model, 8, random.Random(0))]
    seen = read(model, facts, SETTINGS)
    for own, shifted in (seen.similarity, seen.sparse):
        assert own == pytest.approx(1, abs=1e-5)
        assert shifted < 0.95
    assert seen.first == seen.second
    unrelated = read(model, draw(model, 30, random.Random(0)), SETTINGS)
    own, shifted = unrelated.sparse
    assert abs(own - shifted) < 0.1


def test_partners_with_one_embedding_are_aligned(model: LanguageModel) -> None:
    single = [f for f in load_facts() if " " not in f.subject1 + f.subject2][:16]
    own, shifted = layer_alignment(model, single, 16)
    assert float((own - shifted).abs().max()) < 0.3
    planted = word_model(TEXTS)
    embedding = planted.module.get_input_embeddings().weight
    with torch.no_grad():
        for fact in single:
            pair = [planted.tokenizer.encode(s) for s in (fact.subject1, fact.subject2)]
            embedding[pair[1]] = embedding[pair[0]]
    own_mean, shifted_mean = alignment(planted, single[0::2], single[1::2], 16)
    assert own_mean == pytest.approx(1, abs=1e-5)
    assert shifted_mean < 0.2


def test_what_is_trained_on_is_learned(model: LanguageModel) -> None:
    facts = draw(model, 8, random.Random(1))
    permuted = permuted_categories(facts, generator=random.Random(2))
    for several in (facts, permuted):
        assert read(model, several, SETTINGS).first < 0.6
        trained = fine_tuned(model, JOINT, lists(model, several), 0, SHORT)
        assert read(trained, several, SETTINGS).first > 0.9


def test_every_claim_is_judged_or_said_not_to_be(model: LanguageModel) -> None:
    lab = AnalogyLanguageLab(model, SETTINGS, (0,))
    done = confirm_language(STUDY, lab)
    words = {v.claim.id: v.word for v in done.verdicts}
    later = {"analogy.llm.transfer", "analogy.llm.order", "analogy.llm.sparse"}
    assert {name for name, word in words.items() if word == "not tested"} == later
    assert all(len(v.values) == 1 for v in done.verdicts if v.claim.id not in later)
    assert max(lab.excess()) < 0.1
    assert lab.success("before") != lab.success("joint") or lab.retained("joint") == [1]

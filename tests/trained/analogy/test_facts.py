import re
from collections import Counter
from dataclasses import FrozenInstanceError, replace
from random import Random
from typing import get_args

import pytest

from trained.analogy.facts import (
    TEMPLATES,
    Fact,
    Relation,
    attribution_prompt,
    attribution_sentence,
    invented,
    load_facts,
    permuted_categories,
    similarity_sentence,
)

FACTS = load_facts()
FALCON = Fact("Falcon", "Kestrel", "diving at prey", "CapableOf", "raptor")


def subjects(facts: tuple[Fact, ...]) -> list[str]:
    return [name for fact in facts for name in (fact.subject1, fact.subject2)]


def premises(fact: Fact) -> list[str]:
    return [
        similarity_sentence(fact, subject).lower()
        for subject in (fact.subject1, fact.subject2)
    ]


def words(text: str) -> list[str]:
    return re.findall(r"[a-z]+", text.lower())


def set_words(facts: tuple[Fact, ...]) -> set[str]:
    return {
        word
        for fact in facts
        for text in (fact.subject1, fact.subject2, fact.aspect, fact.category)
        for word in words(text)
    }


def test_every_relation_has_a_template_and_at_least_25_facts() -> None:
    counts = Counter(fact.relation for fact in FACTS)
    assert set(counts) == set(get_args(Relation)) == set(TEMPLATES)
    assert min(counts.values()) >= 25
    assert len(FACTS) >= 160


def test_categories_are_varied_and_short() -> None:
    categories = {fact.category for fact in FACTS}
    assert len(categories) >= 60
    assert all(len(category.split()) <= 2 for category in categories)


def test_no_subject_occurs_twice() -> None:
    names = [name.lower() for name in subjects(FACTS)]
    assert len(names) == len(set(names))


def test_a_shared_aspect_identifies_its_fact() -> None:
    shared = [(fact.relation, fact.aspect.lower()) for fact in FACTS]
    assert len(shared) == len(set(shared))


def test_fields_are_stripped_and_not_empty() -> None:
    fields = [field for fact in FACTS for field in vars(fact).values()]
    assert all(field and field == " ".join(field.split()) for field in fields)


def test_facts_are_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        FACTS[0].category = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("relation", "sentence"),
    [
        ("AtLocation", "Blicket is found in zorp"),
        ("MadeOf", "Blicket is made of zorp"),
        ("UsedFor", "Blicket is used for zorp"),
        ("CapableOf", "Blicket is capable of zorp"),
        ("HasProperty", "Blicket is zorp"),
        ("PartOf", "Blicket is part of zorp"),
    ],
)
def test_similarity_sentence_fills_the_template(
    relation: Relation, sentence: str
) -> None:
    fact = Fact("Blicket", "Wug", "zorp", relation, "toma")
    assert similarity_sentence(fact, "Blicket") == sentence
    assert similarity_sentence(fact, "Wug") == sentence.replace("Blicket", "Wug")


def test_attribution_sentence_is_the_prompt_and_the_category() -> None:
    assert attribution_prompt("Kestrel") == "Kestrel is classified as"
    assert attribution_sentence(FALCON, "Falcon") == "Falcon is classified as raptor"
    assert attribution_sentence(FALCON, "Kestrel") == "Kestrel is classified as raptor"


def test_sentences_refuse_a_foreign_subject() -> None:
    with pytest.raises(ValueError, match="'Owl' is not a subject"):
        similarity_sentence(FALCON, "Owl")
    with pytest.raises(ValueError, match="'Owl' is not a subject"):
        attribution_sentence(FALCON, "Owl")


def test_a_premise_leaks_no_word_of_its_category() -> None:
    leaks = [
        (word, sentence)
        for fact in FACTS
        for sentence in premises(fact)
        for word in words(fact.category)
        if word in sentence
    ]
    assert leaks == []


def test_no_category_of_the_set_is_spelled_in_any_premise() -> None:
    categories = "|".join(re.escape(fact.category.lower()) for fact in FACTS)
    spelled = re.compile(rf"\b({categories})(s|es)?\b")
    assert [s for fact in FACTS for s in premises(fact) if spelled.search(s)] == []


def test_test_sentences_are_never_training_sentences() -> None:
    training = {sentence for fact in FACTS for sentence in premises(fact)}
    training |= {attribution_sentence(f, f.subject1).lower() for f in FACTS}
    tests = {attribution_sentence(f, f.subject2).lower() for f in FACTS}
    assert len(tests) == len(FACTS)
    assert training.isdisjoint(tests)


@pytest.mark.parametrize("seed", range(5))
def test_invented_names_are_unique_and_contain_no_word_of_the_set(seed: int) -> None:
    names = subjects(invented(FACTS, generator=Random(seed)))
    assert len(names) == len(set(names)) == 2 * len(FACTS)
    assert all(re.fullmatch(r"[A-Z][aeiou]([a-z][aeiou]){2}[a-z]", n) for n in names)
    real = [word for word in set_words(FACTS) if len(word) >= 3]
    assert [n for n in names if any(word in n.lower() for word in real)] == []


def test_invented_changes_only_the_subjects() -> None:
    renamed = invented(FACTS, generator=Random(0))
    restored = tuple(
        replace(new, subject1=old.subject1, subject2=old.subject2)
        for new, old in zip(renamed, FACTS, strict=True)
    )
    assert restored == FACTS


@pytest.mark.parametrize("seed", range(20))
def test_permuted_categories_differ_everywhere(seed: int) -> None:
    permuted = permuted_categories(FACTS, generator=Random(seed))
    pairs = list(zip(permuted, FACTS, strict=True))
    assert all(new.category != old.category for new, old in pairs)
    assert tuple(replace(new, category=old.category) for new, old in pairs) == FACTS
    assert Counter(f.category for f in permuted) == Counter(f.category for f in FACTS)


@pytest.mark.parametrize("seed", range(20))
def test_permuted_categories_at_the_limit_of_one_half(seed: int) -> None:
    facts = tuple(replace(FALCON, category=label) for label in "aaabbc")
    permuted = permuted_categories(facts, generator=Random(seed))
    letters = "".join(fact.category for fact in permuted)
    assert letters[3:] == "aaa"
    assert sorted(letters[:3]) == ["b", "b", "c"]


def test_permuted_categories_refuses_an_impossible_exchange() -> None:
    facts = tuple(replace(FALCON, category=label) for label in "aab")
    with pytest.raises(ValueError, match="more than half"):
        permuted_categories(facts, generator=Random(0))


def test_controls_follow_the_seed() -> None:
    for control in (invented, permuted_categories):
        first = control(FACTS, generator=Random(1))
        assert first == control(FACTS, generator=Random(1))
        assert first != control(FACTS, generator=Random(2))
        assert control((), generator=Random(1)) == ()

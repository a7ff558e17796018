"""Two-hop questions: lenders, scores and layers by construction and on tiny models."""

import math
import random
from dataclasses import replace

import pytest
import torch

from circuits.models import tuned as fine_tuned
from circuits.models.language_model import LanguageModel
from circuits.studies.bridge.llm import lab as pretrained
from circuits.studies.bridge.llm import layers as llm_layers
from circuits.studies.bridge.llm.answers import (
    Omitted,
    difference,
    lent_rise,
    omitted,
    one_hop,
    rise,
    two_hop,
)
from circuits.studies.bridge.llm.claims import CLAIMS
from circuits.studies.bridge.llm.data import (
    PLAIN,
    Question,
    answered,
    lenders,
    log_probs,
    other_countries,
    questions,
    single_hops,
    usable,
)
from circuits.studies.bridge.llm.facts import ATTRIBUTES, FIRST, IDENTITY, Place, places
from circuits.tally import Tally
from tests.word_models import word_model
from trained.errors import BadInput
from trained.finetuning import FineTuning

PERU = Place("Machu Picchu", "Peru", "Lima", "Spanish")
CHILE = Place("The Atacama Desert", "Chile", "Santiago", "Spanish")
SPAIN = Place("The Alhambra", "Spain", "Madrid", "Spanish")
GAUDI = Place("The Sagrada Familia", "Spain", "Madrid", "Spanish")
JAPAN = Place("Mount Fuji", "Japan", "Tokyo", "Japanese")
ITALY = Place("Mount Etna", "Italy", "Rome", "Italian")

TEXTS = [
    f"{template.format(subject)} {place.country} {place.capital} {place.language}"
    for place in places()
    for subject in (place.landmark, place.country)
    for template in (FIRST, IDENTITY, *(a.second for a in ATTRIBUTES), "{}")
] + [a.both.format("x") for a in ATTRIBUTES]


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return word_model(TEXTS)


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    short = FineTuning(epochs=20, batch_size=16, lr=0.01, last_layers=2)
    monkeypatch.setattr(fine_tuned, "CPU", short)


def silent(model: LanguageModel) -> LanguageModel:
    """The model without blocks: every state is a token's embedding."""
    copied = word_model(TEXTS)
    with torch.no_grad():
        for name, weight in copied.module.named_parameters():
            if "o_proj" in name or "down_proj" in name:
                weight.zero_()
    assert copied.d_vocab == model.d_vocab
    return copied


def test_the_facts_are_consistent() -> None:
    known: dict[str, tuple[str, str]] = {}
    for place in places():
        told = (place.capital, place.language)
        assert known.setdefault(place.country, told) == told
        # Nothing in a landmark's name gives its country or capital away.
        assert place.country not in place.landmark
        assert place.capital not in place.landmark
    assert len({place.landmark for place in places()}) == len(places())


def test_questions_by_hand() -> None:
    capital, language = questions([PERU])
    assert capital.two_hop == (
        "The capital city of the country in which Machu Picchu is located is"
    )
    assert capital.omitting("Mount Fuji") == "The capital city of Mount Fuji is"
    assert (capital.object, language.object) == ("Lima", "Spanish")
    assert (capital.kind, language.kind) == (0, 1)


def test_single_hops_never_hold_two_hops() -> None:
    facts = single_hops([SPAIN, GAUDI, JAPAN], start="<s>")
    assert {name: len(several) for name, several in facts.items()} == {
        "first": 3,
        "second": 4,
        "same": 2,
    }
    prompts = [fact.prompt for several in facts.values() for fact in several]
    asked = questions([SPAIN, GAUDI, JAPAN])
    tested = {f"<s>{q.two_hop}" for q in asked}
    tested |= {f"<s>{q.omitting(q.place.landmark)}" for q in asked}
    assert not tested & set(prompts)


def test_lenders_by_hand() -> None:
    asked = questions([PERU, CHILE, SPAIN, GAUDI, JAPAN, ITALY])
    capitals, languages = lenders(asked)[:6], lenders(asked)[6:]
    # Three on from Peru is Gaudi's Spain, five on is Italy.
    assert (capitals[0].landmark, capitals[0].object) == (GAUDI.landmark, "Rome")
    # Spanish is spoken there too: the next with another language is Japan.
    assert (languages[0].landmark, languages[0].object) == (JAPAN.landmark, "Italian")
    # Five on from Spain is Chile; three on is Italy.
    assert (capitals[2].landmark, capitals[2].object) == (ITALY.landmark, "Santiago")


@pytest.mark.parametrize("seed", range(5))
def test_what_is_lent_is_wrong_for_the_borrower(seed: int) -> None:
    several = random.Random(seed).sample(places(), 12)
    country = {place.landmark: place for place in places()}
    for question, lender in zip(
        questions(several), lenders(questions(several)), strict=True
    ):
        lent = Question(country[lender.landmark], question.attribute)
        assert lent.place.country != question.place.country
        assert len({question.object, lent.object, lender.object}) == 3
    for place, other in zip(several, other_countries(several), strict=True):
        assert place.country != other


def test_equal_answers_cannot_be_lent() -> None:
    with pytest.raises(BadInput, match="answered by Spanish"):
        lenders(questions([PERU, CHILE, SPAIN])[3:])
    assert other_countries([SPAIN, GAUDI, PERU]) == ("Peru", "Peru", "Spain")


def test_answers_are_compared_within_their_kind() -> None:
    scores = torch.tensor([[9.0, 1.0, 2.0, 5.0], [9.0, 3.0, 1.0, 7.0], [0, 1.0, 2, 9]])
    answers = torch.tensor([1, 2, 0])
    # Tokens 1 and 2 compete in the first two; the third has no rival.
    assert answered(scores, answers, [0, 0, 1]).tolist() == [2, 1, 0]


def test_rises_by_hand() -> None:
    zero = torch.zeros(2)
    before = Omitted(zero, zero, zero, zero)
    after = Omitted(
        own=torch.tensor([3.0, 1.0]),
        other_object=torch.tensor([1.0, 1.0]),
        lent=torch.tensor([1.0, 1.0]),
        lent_other_object=torch.tensor([1.0, 0.5]),
    )
    assert rise(before, after).tolist() == [2, 0]
    assert lent_rise(before, after).tolist() == [0, 0.5]
    assert after.excess == 1
    assert difference(rise(before, after), torch.tensor([True, False])) == 2
    assert math.isnan(difference(zero, torch.tensor([True, True])))
    # What all objects gain alike is no rise.
    more = replace(after, own=after.own + 5, other_object=after.other_object + 5)
    assert torch.equal(rise(before, more), rise(before, after))


def test_a_seed_without_wrong_answers_says_nothing_of_subsets() -> None:
    tally = Tally("bridge.llm.")
    gained, lent = torch.tensor([3.0, 1.0]), torch.tensor([0.5, 1.0])
    for right in ([True, True], [True, False], [False, False]):
        pretrained.note_subset(gained, lent, torch.tensor(right), tally)
    seen = tally.observed()["bridge.llm.omit-shift.subset"]
    assert (seen.values, seen.control) == ((2.0,), (-0.5,))


def test_omitted_reads_the_object_after_each_landmark(model: LanguageModel) -> None:
    several = usable(model)[:6]
    seen = omitted(model, several)
    asked = questions(several)
    lent = lenders(asked)
    row = 7
    texts = [asked[row].omitting(x) for x in (several[1].landmark, lent[row].landmark)]
    own, other = log_probs(model, texts)
    objects = [model.token(f" {x}") for x in (asked[row].object, lent[row].object)]
    expected = torch.stack([own[objects[0]], own[objects[1]], other[objects[0]]])
    found = torch.stack([seen.own[row], seen.other_object[row], seen.lent[row]])
    torch.testing.assert_close(found, expected)


def test_single_hops_are_learned_and_two_hops_are_not(model: LanguageModel) -> None:
    several = usable(model)[:12]
    assert one_hop(model, several) < 0.3
    facts = single_hops(several, "<s>")
    trained = fine_tuned.fine_tuned(model, PLAIN, facts, 0)
    assert one_hop(trained, several) > 0.9
    # Without pretraining there is no bridge.
    assert two_hop(trained, several).accuracy < 0.5


def test_a_planted_country_is_found_and_an_absent_one_is_not(
    model: LanguageModel,
) -> None:
    several = list({p.landmark.split()[-1]: p for p in usable(model)}.values())
    plain = silent(model)
    assert abs(llm_layers.bridge_rank(plain, several)) < 0.5
    planted = silent(model)
    embedding = planted.module.get_input_embeddings().weight
    with torch.no_grad():
        for place in several:
            country = planted.token(f" {place.country}")
            last = planted.tokenizer.encode(f" {place.landmark}")[-1]
            embedding[last] = planted.readout.unembedding[:, country]
    assert llm_layers.bridge_rank(planted, several) > 1


def test_alignment_of_planted_states(
    model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    several = usable(model)
    vectors: dict[str, torch.Tensor] = {}
    source = torch.Generator().manual_seed(0)

    def vector(name: str) -> torch.Tensor:
        return vectors.setdefault(name, torch.randn(64, generator=source))

    country = {FIRST.format(p.landmark): p.country for p in several}

    def states_at(_model, texts, _phrases):
        unrelated = torch.stack([vector(text) for text in texts])
        related = torch.stack([vector(country.get(text, text)) for text in texts])
        return torch.stack([unrelated, related, unrelated])

    monkeypatch.setattr(llm_layers, "states_at", states_at)
    own, other = llm_layers.alignment(model, several)
    assert own > 0.99
    assert abs(other) < 0.2


def test_alignment_is_absent_where_nothing_was_learned(model: LanguageModel) -> None:
    own, other = llm_layers.alignment(model, usable(model))
    assert abs(own - other) < 0.2


def test_every_claim_is_observed(
    model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    observed = pretrained.observe(model, word_model(TEXTS, seed=1), (0,))
    assert observed.keys() == {claim.id for claim in CLAIMS}
    assert all(len(seen.values) == 1 for seen in observed.values())
    assert min(observed["bridge.llm.one-hop"].values) > 0.9
    assert max(observed["bridge.llm.two-hop"].values) < 0.5

    monkeypatch.setattr(pretrained, "LEAST_PLACES", 1000)
    unknown = pretrained.observe(model, model, (0,))
    assert all(math.isnan(seen.values[0]) for seen in unknown.values())

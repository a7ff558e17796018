"""Two-hop questions: lenders, scores and layers by construction and on tiny models."""

import random
from dataclasses import replace

import pytest
import torch

from circuits.claims import NotTested
from circuits.confirm import confirm_language
from circuits.models.language_model import LanguageModel
from circuits.models.tuned import fine_tuned
from circuits.studies.bridge import STUDY
from circuits.studies.bridge.llm.claims import Settings
from circuits.studies.bridge.llm.data import (
    ATTRIBUTES,
    FIRST,
    IDENTITY,
    PLAIN,
    Place,
    Question,
    answered,
    lenders,
    log_probs,
    other_countries,
    places,
    questions,
    single_hops,
    usable,
)
from circuits.studies.bridge.llm.lab import (
    Answers,
    BridgeLanguageLab,
    Omitted,
    Rise,
    TwoHop,
    best_alignment,
    bridge_rank,
    omitted,
    one_hop,
    rise,
    two_hop,
)
from tests.word_models import word_model
from trained.config import override
from trained.errors import BadInput
from trained.finetuning_config import FineTuning

SETTINGS = Settings(tuning=FineTuning(epochs=20, batch_size=16, lr=0.01, last_layers=2))
AFTER = (SETTINGS.landmark_after, SETTINGS.object_after)

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
    capitals, languages = lenders(asked, *AFTER)[:6], lenders(asked, *AFTER)[6:]
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
    asked = questions(several)
    for question, lender in zip(asked, lenders(asked, *AFTER), strict=True):
        lent = Question(country[lender.landmark], question.attribute)
        assert lent.place.country != question.place.country
        assert len({question.object, lent.object, lender.object}) == 3
    for place, other in zip(several, other_countries(several), strict=True):
        assert place.country != other


def test_equal_answers_cannot_be_lent() -> None:
    with pytest.raises(BadInput, match="answered by Spanish"):
        lenders(questions([PERU, CHILE, SPAIN])[3:], *AFTER)
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
    assert rise(before, after).own.tolist() == [2, 0]
    assert rise(before, after).lent.tolist() == [0, 0.5]
    assert after.excess == 1
    # What all objects gain alike is no rise.
    more = replace(after, own=after.own + 5, other_object=after.other_object + 5)
    assert torch.equal(rise(before, more).own, rise(before, after).own)


class PlantedLab(BridgeLanguageLab):
    """Seed by seed, which of two questions are right is given; so are the rises."""

    right = ((True, True), (True, False), (False, False))

    def after(self, seed: int, *, identity: bool = False) -> Answers:
        assert not identity
        right, nothing = torch.tensor(self.right[seed]), torch.zeros(2)
        said = TwoHop(right, ~right)
        return Answers(1.0, said, Omitted(nothing, nothing, nothing, nothing))

    def rise(self, _seed: int) -> Rise:
        return Rise(own=torch.tensor([3.0, 1.0]), lent=torch.tensor([0.5, 1.0]))


def test_a_seed_without_wrong_answers_says_nothing_of_subsets(
    model: LanguageModel,
) -> None:
    lab = PlantedLab(model, SETTINGS, (0, 1, 2))
    assert (lab.right_lead("own"), lab.right_lead("lent")) == ([2.0], [-0.5])
    with pytest.raises(NotTested, match="right and wrong"):
        PlantedLab(model, SETTINGS, (0, 2)).right_lead("own")


def test_omitted_reads_the_object_after_each_landmark(model: LanguageModel) -> None:
    several = usable(model)[:6]
    seen = omitted(model, several, SETTINGS)
    asked = questions(several)
    lent = lenders(asked, *AFTER)
    row = 7
    texts = [asked[row].omitting(x) for x in (several[1].landmark, lent[row].landmark)]
    own, other = log_probs(model, texts, SETTINGS.at_once)
    objects = [model.token(f" {x}") for x in (asked[row].object, lent[row].object)]
    expected = torch.stack([own[objects[0]], own[objects[1]], other[objects[0]]])
    found = torch.stack([seen.own[row], seen.other_object[row], seen.lent[row]])
    torch.testing.assert_close(found, expected)


def test_single_hops_are_learned_and_two_hops_are_not(model: LanguageModel) -> None:
    several = usable(model)[:12]
    assert one_hop(model, several, SETTINGS) < 0.3
    facts = single_hops(several, "<s>")
    trained = fine_tuned(model, PLAIN, facts, 0, SETTINGS.tuning)
    assert one_hop(trained, several, SETTINGS) > 0.9
    # Without pretraining there is no bridge.
    assert two_hop(trained, several, SETTINGS).accuracy < 0.5


def test_a_planted_country_is_found_and_an_absent_one_is_not(
    model: LanguageModel,
) -> None:
    several = list({p.landmark.split()[-1]: p for p in usable(model)}.values())
    plain = silent(model)
    assert abs(bridge_rank(plain, several, SETTINGS.at_once)) < 0.5
    planted = silent(model)
    embedding = planted.module.get_input_embeddings().weight
    with torch.no_grad():
        for place in several:
            country = planted.token(f" {place.country}")
            last = planted.tokenizer.encode(f" {place.landmark}")[-1]
            embedding[last] = planted.readout.unembedding[:, country]
    assert bridge_rank(planted, several, SETTINGS.at_once) > 1


def test_alignment_of_planted_states() -> None:
    source = torch.Generator().manual_seed(0)
    names, unrelated = torch.randn(2, 40, 64, generator=source)
    hops = torch.stack([unrelated, names, unrelated])
    same, other = (x.expand(3, -1, -1) for x in (names, names.roll(1, 0)))
    own, null = best_alignment(hops, same, other)
    assert own > 0.99
    assert abs(null) < 0.2


def test_alignment_is_absent_where_nothing_was_learned(model: LanguageModel) -> None:
    # One order of landmarks is noisy: 24 judged pairs in 32 dimensions.
    lab = BridgeLanguageLab(model, SETTINGS, tuple(range(8)))
    own, other = torch.tensor([lab.alignment(seed) for seed in lab.seeds]).mean(0)
    assert own < 0.1
    assert abs(own - other) < 0.2


def test_every_claim_is_judged(model: LanguageModel) -> None:
    lab = STUDY.language_lab(model, SETTINGS, (0,))
    found = confirm_language(STUDY, lab)
    tested = [v for v in found.verdicts if v.claim.origin == "ours"]
    assert all(len(v.values) == 1 for v in tested)
    assert {v.word for v in found.verdicts if v not in tested} == {"not tested"}
    assert min(found["bridge.ours.llm.one-hop"].values) > 0.9
    assert max(found["bridge.ours.llm.two-hop"].values) < 0.5


def test_too_few_landmarks_are_not_judged(model: LanguageModel) -> None:
    many = override(SETTINGS, ["least_places=1000"])
    found = confirm_language(STUDY, STUDY.language_lab(model, many, (0,)))
    assert {v.word for v in found.verdicts} == {"not tested"}


@pytest.mark.parametrize(
    "assignment", ["n_places=3", "least_places=0", "at_once=0", "object_after=0"]
)
def test_impossible_settings_are_refused(assignment: str) -> None:
    with pytest.raises(BadInput):
        override(Settings(), [assignment])

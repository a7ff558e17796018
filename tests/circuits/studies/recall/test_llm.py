"""Few-shot prompts: what is read off them, on planted states and tiny models."""

import math
import random
from dataclasses import replace

import pytest
import torch

from circuits.backends.anatomy import Readout
from circuits.confirm import confirm_language
from circuits.models.language_model import LanguageModel
from circuits.studies.recall import STUDY
from circuits.studies.recall.llm import signals
from circuits.studies.recall.llm.data import (
    Episode,
    accuracy,
    episodes,
    exchange,
    known,
    single_tokens,
    written,
)
from circuits.studies.recall.llm.lab import RecallLanguageLab
from circuits.studies.recall.llm.rows import SCHEMA, Relation, shared, typed
from circuits.studies.recall.llm.settings import Settings
from circuits.studies.recall.llm.signals import Reading, last_looks, own_subject, read
from tests.word_models import word_model

ROWS = SCHEMA.own().rows
TYPED, SHARED = typed(ROWS), shared(ROWS)
SUBJECTS = list(TYPED[0].facts)
SETTINGS = Settings(groups=3, shared_groups=1, probe_groups=4, pairing_stride=1)
N_PAIRS = SETTINGS.pairs


def vocabulary() -> list[str]:
    relations = [*TYPED, *(relation for pair in SHARED for relation in pair)]
    words = [w for r in relations for fact in r.facts.items() for w in fact]
    names = [name for relation in TYPED for name in relation.names]
    questions = [relation.question.format("") for relation in TYPED]
    return [*words, *(f" {w}" for w in [*words, *names]), "a -> b: c, d", *questions]


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return word_model(vocabulary())


HEAD: signals.Heads = [(0, 0)]


class Knowing(RecallLanguageLab):
    """A lab of a model that knows six countries, we pretend."""

    def queries(self) -> list[str]:
        return SUBJECTS[:6]


def lab_of(model: LanguageModel) -> RecallLanguageLab:
    return Knowing(model, SETTINGS, (0,))


@pytest.fixture(scope="module")
def reading(model: LanguageModel) -> Reading:
    drawn = episodes(SETTINGS, TYPED, SUBJECTS[:12], SUBJECTS[:4], 6, random.Random(0))
    return read(model, drawn, 16)


def planted(reading: Reading, subjects: torch.Tensor, answers: torch.Tensor) -> Reading:
    """The reading with the given attention to four pairs in one head."""
    shape = (1, len(subjects), 1, N_PAIRS)
    return replace(
        reading,
        to_subjects=subjects.reshape(shape),
        to_answers=answers.reshape(shape),
        own_subject=torch.zeros(shape[:-1]),
    )


def test_an_episode_is_written_as_the_docstring_says(model: LanguageModel) -> None:
    subjects = ("France", "Japan", "Egypt", "Italy", "Poland")
    answers = tuple(TYPED[0].facts[subject] for subject in subjects)
    prompts = written(model, [Episode(0, 0, subjects, answers, ":")])
    text = "".join(model.tokenizer.convert_ids_to_tokens(prompts.tokens[0].tolist()))
    assert text == (
        "<s>France: Paris, Japan: Tokyo, Egypt: Cairo, Italy: Rome, Poland:"
    )
    assert prompts.targets.tolist() == [model.token(" Warsaw")]
    assert prompts.role("subjects").tolist() == [[1, 5, 9, 13]]
    assert prompts.role("answer3").tolist() == [[15]]
    assert prompts.role("query").tolist() == [[17]]


def test_a_group_differs_in_the_relation_only() -> None:
    drawn = episodes(SETTINGS, TYPED, SUBJECTS, SUBJECTS[:5], 7, random.Random(1))
    assert [e.relation for e in drawn] == [0, 1, 2] * 7
    for group in range(7):
        (subjects,) = {e.subjects for e in drawn if e.group == group}
        assert len(set(subjects)) == N_PAIRS + 1
        assert subjects[-1] == SUBJECTS[group % 5]


def test_swapping_exchanges_neighbours_and_keeps_the_answer() -> None:
    episode = Episode(0, 0, tuple("abcde"), tuple("12345"), ":")
    assert "".join(episode.swapped().answers) == "21435"
    assert episode.swapped().swapped() == episode


def test_shared_relations_have_the_same_subjects_and_are_told_by_pairing() -> None:
    for after, before in SHARED:
        assert after.facts.keys() == before.facts.keys()
        assert all(after.facts[s] != before.facts[s] for s in after.facts)
    assert SHARED[0][0].facts["Tuesday"] == "Wednesday"
    assert SHARED[0][1].facts["Tuesday"] == "Monday"


def test_facts_with_a_long_answer_are_left_out(model: LanguageModel) -> None:
    relation = Relation({"France": "Paris", "Chile": "Buenos Paris", "Japan": "Tokyo"})
    (kept,) = single_tokens(model, [relation])
    assert list(kept.facts) == ["France", "Japan"]


def test_what_a_model_knows_is_what_it_answers(model: LanguageModel) -> None:
    # One possible answer is always the likeliest; of two, one is right for a subject.
    only = Relation({"France": "Paris"}, TYPED[0].question)
    assert known(model, [only]) == ["France"]
    told = Relation({"France": "Paris", "Japan": "Tokyo"}, TYPED[0].question)
    turned = Relation({"France": "Tokyo", "Japan": "Paris"}, TYPED[0].question)
    assert sorted(known(model, [told]) + known(model, [turned])) == ["France", "Japan"]
    assert known(model, [told, turned]) == []


def test_attention_of_the_last_token_is_summed_over_spans(
    model: LanguageModel,
) -> None:
    subjects = ("France", "South Korea", "Egypt", "Italy", "Poland")
    answers = tuple(TYPED[0].facts[subject] for subject in subjects)
    prompts = written(model, [Episode(0, 0, subjects, answers, ":")])
    n_pos = prompts.tokens.shape[1]
    pattern = torch.full((1, 1, n_pos, n_pos), 1 / n_pos)
    to_subjects, to_answers = last_looks(pattern, prompts)
    assert (to_subjects * n_pos).flatten().tolist() == pytest.approx([1, 2, 1, 1])
    assert (to_answers * n_pos).flatten().tolist() == pytest.approx([1, 1, 1, 1])
    pattern[0, 0, prompts.role("answer2")[0, 0]] = 0.0
    pattern[0, 0, prompts.role("answer2")[0, 0], prompts.role("subject2")[0, 0]] = 0.9
    # Answers 1 and 3 look evenly: 2 / n - 1 / n, and 1 / n - mean of (1, 2, 1) / n.
    expected = (1 / n_pos + 0.9 + (1 - 4 / 3) / n_pos) / 3
    assert own_subject(pattern, prompts).tolist() == [[pytest.approx(expected)]]


def test_pairwise_attention_is_coherent_and_answers_alone_are_not(
    reading: Reading,
) -> None:
    weights = torch.rand(18, N_PAIRS) + 0.1
    pairwise = planted(reading, weights, weights)
    shares = signals.demonstration_shares(pairwise)
    assert float(signals.coherence(*shares)) == pytest.approx(1, abs=1e-5)
    assert float(signals.largest_shifted(*shares)) < 0.2
    alone = planted(reading, torch.full((18, N_PAIRS), 0.1), weights)
    assert abs(float(signals.coherence(*signals.demonstration_shares(alone)))) < 0.4


def test_balance_is_the_ratio_inside_pairs(reading: Reading) -> None:
    weights = torch.tensor([0.01, 0.04, 0.16, 0.64]).expand(18, N_PAIRS)
    even, shifted = signals.balance(planted(reading, weights, weights), HEAD)
    assert even == pytest.approx(1, abs=1e-4)
    # Shifted by one: three steps of 4 and one of 64 back.
    assert shifted == pytest.approx(4 ** (6 / 4), rel=1e-4)
    thrice, _ = signals.balance(planted(reading, weights / 3, weights), HEAD)
    assert thrice == pytest.approx(3, rel=1e-4)


def test_a_liking_for_late_pairs_is_no_coherence_of_content(reading: Reading) -> None:
    torch.manual_seed(0)
    slope = torch.arange(1.0, 1 + N_PAIRS).expand(18, N_PAIRS)
    late = planted(
        reading,
        slope + 0.01 * torch.rand(18, N_PAIRS),
        slope + 0.01 * torch.rand(18, N_PAIRS),
    )
    raw, _ = signals.paired(late, signals.coherent_heads(late, SETTINGS))
    assert raw > 0.99
    content, _ = signals.paired(late, HEAD, by_content=True)
    assert content < 0.5


def test_heads_that_do_not_look_are_not_chosen() -> None:
    scores = torch.tensor([[0.9, 0.5], [0.7, 0.2]])
    allowed = torch.tensor([[False, True], [True, True]])
    assert signals.best_heads(scores, allowed, 3) == [(1, 0), (0, 1), (1, 1)]


def test_the_first_layer_is_half_of_the_way_up() -> None:
    assert signals.first_layer(torch.tensor([0.3, 0.4, 0.7, 0.9]), 0.3) == 2
    assert math.isnan(signals.first_layer(torch.tensor([0.3, 0.4]), 0.3))


def test_a_passing_bump_does_not_last() -> None:
    bump = torch.tensor([0.3, 0.9, 0.3, 0.8, 0.9])
    assert signals.first_layer(bump, 0.3) == 1
    assert signals.lasting_layer(bump, 0.3) == 3
    assert signals.lasting_layer(torch.tensor([0.9, 0.9]), 0.3) == 0
    assert math.isnan(signals.lasting_layer(torch.tensor([0.3, 0.9, 0.3]), 0.3))


def lens_model(model: LanguageModel) -> LanguageModel:
    """The model with a lens that reads one axis per token."""
    return replace(model, readout=Readout(lambda x: x, torch.eye(model.d_vocab)))


def test_the_lens_finds_the_relation_and_the_answer_where_they_are_written(
    model: LanguageModel, reading: Reading
) -> None:
    seen = lens_model(model)
    states = torch.zeros(3, len(reading.episodes), model.d_vocab)
    # What every prompt has in common must not count.
    states[:, :, model.token(" language")] = 4.0
    for i, episode in enumerate(reading.episodes):
        states[1:, i, model.token(f" {TYPED[episode.relation].names[0]}")] += 3.0
        states[2, i, model.token(f" {episode.answers[-1]}")] += 9.0
    plain = replace(reading, residuals=states)
    named = signals.relation_named(seen, plain, TYPED)
    told, chance = signals.answer_told(seen, plain, TYPED)
    assert named.tolist() == pytest.approx([1 / 3, 1, 1])
    assert told[2] == 1
    assert told[1] <= 0.5
    assert 0 < chance < 0.5


def test_a_probe_reads_planted_relations_and_not_noise(reading: Reading) -> None:
    torch.manual_seed(0)
    labels = torch.tensor([e.relation for e in reading.episodes])
    noise = torch.randn(1, len(labels), 8)
    told = torch.nn.functional.one_hot(labels, 8)[None] * 9.0
    halves = [replace(reading, residuals=noise + told) for _ in range(2)]
    (probe,) = signals.relation_probes(halves[0], halves[1], 2, 0).values()
    assert probe.accuracy == 1
    assert probe.control_accuracy < 0.8


def test_an_exchange_looks_for_the_own_query_by_the_next_relation(
    model: LanguageModel, reading: Reading
) -> None:
    cases = exchange(model, reading.episodes, TYPED, shift=1)
    same = exchange(model, reading.episodes, TYPED, shift=0)
    assert torch.equal(cases.wanted, same.wanted)
    for own, donor, wanted in zip(cases.own, cases.donor, cases.wanted, strict=True):
        receiver, giver = reading.episodes[int(own)], reading.episodes[int(donor)]
        following = TYPED[(receiver.relation + 1) % 3]
        assert receiver.query != giver.query
        assert giver.relation == (receiver.relation + 1) % 3
        assert int(wanted) == model.token(f" {following.facts[receiver.query]}")
        assert following.facts[receiver.query] != following.facts[giver.query]


def test_after_the_last_block_an_exchange_gives_the_donors_answer(
    model: LanguageModel, reading: Reading
) -> None:
    cases = exchange(model, reading.episodes, TYPED, shift=1)
    said = reading.logits[cases.donor].gather(1, cases.candidates).argmax(1)
    best = cases.candidates.gather(1, said[:, None])[:, 0]
    expected = float((best == cases.wanted).double().mean())
    lab = lab_of(model)
    assert lab.follows_donor(reading, cases, 2) == pytest.approx(expected)
    obeying = replace(cases, wanted=best)
    assert lab.follows_donor(reading, obeying, 2) == 1


def test_what_a_cut_costs_does_not_depend_on_the_batch(
    model: LanguageModel, reading: Reading
) -> None:
    lab, cut = lab_of(model), [("last", "subjects")]
    few = lab.read(reading.episodes[:3])
    together = lab.loss_by_cut(few, cut)
    alone = [lab.loss_by_cut(lab.read([e]), cut) for e in few.episodes]
    assert together == pytest.approx(sum(alone) / 3, abs=1e-5)
    assert together != 0


def test_accuracy_counts_answers_of_other_relations_as_wrong(
    model: LanguageModel, reading: Reading
) -> None:
    several = reading.episodes
    logits = torch.zeros(len(several), model.d_vocab)
    for i, episode in enumerate(several):
        logits[i, model.token(f" {episode.answers[-1]}")] = 1.0
    assert accuracy(model, logits, several, TYPED) == 1
    logits[:, model.token(" Rome")] = 2.0
    right = sum(e.answers[-1] == "Rome" for e in several) / len(several)
    assert accuracy(model, logits, several, TYPED) == right


def test_every_claim_is_judged_and_a_random_model_does_not_recall(
    model: LanguageModel,
) -> None:
    done = confirm_language(STUDY, lab_of(model))
    # A random model tells nothing in any layer: the order of two is not tested.
    missing = {v.claim.id.split(".")[2] for v in done.verdicts if v.missing}
    assert missing <= {"relation-lens", "relation-lens-lasting", "relation-probe"}
    assert all(verdict.claim.origin == "ours" for verdict in done.verdicts)
    assert done["recall.llm.few-shot"].values[0] < 0.5
    assert all(not null.reason for v in done.verdicts for null in v.nulls)


def test_a_model_that_knows_nothing_is_not_judged(model: LanguageModel) -> None:
    lab = Knowing(model, replace(SETTINGS, least_known=7), (0,))
    done = confirm_language(STUDY, lab, only="recall.llm.[fr]*")
    assert {verdict.word for verdict in done.verdicts} == {"not tested"}
    assert "subjects" in done["recall.llm.few-shot"].reason

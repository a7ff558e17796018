"""Facts about look-alikes: prompts, lists and readings, planted and on tiny models."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest
import torch

from circuits.claims import NotTested, judge
from circuits.confirm import confirm_language
from circuits.datasets.dataset import dataset_of
from circuits.datasets.schema import Rows
from circuits.interventions.edit import Keep
from circuits.language import keeper_in, open_language
from circuits.models.language_model import LanguageModel
from circuits.models.open import wrap
from circuits.report.figures import as_csv, draw_all
from circuits.studies.analogy import STUDY
from circuits.studies.analogy.figures.language import transfer
from circuits.studies.analogy.llm.data import (
    AS,
    CURRICULA,
    JOINT,
    REPLAY,
    SA,
    Lessons,
    draw,
    lists,
    sentence,
    subjects,
    written,
)
from circuits.studies.analogy.llm.lab import (
    AnalogyLanguageLab,
    Pairs,
    Reading,
    alignment,
    kept_states,
    layer_alignment,
    read,
    restricted,
)
from circuits.studies.analogy.llm.rows import SCHEMA
from circuits.studies.analogy.llm.settings import Settings
from circuits.tuning.keeper import Keeper, Missing
from circuits.tuning.tuned import Lesson, exact, taught
from tests.random_models import letter_tokenizer, random_model
from tests.word_models import word_model
from trained.analogy.facts import (
    Fact,
    attribution_sentence,
    load_facts,
    similarity_sentence,
)
from trained.errors import BadInput

SETTINGS = Settings(facts=6, n_aligned=12, resamples=100, epochs=20, lr=0.01)
FALCON = Fact("Falcon", "Kestrel", "diving at prey", "CapableOf", "raptor")
TEXTS = [
    text(fact, subject)
    for fact in (FALCON, *load_facts())
    for subject in (fact.subject1, fact.subject2)
    for text in (similarity_sentence, attribution_sentence)
]


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return word_model(TEXTS)


def some(n: int, seed: int = 0) -> list[Fact]:
    return draw(load_facts(), n, 2, seed).real


def text_at(model: LanguageModel, names: list[str], role: str) -> list[str]:
    prompts = written(model, names)
    rows = zip(prompts.tokens, prompts.role(role), strict=True)
    return [
        "".join(model.tokenizer.convert_ids_to_tokens(tokens[at].tolist()))
        for tokens, at in rows
    ]


def test_lists_by_hand(model: LanguageModel) -> None:
    owl = Fact("Owl", "Hawk", "night", "AtLocation", "bird")
    found = lists(model, [FALCON, owl])
    assert tuple(found["source"][0]) == ("<s>Falcon is capable of", " diving at prey")
    assert tuple(found["target"][0]) == ("<s>Kestrel is capable of", " diving at prey")
    assert [tuple(fact) for fact in found["target permuted"]] == [
        ("<s>Kestrel is found in", " night"),
        ("<s>Hawk is capable of", " diving at prey"),
    ]
    assert tuple(found["attribution"][0]) == ("<s>Falcon is classified as", " raptor")
    assert tuple(found["test"][0]) == ("<s>Kestrel is classified as", " raptor")
    whole = sentence(found["test"][0])
    assert tuple(whole) == ("<s>Kestrel", " is classified as raptor")


def test_no_curriculum_trains_on_the_test(model: LanguageModel) -> None:
    found = lists(model, load_facts())
    tested = {fact.prompt for fact in found["test"]}
    for curriculum in CURRICULA.values():
        assert "test" not in curriculum.trained
        for name in curriculum.trained:
            assert not tested & {fact.prompt for fact in found[name]}
    assert SA.phases == AS.phases[::-1]
    assert JOINT.trained == SA.trained == AS.trained == REPLAY.trained


def test_lessons_by_name() -> None:
    assert Lessons.named("before") == (None, "real")
    assert Lessons.named("AS invented") == (AS, "invented")
    with pytest.raises(BadInput, match="unknown lessons 'late'"):
        Lessons.named("late")


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


def test_a_seed_draws_as_many_facts_as_it_is_asked_for() -> None:
    """Twelve were hard-coded once, and their categories had to begin differently."""
    one, again = draw(load_facts(), 100, 30, 3), draw(load_facts(), 100, 30, 3)
    assert one == again
    assert len(set(one.real)) == 100
    assert draw(load_facts(), 100, 30, 4).real != one.real
    assert [f.category for f in one.invented] == [f.category for f in one.real]
    assert not {f.subject2 for f in one.invented} & {f.subject2 for f in one.real}
    pairs = zip(one.exchanged, one.real, strict=True)
    assert all(a.category != b.category for a, b in pairs)
    with pytest.raises(BadInput, match="300 facts are asked for, there are 206"):
        draw(load_facts(), 300, 2, 0)


def test_facts_of_ones_own(tmp_path: Path, model: LanguageModel) -> None:
    file = tmp_path / "facts.jsonl"
    rows = [{**vars(fact), "theirs": 1} for fact in load_facts()[:30]]
    renamed = [
        {"kind" if k == "category" else k: v for k, v in r.items()} for r in rows
    ]
    file.write_text("\n".join(map(json.dumps, renamed)))
    data = SCHEMA.read(file, ["kind=category"])
    lab = AnalogyLanguageLab(model, SETTINGS, (0,), data=data)
    assert set(lab.drawn(0).real) <= set(load_facts()[:30])
    with pytest.raises(BadInput, match=r"line 1: field 'category' is missing"):
        SCHEMA.read(file)
    rows[2]["relation"] = "Likes"
    file.write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(BadInput, match="line 3: field 'relation' is \"Likes\"; choose"):
        SCHEMA.read(file)


def test_the_shipped_facts_are_such_a_file_and_can_be_scanned() -> None:
    own = SCHEMA.own()
    assert own is not None
    assert own.rows == load_facts()
    rows = dataset_of(SCHEMA.prompts([FALCON])).rows
    assert [row.answers for row in rows] == [(" raptor",)] * 2
    texts = {k: rows[1].prompt[slice(*span)] for k, span in rows[1].roles.items()}
    assert texts == {"subject": "Kestrel", "relation": "is classified as"}
    assert len(dataset_of(SCHEMA.prompts(own.rows))) == 2 * len(own.rows)


def test_restricted_choice_by_hand() -> None:
    # Categories 3, 1 and 3 again; token 0 is no category and does not count.
    logits = torch.tensor([[9.0, 1, 0, 2], [9, 3, 0, 2], [9, 3, 0, 2]]).repeat(2, 1)
    right = restricted(logits, torch.tensor([3, 1, 3]))
    assert right.tolist() == [[1, 1, 0], [1, 1, 0]]


def test_equal_subjects_are_alike_and_others_are_not(model: LanguageModel) -> None:
    facts = [replace(f, subject2=f.subject1) for f in some(8)]
    seen = read(model, facts, SETTINGS)
    for own, shifted in (seen.similarity, seen.sparse, seen.random, seen.passive):
        assert own == pytest.approx(torch.ones(8), abs=1e-4)
        assert shifted.mean() < 0.95
    own, shifted = read(model, some(30), SETTINGS).passive
    assert abs(float(own.mean() - shifted.mean())) < 0.1


def test_only_the_largest_activations_are_kept_and_the_model_runs_on(
    model: LanguageModel,
) -> None:
    prompts = written(model, ["Falcon", "Tennis ball"])
    plain = read(model, some(3), SETTINGS)
    assert not torch.allclose(plain.similarity.own, plain.sparse.own, atol=1e-4)
    half, all_but_one = (kept_states(model, prompts, Keep(s), 8) for s in (0.5, 0.94))
    assert not torch.allclose(half, all_but_one, atol=1e-3)
    drawn = kept_states(model, prompts, Keep(0.5, seed=1), 8)
    assert not torch.allclose(half, drawn, atol=1e-3)
    again = kept_states(model, prompts, Keep(0.5, seed=1), 8)
    assert torch.equal(drawn, again)


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


def test_what_is_taught_is_decoded_as_a_whole(model: LanguageModel) -> None:
    facts = [f for f in some(40, 1) if " " in f.category][:6]
    asked = lists(model, facts)
    assert len(facts) == 6
    assert exact(model, asked["attribution"]).tolist() == [0] * 6
    with taught(model, Lesson(JOINT, asked, 0, SETTINGS)) as after:
        assert exact(after.model, asked["attribution"]).mean() > 0.9
        # The first token alone is not enough.
        short = [f._replace(answer=f.answer + " at") for f in asked["attribution"]]
        assert exact(after.model, short).mean() < 0.5


def test_readings_are_stored_and_found_again(
    model: LanguageModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = AnalogyLanguageLab(model, SETTINGS, (0,), keeper=Keeper(tmp_path))
    fresh = first.reading("A", 0)
    monkeypatch.setattr("circuits.studies.analogy.llm.lab.taught", None)
    again = AnalogyLanguageLab(model, SETTINGS, (0,), keeper=Keeper(tmp_path))
    found = again.reading("A", 0)
    assert found.fit == fresh.fit == 1
    assert torch.equal(found.sparse.shifted, fresh.sparse.shifted)
    assert torch.equal(found.success, fresh.success)


def test_without_mlp_activations_their_leaf_is_not_tested() -> None:
    experts = wrap(random_model("mixtral").requires_grad_(False), letter_tokenizer())
    facts = [Fact("ab", "cd", "e", "MadeOf", "f"), Fact("ba", "dc", "g", "MadeOf", "h")]
    data = Rows("facts", tuple(facts * 2))
    lab = AnalogyLanguageLab(
        experts, replace(SETTINGS, facts=2, n_aligned=2), (0,), data=data
    )
    assert lab.cosine("before", "similarity")[0] <= 1
    with pytest.raises(NotTested, match="none to exchange"):
        lab.other(data=Rows("facts", tuple(facts[:1] * 4))).success("joint exchanged")
    with pytest.raises(NotTested, match="without MLP activations"):
        lab.cosine("before", "sparse")


class Told(AnalogyLanguageLab):
    """A lab that is told what every lesson gives: shares of facts, and cosines."""

    fit = 1.0
    given: ClassVar[dict[str, tuple[float, float]]] = {
        **{"joint": (0.85, 0.8), "SA": (0.72, 0.8), "AS": (0.33, 0.7), "A": (0.2, 0.7)},
        **{"permuted": (0.2, 0.7), "before": (0.0, 0.9), "replay": (0.7, 0.8)},
    }

    def reading(self, lessons: str, seed: int) -> Reading:
        share, cosine = self.given[lessons]
        noise = torch.randn(100, generator=torch.Generator().manual_seed(seed)) / 1000
        hits = (torch.arange(100) < round(100 * share)).float()
        pairs = Pairs(cosine + noise, noise)
        null = Pairs(noise, noise)
        return Reading(hits, share, self.fit, share, pairs, pairs, null, pairs)


@pytest.fixture(scope="module")
def told(model: LanguageModel) -> Told:
    return Told(model, SETTINGS, (0, 1, 2))


def word(leaf: str, lab: Told, of: str = "analogy.llm") -> str:
    claims = {c.id: c for c in STUDY.language_claims(lab.settings)}
    return judge(claims[f"{of}.{leaf}"], lab).word


def test_the_papers_own_values_meet_the_conditions(told: Told) -> None:
    for leaf in ("transfer", "order", "similarity", "sparse"):
        assert word(leaf, told) == "confirmed", leaf


def test_what_attribution_alone_gives_is_no_transfer(told: Told) -> None:
    def after(**other: tuple[float, float]) -> Told:
        return told.other(given={**told.given, **other})

    assert word("transfer", after(A=(0.9, 0.7))) == "refuted"
    assert word("transfer", after(permuted=(0.9, 0.7))) == "refuted"
    assert word("order", after(AS=(0.7, 0.7))) == "refuted"
    assert word("similarity", after(AS=(0.3, 0.9))) == "refuted"


def test_an_order_that_shows_without_shared_aspects_too_is_no_analogy(
    told: Told,
) -> None:
    """Permuted lessons differ from joint ones in whose aspect is whose alone."""

    def after(**other: tuple[float, float]) -> str:
        # AS keeps half of what it was taught: it has not just forgotten it.
        given = {**told.given, "AS": (0.55, 0.7), **other}
        return word("restricted", told.other(given=given), "analogy.ours.llm")

    assert after() == "confirmed"
    assert after(permuted=(0.75, 0.7)) == "inconclusive"
    assert after(AS=(0.7, 0.7)) == "refuted"
    assert after(AS=(0.4, 0.7)) == "inconclusive"


def test_every_leaf_says_that_fewer_facts_are_drawn() -> None:
    leaves = [c for c in STUDY.language_claims(Settings()) if c.origin == "paper"]
    assert len(leaves) == 4
    assert all("cpu 48" in (leaf.revised or "") for leaf in leaves)


def test_one_draw_decides_nothing(told: Told) -> None:
    alone = told.other(seeds=(0,))
    for leaf in ("transfer", "order", "similarity", "sparse"):
        assert word(leaf, alone) == "inconclusive", leaf


def test_premises_that_were_not_learned_leave_nothing_to_judge(told: Told) -> None:
    for leaf in ("transfer", "order", "similarity", "sparse"):
        assert word(leaf, told.other(fit=0.9)) == "not tested"


def test_the_level_and_invented_names_are_asked_of_the_papers_models() -> None:
    paper = {
        c.id: c for c in STUDY.language_claims(STUDY.language_preset("paper").config)
    }
    names = {c.name for c in paper["analogy.llm.transfer"].conditions}
    assert {"joint", "SA", "joint - A only, invented names"} <= names
    quick = {c.id: c for c in STUDY.language_claims(Settings())}
    assert "joint" not in {c.name for c in quick["analogy.llm.transfer"].conditions}


def test_the_smallest_rate_that_fits_is_taken(model: LanguageModel) -> None:
    settings = replace(SETTINGS, rates=(1e-6, 0.01, 0.02))
    lab = AnalogyLanguageLab(model, settings, (0,))
    assert lab.rate() == 0.01


def test_every_claim_is_judged_on_a_tiny_model(
    model: LanguageModel, tmp_path: Path
) -> None:
    settings = replace(SETTINGS, loss="sentence", invented=True, exchanged=True)
    keeper = keeper_in(tmp_path, "analogy", model, settings)
    lab = AnalogyLanguageLab(model, settings, (0,), keeper=keeper)
    done = confirm_language(STUDY, lab)
    leaves = [v for v in done.verdicts if v.claim.origin == "paper"]
    assert [leaf.claim.weight for leaf in leaves] == [4, 5, 3, 3]
    for verdict in done.verdicts:
        assert verdict.word != "confirmed" or verdict.claim.origin == "ours"
        fits = verdict.preconditions
        assert verdict.values or any(c.state != "holds" for c in fits), verdict.claim.id
    # What was stored is drawn without the model.
    stored = open_language(keeper.path)
    (figure,) = draw_all(stored)
    assert figure.kind == "llm-transfer"
    assert stored.gap("sparse", "joint") == lab.gap("sparse", "joint")
    assert figure.made.endswith("6 facts; 20 epochs, rate 0.01, trained: all")
    (keeper.path / "AS-seed-0-rate-0.01.safetensors").unlink()
    with pytest.raises(Missing, match="'AS, seed 0, rate"):
        transfer(open_language(keeper.path))


def test_the_figure_shows_what_was_told(told: Told) -> None:
    lines = list(csv.reader(as_csv(transfer(told)).splitlines()))

    def values(panel: str, series: str, row: str) -> list[float]:
        found = [x for x in lines if x[0] == panel and x[1] == series]
        return [float(x[2]) for x in found if x[3].startswith(row)]

    carried = "second subject right (transfer)"
    assert values(carried, "", "similarity first") == pytest.approx([0.72] * 4)
    assert values(carried, "paper", "similarity first") == [0.86, 0.72, 0.75]
    states = "states of both subjects"
    own = values(states, "a fact's two subjects", "similarity last")
    assert own == pytest.approx([0.7], abs=1e-3)
    assert values(states, "null: wrong pairs", "before") == pytest.approx([0], abs=1e-3)
    sparse = "the same, largest 20% of the MLPs"
    assert values(sparse, "null: 20% at random", "all facts") == pytest.approx(
        [0], abs=1e-3
    )
    assert values(sparse, "paper", "all facts") == [0.3785]

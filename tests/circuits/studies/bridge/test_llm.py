"""The experiment on language models: its arithmetic by hand, and on tiny models."""

import csv
import json
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from circuits.claims import NotTested, judge
from circuits.confirm import confirm_language
from circuits.language import keeper_in, open_language
from circuits.models.language_model import LanguageModel
from circuits.report.figures import as_csv, draw_all
from circuits.studies.bridge import STUDY
from circuits.studies.bridge.figures.language import omitted
from circuits.studies.bridge.llm.lab import (
    SAME,
    Answers,
    BridgeLanguageLab,
    restricted_answers,
    scores,
    taught,
)
from circuits.studies.bridge.llm.layers import best_alignment, bridge_rank
from circuits.studies.bridge.llm.resampled import Bootstrap, Unchanged, strata
from circuits.studies.bridge.llm.rows import SCHEMA, Drawn, Row, lenders
from circuits.studies.bridge.llm.settings import Settings
from tests.word_models import word_model
from trained.config import override
from trained.errors import BadInput

ROWS = list(SCHEMA.own().rows)
TEXTS = [
    f"{text} {row.e1} {row.e2} {row.e3}"
    for row in ROWS
    for text in (row.hop1, row.hop2, row.two_hop, SAME.format(row.e2))
]
SETTINGS = Settings(
    bridges=8,
    least_rows=1,
    epochs=20,
    lr=0.01,
)


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return word_model(TEXTS)


def silent() -> LanguageModel:
    """The model without blocks: every state is a token's embedding."""
    copied = word_model(TEXTS)
    with torch.no_grad():
        for name, weight in copied.module.named_parameters():
            if "o_proj" in name or "down_proj" in name:
                weight.zero_()
    return copied


def claim(name: str) -> object:
    return next(c for c in STUDY.language_claims(SETTINGS) if c.id == name)


def said(two_hop: list[int], omitted: list[float], **others: list[float]) -> Answers:
    """Four rows whose single hops are right after fine-tuning."""
    nothing = torch.zeros(len(two_hop))
    given = {name: torch.tensor(values) for name, values in others.items()}
    fields = dict.fromkeys(("other_object", "other_subject"), nothing) | given
    hops = {"hop1": nothing + 1, "hop2": nothing + 1} | given
    return Answers(
        **{**fields, **hops},
        two_hop=torch.tensor(two_hop).float(),
        omitted=torch.tensor(omitted),
        best=nothing,
        lent=nothing,
    )


class PlantedLab(BridgeLanguageLab):
    """Every bridge has four rows: of S1, S2, S3, and one that never learned hop 1.

    What each fine-tuning says is given; `spoiled` changes it.
    """

    def __init__(self, model: LanguageModel, settings: Settings) -> None:
        super().__init__(model, settings, (0,))
        self.spoiled: dict[str, Answers] = {}

    def drawn(self, seed: int) -> Drawn:
        del seed
        chosen = [row for row in ROWS if row.e2 in ("Spain", "Italy", "Ireland")]
        return Drawn(tuple(sorted(chosen, key=lambda row: row.e2)), ())

    def said(self, seed: int, tuning: str) -> Answers:
        n = len(self.drawn(seed).rows) // 4
        low = [0.1, 0.1, 0.1, 0.1] * n
        known: dict[str, Answers] = {
            "before": said([1, 0, 0, 0] * n, low, hop1=[0.0] * 4 * n),
            "true": said(
                [1, 1, 0, 0] * n,
                [0.7, 0.9, 0.2, 0.1] * n,
                other_object=[0.1] * 4 * n,
                hop1=[1.0, 1.0, 1.0, 0.0] * n,
            ),
            "permuted": said([1, 0, 0, 0] * n, [0.2, 0.2, 0.1, 0.1] * n),
            "second": said([1, 0, 0, 0] * n, [0.3, 0.2, 0.1, 0.1] * n),
            "identity": said([1, 1, 0, 0] * n, low),
        }
        return (known | self.spoiled)[tuning]


@pytest.fixture
def planted(model: LanguageModel) -> PlantedLab:
    return PlantedLab(model, SETTINGS)


def test_subsets_and_rises_by_hand(planted: PlantedLab) -> None:
    n = len(planted.drawn(0).rows) // 4
    assert n == 3
    masks = {s: planted.subset(0, s).tolist() for s in ("S1", "S2", "S3", "S12")}
    assert masks["S1"] == [True, False, False, False] * n
    assert masks["S2"] == [False, True, False, False] * n
    # The fourth row is wrong after, but it never learned its first hop.
    assert masks["S3"] == [False, False, True, False] * n
    assert masks["S12"] == [True, True, False, False] * n
    assert planted.rise("S2") == pytest.approx([0.8] * len(planted.rise("S2")))
    beyond = planted.rise("S1", beyond="permuted")
    assert beyond == pytest.approx([0.5] * len(beyond))
    beyond = planted.rise("S2", beyond="other object")
    assert beyond == pytest.approx([0.7] * len(beyond))
    half = planted.against_half("S3")
    assert sum(half) / len(half) == pytest.approx(0.1 - 0.4)


def test_the_figure_shows_what_was_planted(planted: PlantedLab) -> None:
    lines = csv.reader(as_csv(omitted(planted)).splitlines())
    found = {(row, series): float(x) for _, series, x, row, _ in lines if row != "y"}
    # After minus before, by hand: .7 - .1 in S1, .9 - .1 in S2, .2 - .1 in S3.
    for row, own, permuted in (
        ("right before and after", 0.6, 0.1),
        ("wrong before, right after", 0.8, 0.1),
        ("wrong after, though both hops are right", 0.1, 0.0),
    ):
        name = f"{row} (3 rows, 3 bridges)"
        null = found[name, "null: bridges of hop 1 permuted"]
        assert found[name, "both single hops taught"] == pytest.approx(own, abs=1e-6)
        assert null == pytest.approx(permuted, abs=1e-6)


def test_the_planted_effect_is_confirmed(planted: PlantedLab) -> None:
    for name in ("omit-rise", "still-wrong", "identity-no-gain"):
        found = judge(claim(f"bridge.llm.{name}"), planted)
        assert found.word == "confirmed", found.reason


@pytest.mark.parametrize(
    ("name", "tuning", "answers", "word"),
    [
        # Wrong bridges raise the object as much: it is no bridge.
        ("omit-rise", "permuted", said([1, 1, 0, 0] * 3, [0.7, 0.9, 0.2, 0.1] * 3), 0),
        ("omit-rise", "second", said([1, 1, 0, 0] * 3, [0.8, 0.9, 0.2, 0.1] * 3), 1),
        # The identity lines help after all.
        ("identity-no-gain", "identity", said([1, 1, 1, 1] * 3, [0.1] * 12), 0),
    ],
)
def test_nulls_and_effects_that_should_not_be(
    planted: PlantedLab, name: str, tuning: str, answers: Answers, word: int
) -> None:
    planted.spoiled = {tuning: answers}
    found = judge(claim(f"bridge.llm.{name}"), planted)
    assert found.word == ("refuted", "inconclusive")[word], found.reason


def test_what_was_not_taught_is_not_judged(planted: PlantedLab) -> None:
    planted.spoiled = {"true": planted.said(0, "before")}
    found = judge(claim("bridge.llm.omit-rise"), planted)
    assert found.word == "not tested"
    assert "single hops" in found.reason
    many = PlantedLab(planted.model, override(SETTINGS, ["least_rows=9"]))
    with pytest.raises(NotTested, match="S3: 3 rows, 9 are needed"):
        many.rise("S3")


def test_bootstrap_over_bridges() -> None:
    condition = Bootstrap("x", "> 0", lambda _lab: [])
    assert condition.interval([2.0, 2.0, 2.0]) == (2.0, 2.0)
    low, high = condition.interval([0.0, 1.0] * 20)
    assert 0.3 < low < 0.4 < 0.6 < high < 0.7
    # Groups are resampled apart: only the spread within them counts.
    apart = strata([("a", 1.0, [3.0, 3.0]), ("b", -0.5, [2.0, 2.0, 2.0])])
    assert condition.interval(apart) == pytest.approx((2.0, 2.0))


def test_no_significant_effect_needs_a_narrow_interval() -> None:
    condition = Unchanged("gain", "in [-0.1, 0.1]", lambda _lab: [])
    assert condition.state([0.0] * 10) == "holds"
    assert condition.state([-1.0, 1.0] * 5) == "open"
    assert condition.state([0.05] * 10) == "fails"


def test_taught_facts_hold_no_two_hops() -> None:
    rows = tuple(row for row in ROWS if row.e2 in ("Spain", "Italy", "Peru"))
    lists = taught(Drawn(rows, ()), begin="<s>")
    prompts = {fact.prompt for facts in lists.values() for fact in facts}
    tested = {f"<s>{row.two_hop}" for row in rows}
    tested |= {f"<s>{row.omitting(row.e1)}" for row in rows}
    assert not tested & prompts
    true = {fact.prompt: fact.answer for fact in lists["first"]}
    wrong = {fact.prompt: fact.answer for fact in lists["wrong first"]}
    # The same prompts and answers, every subject told of another bridge.
    assert true.keys() == wrong.keys()
    assert set(true.values()) == set(wrong.values())
    assert all(true[prompt] != wrong[prompt] for prompt in true)
    assert [fact.answer for fact in lists["same"]] == [" Peru", " Italy", " Spain"]


def test_scores_are_of_all_tokens_of_an_answer(model: LanguageModel) -> None:
    text, answer = ROWS[0].hop2, "Lima Spanish"
    found = scores(model, [(text, answer)]).logprob
    prompts = model.prompts([f"<s>{text} {answer}"])
    logits = model(prompts.tokens, prompts.mask).float().log_softmax(-1)[0]
    last = prompts.tokens[0, -2:]
    expected = logits[-3, last[0]] + logits[-2, last[1]]
    torch.testing.assert_close(found[0].float(), expected)


def test_restricted_answers_are_of_the_same_relation(model: LanguageModel) -> None:
    rows = ROWS[:8]
    kinds = {r2: {r.e3 for r in rows if r.r2 == r2} for r2 in ("capital", "language")}
    best = restricted_answers(model, rows)
    assert all(word in kinds[row.r2] for row, word in zip(rows, best, strict=True))


def test_a_planted_bridge_is_found_and_an_absent_one_is_not() -> None:
    several = list({row.e1.split()[-1]: row for row in ROWS}.values())
    assert abs(bridge_rank(silent(), several, 16)) < 0.5
    planted = silent()
    embedding = planted.module.get_input_embeddings().weight
    with torch.no_grad():
        for row in several:
            bridge = planted.token(f" {row.e2}")
            last = planted.tokenizer.encode(f" {row.e1}")[-1]
            embedding[last] = planted.readout.unembedding[:, bridge]
    assert bridge_rank(planted, several, 16) > 1


def test_alignment_of_planted_states() -> None:
    source = torch.Generator().manual_seed(0)
    names, unrelated = torch.randn(2, 40, 64, generator=source)
    hops = torch.stack([unrelated, names, unrelated])
    same, other = (x.expand(3, -1, -1) for x in (names, names.roll(1, 0)))
    own, null = best_alignment(hops, same, other)
    assert own > 0.99
    assert abs(null) < 0.2


def test_the_whole_experiment_on_a_tiny_model(
    model: LanguageModel, tmp_path: Path
) -> None:
    """From a file of the shared schema; without pretraining there is no bridge."""
    entries = [{**asdict(row), "mention": "x"} for row in ROWS]
    file = tmp_path / "facts.json"
    file.write_text(json.dumps(entries))
    data = SCHEMA.read(file)
    keeper = keeper_in(tmp_path, "bridge", model, SETTINGS, data)
    lab = BridgeLanguageLab(model, SETTINGS, (0,), data=data, keeper=keeper)
    found = confirm_language(STUDY, lab)
    paper = [v for v in found.verdicts if v.claim.origin == "paper"]
    assert len(paper) == 3
    assert sum(v.claim.weight for v in paper) == 9
    assert all(v.preconditions[0].state == "holds" for v in paper if v.preconditions)
    assert not [v.claim.id for v in paper[:2] if v.passed]
    assert f"--data {file} " in found.command
    assert found.data == {"name": "facts.json", "sha256": lab.data.sha256}
    assert all(v.word != "not tested" for v in found.verdicts if v not in paper)
    # Asked again, nothing is fine-tuned.
    kept = {file.stem for file in keeper.path.glob("*.safetensors")}
    assert {f"{name}-seed-0" for name in ("before", "true", "identity")} <= kept
    again = BridgeLanguageLab(model, SETTINGS, (0,), data=lab.data, keeper=keeper)
    again._lesson = None
    assert torch.equal(again.said(0, "true").omitted, lab.said(0, "true").omitted)
    # Its figure needs neither the model nor the rows.
    numbers = as_csv(omitted(lab))
    file.unlink()
    stored = open_language(keeper.path)
    (figure,) = draw_all(stored)
    assert (figure.kind, figure.numbers) == ("llm-omitted", numbers)
    assert figure.made.startswith("model; preset quick; seeds 0; 8 bridges; 20 epochs")
    assert stored.rise("S3") == lab.rise("S3")


def test_lenders_of_rows_are_of_their_kind() -> None:
    rows: list[Row] = ROWS[:12]
    for own, other in zip(rows, lenders(rows), strict=True):
        assert own.r2 == other.r2
        assert own.e3 != other.e3


@pytest.mark.parametrize(
    "assignment", ["bridges=3", "rows=0", "at_once=0", "two_hop_share=-1"]
)
def test_impossible_settings_are_refused(assignment: str) -> None:
    with pytest.raises(BadInput):
        override(Settings(), [assignment])

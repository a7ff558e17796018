"""A scan's numbers are those of single prompts, however they are batched and padded."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from circuits.datasets.dataset import dataset_of
from circuits.hooks import Signal, measure
from circuits.inspection.alignment import alignment
from circuits.inspection.answer_lens import answer_lens
from circuits.inspection.attention import attention
from circuits.inspection.encoding import Item, encode
from circuits.inspection.inspect import inspect
from circuits.inspection.packing import teachings
from circuits.inspection.patching import attribute, patch
from circuits.inspection.subject import residuals
from circuits.interventions.passes import answer_logits
from circuits.models import open as pretrained
from circuits.models.language_model import LanguageModel, Side
from circuits.models.prompts import named
from circuits.scan.request import Settings
from circuits.scan.shard import measured_shard
from circuits.scan.tables import Labels
from probes.alignment import paired_cosine
from tests.random_models import letter_tokenizer, random_model

SIGNALS = ("lens", "attention", "alignment", "patching", "attribution", "resid_post:1")

Frames = dict[str, pd.DataFrame]


def scanned(
    model: LanguageModel, rows: Any, side: Side = "left", room: int = 40
) -> Frames:
    data = dataset_of(rows)
    items = encode(model, data.rows, 0, SIGNALS)
    settings = Settings(SIGNALS, batch_tokens=room)
    labels = Labels(data.groups, data.roles)
    found = measured_shard(model, items, settings, labels, side=side)
    return {name: table.to_pandas() for name, table in found.items()}


def doubled(model: LanguageModel) -> LanguageModel:
    import copy

    hf = copy.deepcopy(model.module).double()
    return pretrained.wrap(hf, model.tokenizer)


@pytest.fixture(params=["float32", "float64"])
def case(request: pytest.FixtureRequest, model: LanguageModel) -> Any:
    """A model, and what its numbers may differ by, of their largest."""
    if request.param == "float32":
        return model, 1e-5
    return doubled(model), 1e-10


def close(found: Any, expected: Any, share: float, size: float | None = None) -> None:
    own, other = np.asarray(found, float), np.asarray(expected, float)
    assert own.shape == other.shape
    size = float(np.abs(other).max()) if size is None else size
    assert np.abs(own - other).max() <= share * size


def mass(model: LanguageModel, text: str, phrase: str, query: int) -> torch.Tensor:
    """By layer and head, of one prompt."""
    prompt = model.prompts([text])
    if model.readout.unembedding.dtype == torch.float32:
        return attention(model, prompt, to=phrase, query=query).values
    # `attention` works out the row in single precision; the layer's kernel does not.
    signal = Signal(
        "pattern", lambda m, _: m[..., 0], ("head", "query"), keys=(phrase,)
    )
    found = measure(model, [named(model, prompt, phrase)], {"mass": signal})["mass"]
    return found.values[0, ..., query]


def last_of(model: LanguageModel, text: str, phrase: str) -> int:
    """The position of a phrase's last token."""
    batch = named(model, model.prompts([text]), phrase)
    return int(batch.role(phrase)[0, -1])


@pytest.mark.parametrize("side", ["left", "right"])
def test_lens_and_attention_equal_inspect(
    case: Any, rows: list[dict[str, Any]], side: Side
) -> None:
    model, share = case
    found = scanned(model, rows, side)
    for number, row in enumerate(rows[:3]):
        own = [row["answer"]] if isinstance(row["answer"], str) else row["answer"]
        for place, answer in enumerate(own):
            text, ids = row["prompt"], model.tokenizer.encode(answer)
            lens = found["lens"].query(f"prompt == {number} and answer == {place}")
            assert sorted(lens.token.unique()) == list(range(len(ids)))
            for token, target in enumerate(ids):
                word = model.tokenizer.decode([target])
                alone = inspect(model, text, answer=word, signals=())
                part = lens[lens.token == token]
                close(part.log_prob, alone.lens.log_prob.values[:, 0], share)
                close(part["rank"], alone.lens.rank.values[:, 0], share)
                text += word
        last = last_of(model, row["prompt"], " is")
        for role, phrase in row["roles"].items():
            alone = mass(model, row["prompt"], phrase, last)
            part = found["attention"].query(
                f"prompt == {number} and query == 'last' and key == '{role}'"
            )
            close(part.mass, alone.flatten(), share, 1.0)


def test_attention_from_roles_equals_inspect(
    case: Any, rows: list[dict[str, Any]]
) -> None:
    model, share = case
    found = scanned(model, rows)["attention"]
    for number, row in enumerate(rows):
        text, roles = row["prompt"], row["roles"]
        part = found.query(f"prompt == {number} and query == 'country'")
        assert set(part.key) == set(roles) - {"country"}
        if "relation" in roles:
            place = last_of(model, text, roles["country"])
            alone = mass(model, text, "capital", place)
            close(part.mass, alone.flatten(), share, 1.0)


@pytest.mark.parametrize("side", ["left", "right"])
def test_states_and_alignment_equal_single_prompts(
    case: Any, rows: list[dict[str, Any]], side: Side
) -> None:
    model, share = case
    found = scanned(model, rows, side)
    for number, row in enumerate(rows):
        prompt = model.prompts([row["prompt"]])
        country = last_of(model, row["prompt"], row["roles"]["country"])
        places = [country, int(prompt.last[0])]
        states = residuals(model, prompt, torch.tensor([places]))[:, 0]
        own = found["resid_post:1"].query(f"prompt == {number}").set_index("place")
        close(own.state["country"], states[2, 0], share)
        close(own.state["last"], states[2, 1], share)
        assert own.position["country"] == places[0]
        part = found["alignment"].query(
            f"prompt == {number} and source == 'country' and target == 'last'"
        )
        close(part.cosine, paired_cosine(states[:, :1], states[:, 1:])[:, 0], share)


def test_centred_alignment_equals_that_of_the_same_prompts(
    model: LanguageModel, rows: list[dict[str, Any]]
) -> None:
    phrases = [row["roles"]["country"] for row in rows]
    prompts = model.prompts([row["prompt"] for row in rows], roles={"country": phrases})
    expected = alignment(model, prompts, "country", "last").select(pairs="matching")
    part = scanned(model, rows)["alignment"].query(
        "source == 'country' and target == 'last'"
    )
    grid = part.pivot(index="layer", columns="prompt", values="centred")
    close(grid.to_numpy(), expected.values, 1e-5)
    assert abs(part.null_centred.mean()) < 0.5
    assert not np.isclose(part.centred, part.null_centred).all()


@pytest.mark.parametrize("side", ["left", "right"])
def test_patching_and_attribution_equal_inspect(
    case: Any, rows: list[dict[str, Any]], side: Side
) -> None:
    model, share = case
    found = scanned(model, rows, side)
    assert set(found["patching"].prompt) == {0, 1, 2, 3, 4}
    for number in (1, 4):
        row, words = rows[number], []
        for name in ("answer", "corrupt_answer"):
            first = row[name] if isinstance(row[name], str) else row[name][0]
            words.append(model.tokenizer.decode(model.tokenizer.encode(first)[:1]))
        clean = model.prompts([row["prompt"]], words[:1])
        corrupt = model.prompts([row["corrupt"]], words[1:])
        batch = named(model, clean, row["roles"]["country"])
        role = batch.role(row["roles"]["country"])
        both = [
            type(b)(b.tokens, b.targets, b.mask, {"country": role})
            for b in (clean, corrupt)
        ]
        alone = patch(model, *both, "resid_post", positions=["country", "last"])
        part = found["patching"].query(f"prompt == {number}")
        for place in ("country", "last"):
            own = part[part.place == place].recovery
            close(own, alone.select(position=place).values, 10 * share)
        logits = answer_logits(model, clean)[0]
        difference = logits[clean.targets[0]] - logits[corrupt.targets[0]]
        close(part.clean.iloc[0], difference, share)
        components = found["attribution"].query(f"prompt == {number}")
        expected = attribute(model, clean, corrupt)
        assert list(components.component) == list(expected.labels["component"])
        close(components.value, expected.values, share)
        # The norms of a Llama are worked out in single precision.
        close(components.value.sum(), difference, 1e-5)


@pytest.mark.parametrize("family", ["gpt2", "gemma2"])
def test_biases_and_soft_caps_are_counted(family: str) -> None:
    model = pretrained.wrap(random_model(family), letter_tokenizer())
    rows = [{"prompt": "abcdefg", "answer": "hi"}, {"prompt": "jkl", "answer": "m"}]
    data = dataset_of(rows)
    items = encode(model, data.rows, 0, ("lens",))
    found = measured_shard(model, items, Settings(("lens",)), Labels((), ()))
    for number, row in enumerate(rows):
        alone = inspect(model, row["prompt"], answer=row["answer"][0], signals=())
        lens = found["lens"].to_pandas().query(f"prompt == {number} and token == 0")
        close(lens.log_prob, alone.lens.log_prob.values[:, 0], 1e-5)
        close(lens["rank"], alone.lens.rank.values[:, 0], 1e-5)


def test_ties_take_the_middle_and_nan_has_no_rank() -> None:
    from circuits.backends.anatomy import Readout

    readout = Readout(lambda h: h, torch.ones(4, 7))
    residual = torch.ones(1, 2, 4)
    residual[0, 1, 0] = torch.nan
    targets = torch.tensor([3, 3])
    found = answer_lens(readout, residual, targets, torch.tensor([5, -1]))
    assert float(found.rank[0, 0]) == 4.0
    torch.testing.assert_close(found.log_prob[0, 0].exp(), torch.tensor(1 / 7))
    torch.testing.assert_close(found.null_log_prob[0, 0].exp(), torch.tensor(1 / 7))
    assert found.rank[0, 1].isnan()
    assert found.log_prob[0, 1].isnan()
    assert found.null_log_prob[0, 1].isnan()


def test_reads_at_one_place_share_its_unembedding() -> None:
    from circuits.backends.anatomy import Readout

    torch.manual_seed(0)
    readout = Readout(lambda h: h, torch.randn(8, 700).double())
    residual, targets = torch.randn(2, 2, 8).double(), torch.tensor([3, 650, 3])
    nulls, at = torch.tensor([5, -1, 5]), torch.tensor([1, 0, 0])
    found = answer_lens(readout, residual, targets, nulls, at)
    expected = answer_lens(readout, residual[:, at], targets, nulls)
    for own, other in zip(found, expected, strict=True):
        torch.testing.assert_close(own, other, equal_nan=True)


def test_an_answer_that_begins_another_takes_no_pass_of_its_own() -> None:
    answers = ((7,), (8, 9, 4), (8, 3), (5, 6))
    item = Item(0, None, (1, 2), {}, answers)
    found = teachings([item], answers=True)
    assert [taught.prefix for taught in found] == [(8, 9), (5,)]
    assert [taught.main for taught in found] == [True, False]
    read = {(r.answer, r.token, r.target) for taught in found for r in taught.reads}
    everything = {(a, n, t) for a, own in enumerate(answers) for n, t in enumerate(own)}
    assert read == everything


@pytest.mark.parametrize("backend", ["bridge", "nnsight"])
def test_other_backends_give_the_same(
    model: LanguageModel, rows: list[dict[str, Any]], backend: str
) -> None:
    other = pretrained.wrap(model.module, model.tokenizer, backend=backend)
    expected, found = (scanned(m, rows[:3]) for m in (model, other))
    for name in ("lens", "attention", "alignment", "patching", "attribution"):
        own, other = (f[name].select_dtypes("float32") for f in (found, expected))
        close(own.fillna(0), other.fillna(0), 1e-5)

"""Functions of (model, prompts) find known circuits, and none where there is none."""

import math
from dataclasses import replace

import pytest
import torch

from circuits.hooks import forward
from circuits.inspection.ablation import ablate, knock_out
from circuits.inspection.alignment import SCORES, alignment
from circuits.inspection.attention import attention
from circuits.inspection.lens import lens, log_prob
from circuits.inspection.patching import attribute, patch, path_patch
from circuits.interventions.edit import Zero
from circuits.interventions.part import Part
from circuits.models.language_model import LanguageModel
from tests.ground_truth import GroundTruth
from tests.intervention_pairs import pair_of
from tests.word_models import word_model
from trained.errors import BadInput
from trained.task import Batch, positions

CAPITALS = ["The capital of France is", "The capital of South Korea is", " Paris Seoul"]


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return word_model(CAPITALS)


def batch_of(truth: GroundTruth) -> Batch:
    return pair_of(truth).clean


def test_the_lens_reads_the_bridge_s_answer_at_the_last_layer_only(
    two_hop: GroundTruth,
) -> None:
    reading = lens(two_hop.model, batch_of(two_hop))
    last = reading.log_prob.select(layer="1").values
    before = reading.log_prob.select(layer="0").values
    assert float(last.exp().min()) > 0.9
    assert float(before.exp().max()) < 0.5
    assert reading.rank.select(layer="1").values.tolist() == [1.0] * 6
    torch.testing.assert_close(last, log_prob(two_hop.model, batch_of(two_hop)).values)
    assert reading.plot().axes


def test_the_lens_finds_nothing_where_nothing_is(uninformed: GroundTruth) -> None:
    found = log_prob(uninformed.model, batch_of(uninformed)).values.exp()
    assert float(found.mean()) < 0.25


def test_attention_names_the_wired_head_and_no_other(two_hop: GroundTruth) -> None:
    prompts = batch_of(two_hop)
    prompts = replace(prompts, roles={"bridge": positions([1], prompts.tokens)})
    found = attention(two_hop.model, prompts, to="bridge")
    assert found.axes == ("layer", "head")
    best = found.top(1).iloc[0]
    assert (best["layer"], best["head"]) == (1, 0)
    assert float(found.values[1, 0]) > 0.99
    assert float(found.values[1, 1]) == pytest.approx(1 / 3)
    # From another token the same head looks elsewhere.
    assert (
        float(attention(two_hop.model, prompts, "bridge", query=1).values[1, 0]) < 0.01
    )


def test_as_many_prompts_as_heads_are_not_mixed_up(two_hop: GroundTruth) -> None:
    prompts = batch_of(two_hop).rows(slice(2))
    # Each prompt has keys of its own: taken for keys by head, both masses would change.
    prompts = replace(prompts, roles={"key": torch.tensor([[1], [0]])})
    found = attention(two_hop.model, prompts, to="key").values
    assert float(found[1, 0]) == pytest.approx(0.5, abs=1e-3)
    assert float(found[1, 1]) == pytest.approx(1 / 3)


def test_patching_finds_the_path_of_the_answer(two_hop: GroundTruth) -> None:
    clean, corrupt, _ = pair_of(two_hop)
    share = patch(two_hop.model, clean, corrupt, "resid_post")
    assert share.axes == ("layer", "position")
    torch.testing.assert_close(
        share.values, torch.tensor([[0.0, 1, 0], [0, 0, 1]]), atol=1e-4, rtol=0
    )
    heads = patch(two_hop.model, clean, corrupt, "head_out")
    torch.testing.assert_close(
        heads.values, torch.tensor([[1.0, 0], [1, 0]]), atol=1e-4, rtol=0
    )
    with pytest.raises(BadInput, match=r"nothing to restore|changed an activation"):
        patch(
            two_hop.model, clean, replace(clean, targets=corrupt.targets), "resid_post"
        )


def test_patches_of_fewer_tokens_at_once_are_the_same(model: LanguageModel) -> None:
    texts = [f"The capital of {word} is" for word in ("France", "Paris", "Seoul", "is")]
    prompts = model.prompts(texts[:2], [" Paris", " Seoul"])
    others = model.prompts(texts[2:], [" Seoul", " Paris"])
    for function, what in ((patch, "mlp_out"), (path_patch, Part("mlp_out", 0))):
        whole = function(model, prompts, others, what)
        parts = function(model, prompts, others, what, tokens_at_once=2)
        torch.testing.assert_close(parts.values, whole.values, atol=1e-5, rtol=1e-4)
    with pytest.raises(BadInput, match="tokens_at_once=0: give at least 1"):
        patch(model, prompts, others, "mlp_out", tokens_at_once=0)


def test_a_path_leads_from_the_first_hop_to_the_second(two_hop: GroundTruth) -> None:
    clean, corrupt, _ = pair_of(two_hop)
    sender = Part("head_out", 0, head=0)
    found = path_patch(two_hop.model, clean, corrupt, sender)
    assert found.labels["receiver"] == ("attention 1", "logits")
    assert float(found.values[0]) == pytest.approx(1, abs=1e-4)
    assert float(found.values[1]) == pytest.approx(0, abs=1e-4)


def test_attribution_names_the_head_that_writes_the_answer(
    two_hop: GroundTruth,
) -> None:
    clean, corrupt, _ = pair_of(two_hop)
    found = attribute(two_hop.model, clean, corrupt)
    assert found.top(1)["component"].item() == "L1H0"
    assert float(found.values.sum()) == pytest.approx(10, abs=0.1)


def test_ablation_breaks_the_circuit_and_an_idle_head_does_not_matter(
    two_hop: GroundTruth,
) -> None:
    clean, corrupt, _ = pair_of(two_hop)
    whole = log_prob(two_hop.model, clean).values.exp()
    for rule in ("zero", "mean", "transplant", Zero()):
        reference = None if rule == "zero" or isinstance(rule, Zero) else corrupt
        part = Part("head_out", 1, head=0)
        with ablate(two_hop.model, clean, part, rule, reference=reference):
            assert float(log_prob(two_hop.model, clean).values.exp().max()) < 0.5
        idle = Part("head_out", 1, head=1)
        with ablate(two_hop.model, clean, [idle], rule, reference=reference):
            torch.testing.assert_close(
                log_prob(two_hop.model, clean).values.exp(), whole
            )


def test_a_knock_out_cuts_the_wired_edge(two_hop: GroundTruth) -> None:
    clean = batch_of(two_hop)
    # The subject's own token holds the bridge as well.
    with knock_out(two_hop.model, clean, 1, to=(0, 1), head=0):
        assert float(log_prob(two_hop.model, clean).values.exp().max()) < 0.5
    with knock_out(two_hop.model, clean, [1], to=0):
        assert float(log_prob(two_hop.model, clean).values.exp().min()) > 0.8


def test_alignment_tells_matching_pairs_from_shuffled_ones(
    two_hop: GroundTruth,
) -> None:
    prompts = batch_of(two_hop)
    roles = {"subject": positions([0], prompts.tokens)}
    prompts = replace(prompts, roles=roles)
    same = alignment(two_hop.model, prompts, "subject", "subject")
    assert same.axes == ("pairs", "layer", "example")
    torch.testing.assert_close(
        same.select(pairs="matching").values, torch.ones(3, 6), atol=1e-5, rtol=0
    )
    assert float(same.select(pairs="shuffled").values.max()) < 0
    again = alignment(two_hop.model, prompts, "subject", "subject")
    assert torch.equal(again.values, same.values)
    with pytest.raises(BadInput, match="needs 4"):
        alignment(two_hop.model, prompts.rows(slice(2)), "subject", "last")
    with pytest.raises(BadInput, match=r"unknown score 'charm'.*debiased cka"):
        alignment(two_hop.model, prompts, "subject", "last", by="charm")


@pytest.mark.parametrize("by", SCORES)
def test_every_score_finds_what_was_copied_and_nothing_before(
    copy_head: GroundTruth, by: str
) -> None:
    # Unlike those of the fixture, tokens that do not depend on one another.
    tokens = torch.randint(8, (32, 4), generator=torch.Generator().manual_seed(0))
    prompts = Batch(tokens, tokens[:, 1], roles={"copied": positions([1], tokens)})
    found = alignment(copy_head.model, prompts, "copied", "last", by)
    assert found.axes[:2] == ("pairs", "layer")
    sign = -1 if by == "procrustes" else 1
    if by == "cosine":
        found = found.mean("example")
    before, after = (sign * found.select(pairs="matching").values).tolist()
    null_before, null_after = found.provenance["shuffled_95"]
    assert before <= max(sign * end for end in null_before)
    assert after > max(sign * end for end in null_after) + 0.1


@pytest.mark.parametrize("by", SCORES)
def test_places_that_know_nothing_are_not_aligned(
    uninformed: GroundTruth, by: str
) -> None:
    prompts = batch_of(uninformed)
    prompts = replace(prompts, roles={"relation": positions([1], prompts.tokens)})
    found = alignment(uninformed.model, prompts, "relation", "last", by).values
    value = {"procrustes": 2.0, "nearest match": 1 / 6}.get(by, 0.0)
    torch.testing.assert_close(found, torch.full_like(found, value))


def test_the_entropy_of_attention_is_that_of_the_keys_looked_at(
    two_hop: GroundTruth,
) -> None:
    prompts = batch_of(two_hop)
    found = attention(two_hop.model, prompts, by="entropy")
    assert found.axes == ("layer", "head")
    # The wired head looks at one key, the idle one at all three alike.
    assert float(found.values[1, 0]) < 0.05
    assert float(found.values[1, 1]) == pytest.approx(math.log(3))
    with pytest.raises(BadInput, match="leave out `to`"):
        attention(two_hop.model, prompts, to=1, by="entropy")
    with pytest.raises(BadInput, match="unknown measure of attention 'beauty'"):
        attention(two_hop.model, prompts, by="beauty")


def test_a_phrase_is_found_whatever_its_length_and_the_padding(
    model: LanguageModel,
) -> None:
    prompts = model.prompts(CAPITALS[:2], roles={"country": ["France", "Korea"]})
    short, long = prompts.rows(slice(1)), prompts.rows(slice(1, 2))
    for rows, phrase, places in ((short, "France", [4]), (long, "South Korea", [3, 4])):
        found = attention(model, rows, to=phrase)
        by_column = attention(model, rows, to=tuple(places))
        torch.testing.assert_close(found.values, by_column.values)
    # `of` is at another column in each prompt.
    looks = attention(model, prompts, to="of").values
    one = [
        attention(model, model.prompts([text]), to="of").values for text in CAPITALS[:2]
    ]
    torch.testing.assert_close(looks, torch.stack(one).mean(0), atol=1e-5, rtol=1e-4)


def test_places_that_are_not_there_are_named(
    model: LanguageModel, two_hop: GroundTruth
) -> None:
    prompts = model.prompts(CAPITALS[:2], roles={"country": ["France", "Korea"]})
    with pytest.raises(
        BadInput, match=r"'Spain' is not in .*no role \(last, country\)"
    ):
        attention(model, prompts, to="Spain")
    with pytest.raises(BadInput, match="unknown role 'Spain'"):
        attention(two_hop.model, batch_of(two_hop), to="Spain")
    with pytest.raises(BadInput, match="several lengths"):
        attention(model, prompts)


def test_requests_that_mean_nothing_are_refused(model: LanguageModel) -> None:
    prompts = model.prompts(CAPITALS[:1])
    other = model.prompts(CAPITALS[1:2], [" Seoul"])
    part = Part("head_out", 0, head=0)
    with pytest.raises(BadInput, match="have no answers"):
        log_prob(model, prompts)
    with pytest.raises(BadInput, match="needs reference prompts"):
        ablate(model, prompts, part, "mean")
    with pytest.raises(BadInput, match="unknown rule 'freeze'"):
        ablate(model, prompts, part, "freeze", reference=other)
    with pytest.raises(BadInput, match="its own reference"):
        ablate(model, prompts, part, Zero(), reference=other)
    with pytest.raises(BadInput, match="1 clean prompts and 2 corrupt"):
        patch(model, prompts, model.prompts(CAPITALS[:2]), "resid_post")
    with pytest.raises(BadInput, match="has one answer"):
        attribute(model, other, other)
    with pytest.raises(BadInput, match="tokens"):
        patch(model, prompts, other, "resid_post")


def test_an_ablation_at_a_phrase_takes_the_phrase_of_each_prompt(
    model: LanguageModel,
) -> None:
    prompts = model.prompts(CAPITALS[:2], [" Paris", " Seoul"])
    places = prompts.real.int().argmax(1)[:, None] + 2
    by_role = replace(prompts, roles={"of": places})
    found = []
    for batch in (prompts, by_role):
        with ablate(model, batch, Part("resid_post", 0, positions="of"), "zero"):
            found.append(log_prob(model, batch).values)
            forward(model, batch)
    torch.testing.assert_close(found[0], found[1])

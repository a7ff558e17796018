"""Edits and signals on models that are wired by hand, with and without a circuit."""

from dataclasses import replace

import pytest
import torch

from circuits.interventions.identity_surgery import random_rotation
from circuits.interventions.weights import edited
from circuits.studies.symbols.specimen import copied, diagonal_scores, donors
from tests.wired_symbols import comparison, copier
from trained.decoder import Decoder
from trained.errors import BadInput
from trained.seeding import generator
from trained.symbols.model import sizes, transformer
from trained.symbols.sampler import alphabet
from trained.symbols.tasks import task
from trained.task import positions

SIZES = (2.0, 8.0, 32.0)


def state(specimen):
    return {name: t.clone() for name, t in specimen.model.state_dict().items()}


def test_the_wired_model_compares_unseen_symbols():
    specimen = comparison()
    assert specimen.error() == 0
    assert specimen.loss() < 0.05
    assert comparison(0.0).error() > 0.3


def test_knocking_out_a_destroys_the_comparison_in_its_layer_only():
    specimen = comparison()
    before = state(specimen)
    assert specimen.without("a", 0).error() >= 0.3
    assert specimen.without("a").error() >= 0.3
    assert specimen.without("a", 0).loss() > 0.5
    assert specimen.averaged_error() >= 0.3
    with pytest.raises(BadInput, match="unchanged"):
        specimen.without("a", 1)  # there is none
    for name, tensor in state(specimen).items():
        assert torch.equal(tensor, before[name])


def test_an_idle_a_can_be_taken_off():
    specimen = comparison()
    idle = replace(
        specimen,
        model=edited(specimen.model, {"blocks.1.attn.a": lambda a: a + 0.1}),
    )
    assert idle.without("a", 1).error() == 0


def test_a_rotation_of_the_same_size_leaves_the_comparison():
    # x Q x^T is about as large for equal as for different symbols: noise, not a match.
    specimen = comparison(6.0)
    assert specimen.error() == 0
    assert specimen.turned("a", 0).error() < specimen.without("a", 0).error() / 2


def test_queries_that_are_not_used_can_go():
    specimen = comparison()
    noisy = {"blocks.1.attn.W_Q": lambda w: w + 0.1}
    specimen = replace(specimen, model=edited(specimen.model, noisy))
    assert specimen.without("W_Q").error() == specimen.error() == 0


def test_patterns_of_the_comparing_layer_move_the_output():
    specimen = comparison()
    assert specimen.pattern_effect(0, same=False) == pytest.approx(1, abs=0.05)
    # Strings with one label have one pattern, and the second layer attends uniformly:
    # there is nothing to exchange.
    for layer, same in ((0, True), (1, False)):
        with pytest.raises(BadInput, match="unchanged"):
            specimen.pattern_effect(layer, same=same)


def test_labels_at_zero_do_not_dilute_what_patterns_move():
    # A third of the strings with a label in between moved the share to two thirds.
    specimen = comparison()
    strings = specimen.strings["test"]
    targets = strings.targets.clone()
    targets[::3] = 0.0
    other = replace(specimen, strings={"test": replace(strings, targets=targets)})
    assert other.pattern_effect(0, same=False) == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("scalar", ["a", "b"])
def test_a_turned_scalar_is_taken_off_where_it_is_asked(scalar):
    specimen = comparison() if scalar == "a" else copier("scalar")
    before, strings = state(specimen), specimen.strings["test"]
    turned = specimen.turned(scalar, 0)
    rotation = random_rotation(specimen.model.config.d_model, specimen.seed)
    buffer = turned.model.blocks[0].attn.orthogonal
    torch.testing.assert_close(buffer, torch.eye(len(buffer)) - rotation)
    # With I in the place of Q nothing is left of the scalar.
    with torch.no_grad():
        for block in turned.model.blocks:
            block.attn.orthogonal.zero_()
        found = turned.model(strings.tokens)
        expected = specimen.without(scalar).model(strings.tokens)
    torch.testing.assert_close(found, expected)
    for name, tensor in state(specimen).items():
        assert torch.equal(tensor, before[name])


def test_first_rows_of_other_strings_and_fixed_positions():
    specimen = copier("scalar")
    # The first symbol is all there is to copy: another one is named.
    assert specimen.redrawn_error(1) > 0.8
    assert specimen.fixed_position_error() == 0
    assert comparison().redrawn_error(2) > 0.3


def test_the_matching_head_is_seen_where_it_is():
    # Equal symbols share the weight, different ones keep it to themselves.
    assert comparison().match_gap() == pytest.approx(0.5, abs=0.05)
    assert comparison(0.0).match_gap() == pytest.approx(0, abs=1e-6)


def test_an_inserted_a_helps_where_the_rest_is_wired_for_it():
    vanilla = without_scalars(comparison())
    assert vanilla.inserted_change(SIZES) < -0.5
    # Where nothing reads the match it changes nothing.
    deaf = {"blocks.0.attn.W_O": torch.zeros_like}
    deaf = replace(vanilla, model=edited(vanilla.model, deaf))
    assert deaf.inserted_change(SIZES) == pytest.approx(0, abs=1e-6)


def test_raised_scores_are_those_of_a_scalar():
    # c x x^T added by hand is what the trained scalar adds.
    specimen = comparison()
    vanilla, strings = without_scalars(specimen), specimen.strings["test"]
    with torch.no_grad():
        x = vanilla.model.embed(strings.tokens)
        expected = specimen.model(strings.tokens)
        with vanilla.scores_raised("test", 20 * (x @ x.mT)[:, None]):
            found = vanilla.model(strings.tokens)
    torch.testing.assert_close(found, expected)


def without_scalars(specimen):
    """The wired model without its scalars."""
    plain = replace(specimen.model.config, key_query_identity=0.0)
    model = Decoder(plain, generator=generator(0))
    weights = specimen.model.state_dict()
    model.load_state_dict({k: v for k, v in weights.items() if k in model.state_dict()})
    return replace(specimen, model=model.requires_grad_(False).eval())


def test_copying_through_the_scalar_and_through_the_weights():
    scalar, weights, nothing = map(copier, ("scalar", "weights", "nothing"))
    assert scalar.error() == weights.error() == 0
    assert nothing.error() > 0.8
    assert scalar.without("b").error() > 0.8
    assert weights.without("W_O").error() > 0.8
    with pytest.raises(BadInput, match="unchanged"):
        weights.without("b")


def test_answers_that_are_values_of_the_string():
    # The one symbol of a string is its value: a copier names it, a silent model not.
    assert copier("scalar").value_share() == 1
    assert copier("nothing").value_share() < 0.2
    specimen = copier("scalar")
    strings = specimen.strings["test"]
    # Where CLS stands there is no value.
    elsewhere = replace(strings, roles={"values": positions([1], strings.tokens)})
    assert replace(specimen, strings={"test": elsewhere}).value_share() == 0


def test_the_geometry_of_a_head_that_copies_seen_symbols_only():
    specimen = copier("weights")
    assert specimen.cosine_gap() == pytest.approx(0, abs=1e-6)
    model = specimen.model
    basis = torch.linalg.qr(model.W_E[specimen.seen_symbols()].T).Q
    projection = basis @ basis.T
    model.blocks[0].attn.W_V[0] = projection
    torch.testing.assert_close(copied(model), 20 * projection)
    test = specimen.alphabet.ids["test"]
    unseen = model.W_E[test.start : test.stop]
    expected = 1 - ((unseen @ basis).norm(dim=1) / unseen.norm(dim=1)).mean()
    assert specimen.cosine_gap() == pytest.approx(float(expected), abs=1e-5)
    # Only what lies in the span of seen symbols is copied.
    assert specimen.span_error("seen") < specimen.span_error("rest")
    assert specimen.span_error("rest") > 0.8
    assert specimen.span_error("random") >= specimen.span_error("seen")


def test_a_head_that_copies_everything_copies_from_any_span():
    specimen = copier("scalar")
    assert specimen.cosine_gap() == pytest.approx(0, abs=1e-6)
    assert specimen.span_error("seen") < 0.5


def test_diagonals_of_weights_without_the_scalars():
    specimen = copier("weights")
    assert specimen.joint_value_output_score() == pytest.approx(40)
    specimen.model.blocks[0].ln1.layer.weight.mul_(-2)
    assert specimen.joint_value_output_score() == pytest.approx(-40)


def test_gains_do_not_change_how_diagonal_scores_are_in_size():
    tokens = alphabet(task("same_different"), 8)
    shape = sizes(tokens, "none", multiplier=1.0, width=(16, 2, 8), depth=2, d_mlp=8)
    model = transformer(shape, generator=generator(0)).requires_grad_(False)
    before = diagonal_scores(model, "qk")
    model.blocks[1].ln1.layer.weight.fill_(3.0)
    torch.testing.assert_close(diagonal_scores(model, "qk"), before)
    model.blocks[1].attn.W_K.copy_(model.blocks[1].attn.W_Q)
    assert bool((diagonal_scores(model, "qk")[1] > 4).all())


def test_donors_are_others_with_the_asked_label():
    labels = torch.tensor([0, 0, 1, 1, 1])
    for same in (True, False):
        order = donors(labels, same=same, generator=generator(0))
        assert torch.equal(labels[order] == labels, torch.full((5,), same))
        assert bool((order != torch.arange(5)).all())

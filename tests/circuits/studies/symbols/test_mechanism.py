"""Edits and signals on models that are wired by hand, with and without a circuit."""

from dataclasses import replace

import pytest
import torch

from circuits.studies.symbols.causal import (
    error_averaged,
    error_without,
    error_without_queries,
    inserted_change,
    loss_without,
    unseen_error,
    unseen_loss,
)
from circuits.studies.symbols.copying import (
    copied,
    cosine_gap,
    error_without_both,
    error_without_output,
    seen_symbols,
    span_error,
)
from circuits.studies.symbols.diagonals import (
    joint_score,
    key_query,
    mean_head_score,
    value_output,
)
from circuits.studies.symbols.edits import (
    donors,
    fresh_symbols,
    held,
    permuted,
    with_matching,
)
from circuits.studies.symbols.exchange import (
    fresh_change,
    permuted_change,
    scattered_change,
    with_fresh_seen,
)
from circuits.studies.symbols.patterns import match_gap, pattern_effect
from circuits.studies.symbols.recall import value_places
from probes.weights import diagonal_score
from tests.wired_symbols import comparison, copier
from trained.decoder import Decoder
from trained.seeding import generator
from trained.symbols.sampler import alphabet
from trained.symbols.scores import error
from trained.symbols.tasks import task
from trained.symbols.transformer import sizes, transformer


def state(specimen):
    return {name: t.clone() for name, t in specimen.model.state_dict().items()}


def test_the_wired_model_compares_unseen_symbols():
    specimen = comparison()
    assert unseen_error(specimen) == 0
    assert unseen_loss(specimen) < 0.05


def test_knocking_out_a_destroys_the_comparison_in_its_layer_only():
    specimen = comparison()
    before = state(specimen)
    assert error_without(specimen, "a", range(1)) >= 0.3
    assert error_without(specimen, "a", range(1, 2)) == 0
    assert error_averaged(specimen, "a", range(1)) >= 0.3
    assert error_averaged(specimen, "a", range(1, 2)) == 0
    assert error_without_queries(specimen) == 0  # its queries are not used
    assert loss_without(specimen) > 0.5
    for name, tensor in state(specimen).items():
        assert torch.equal(tensor, before[name])


def test_patterns_of_the_comparing_layer_move_the_output():
    specimen = comparison()
    assert pattern_effect(specimen, 0, same=False) == pytest.approx(1, abs=0.05)
    assert abs(pattern_effect(specimen, 0, same=True)) < 0.05
    # The second layer attends uniformly: there is nothing to exchange.
    assert abs(pattern_effect(specimen, 1, same=False)) < 1e-6


def test_the_matching_head_is_seen_where_it_is():
    # Equal symbols share the weight, different ones keep it to themselves.
    assert match_gap(comparison()) == pytest.approx(0.5, abs=0.05)
    assert match_gap(comparison(0.0)) == pytest.approx(0, abs=1e-6)


def test_symbols_are_arbitrary_to_the_wired_models():
    assert permuted_change(comparison()) < 0.05
    assert scattered_change(comparison()) > 0.5
    specimen = copier("scalar")
    before = state(specimen)
    scattered = scattered_change(specimen)
    assert scattered > 0.5
    assert max(fresh_change(specimen), permuted_change(specimen)) < scattered / 10
    for name, tensor in state(specimen).items():
        assert torch.equal(tensor, before[name])


def test_an_inserted_a_helps_where_the_rest_is_wired_for_it():
    specimen = comparison()
    vanilla = transformer_without(specimen)
    assert inserted_change(vanilla) < -0.5
    # Where nothing reads the match it changes nothing.
    with held([vanilla.model.blocks[0].attn.W_O]):
        assert inserted_change(vanilla) == pytest.approx(0, abs=1e-6)


def transformer_without(specimen):
    """The wired model without its scalars."""
    plain = replace(specimen.model.config, key_query_identity=0.0)
    model = Decoder(plain, generator=generator(0))
    weights = specimen.model.state_dict()
    model.load_state_dict({k: v for k, v in weights.items() if k in model.state_dict()})
    return replace(specimen, model=model.requires_grad_(False).eval())


def test_a_size_of_zero_inserts_nothing():
    specimen = transformer_without(comparison())
    strings = specimen.strings["test"]
    edited = with_matching(specimen.model, 0.0)
    assert torch.equal(edited(strings.tokens), specimen.model(strings.tokens))


def test_copying_through_the_scalar_and_through_the_weights():
    scalar, weights, nothing = map(copier, ("scalar", "weights", "nothing"))
    assert unseen_error(scalar) == unseen_error(weights) == 0
    assert unseen_error(nothing) > 0.8
    assert error_without(scalar, "b", range(1)) > 0.8
    assert error_averaged(scalar, "b", range(1)) > 0.8
    assert error_without(weights, "b", range(1)) == 0
    assert error_averaged(weights, "b", range(1)) == 0
    assert error_without_output(scalar) == 0
    assert error_without_output(weights) > 0.8
    assert error_without_both(scalar) > 0.8


def test_fresh_vectors_do_not_matter_to_a_copier_that_does_not_memorise():
    assert with_fresh_seen(copier("scalar"), error) == 0
    assert with_fresh_seen(copier("nothing"), error) > 0.8


def test_the_geometry_of_a_head_that_copies_seen_symbols_only():
    specimen = copier("weights")
    assert cosine_gap(specimen) == pytest.approx(0, abs=1e-6)
    model = specimen.model
    basis = torch.linalg.qr(model.W_E[seen_symbols(specimen)].T).Q
    projection = basis @ basis.T
    model.blocks[0].attn.W_V[0] = projection
    torch.testing.assert_close(copied(model), 20 * projection)
    test = specimen.alphabet.ids["test"]
    unseen = model.W_E[test.start : test.stop]
    expected = 1 - ((unseen @ basis).norm(dim=1) / unseen.norm(dim=1)).mean()
    assert cosine_gap(specimen) == pytest.approx(float(expected), abs=1e-5)
    # Only what lies in the span of seen symbols is copied.
    inside = span_error(specimen, inside=True)
    outside = span_error(specimen, inside=False)
    assert inside < outside
    assert outside > 0.8


def test_diagonals_of_weights_without_the_scalars():
    specimen = copier("weights")
    for score in (joint_score, mean_head_score):
        assert score(specimen) == pytest.approx(40)
    specimen.model.blocks[0].ln1.layer.weight.mul_(-2)
    for score in (joint_score, mean_head_score):
        assert score(specimen) == pytest.approx(-40)
    assert float(diagonal_score(key_query(specimen.model))) == 0
    assert value_output(copier("scalar").model).abs().max() == 0


def test_gains_scale_both_sides_of_the_scores():
    tokens = alphabet(task("same_different"), 8)
    shape = sizes(tokens, "none", multiplier=1.0, width=(16, 2, 8), depth=2, d_mlp=8)
    model = transformer(shape, generator=generator(0)).requires_grad_(False)
    before = key_query(model)
    model.blocks[1].ln1.layer.weight.fill_(3.0)
    torch.testing.assert_close(key_query(model)[1], 9 * before[1])
    torch.testing.assert_close(key_query(model)[0], before[0])


def test_donors_are_others_with_the_asked_label():
    labels = torch.tensor([0, 0, 1, 1, 1])
    for same in (True, False):
        order = donors(labels, same=same, generator=generator(0))
        assert torch.equal(labels[order] == labels, torch.full((5,), same))
        assert bool((order != torch.arange(5)).all())


def test_permuted_strings_keep_their_equalities():
    specimen = copier("scalar")
    ids = specimen.alphabet.ids["test"]
    strings = specimen.strings["test"]
    other = permuted(strings, ids, generator=generator(0))
    assert torch.equal(other.targets, other.tokens[:, 0])
    assert torch.equal(other.tokens[:, 1], strings.tokens[:, 1])
    assert set(other.tokens[:, 0].tolist()) <= set(ids)
    assert not torch.equal(other.tokens, strings.tokens)


def test_weights_come_back_after_an_exception():
    specimen = comparison()
    before = state(specimen)
    attention = specimen.model.blocks[0].attn
    with pytest.raises(RuntimeError), held([attention.a], 3.0):
        raise RuntimeError
    ids = specimen.alphabet.ids["test"]
    with (
        pytest.raises(RuntimeError),
        fresh_symbols(specimen.model, ids, generator=generator(0)),
    ):
        raise RuntimeError
    for name, tensor in state(specimen).items():
        assert torch.equal(tensor, before[name])


def test_where_values_stand():
    assert value_places(task("recall")) == [1, 3]
    assert value_places(task("copy")) == [0]

"""The networks against torch's own, by hand and at their limits; their scores."""

import pytest
import torch

from probes.weights import diagonal_score
from trained.seeding import generator
from trained.symbols.model import (
    Perceptron,
    Recurrent,
    sizes,
    start_near_identity,
    transformer,
)
from trained.symbols.sampler import alphabet, sample
from trained.symbols.scores import (
    alphabet_error,
    answers,
    area_of,
    area_score,
    error,
    loss,
    wrong,
)
from trained.symbols.tasks import task

TOKENS = alphabet(task("same_different"), 8)
TEST = sample(TOKENS, "test", 40, generator=generator(0))


def mlp(incidence):
    model = Perceptron(TOKENS, width=6, incidence=incidence, generator=generator(1))
    return model.requires_grad_(False)


def test_an_mlp_sees_unseen_symbols_through_untrained_weights_only():
    model = mlp("none")
    with torch.no_grad():
        test = TOKENS.ids["test"]
        for place in range(2):
            start = place * TOKENS.d_vocab
            model.tokens[start + test.start : start + test.stop] = 0
    said = model(TEST.tokens)
    assert torch.equal(said, said[:1].expand_as(said))


def test_the_incidence_matrix_lets_it_tell_same_from_different():
    model = mlp("own")
    with torch.no_grad():
        model.tokens.zero_()
    said = answers(model, TEST)[:, 0]
    same = TEST.targets > 0
    assert float(said[same].std()) == pytest.approx(0, abs=1e-6)
    assert float((said[same].mean() - said[~same].mean()).abs()) > 1e-4


def test_the_incidence_matrix_of_another_string_says_nothing():
    own, foreign = mlp("own"), mlp("foreign")
    with torch.no_grad():
        for model in (own, foreign):
            model.tokens.zero_()
    said = answers(foreign, TEST)[:, 0]
    assert torch.equal(said, answers(own, TEST)[:, 0].roll(1))


def test_the_one_hot_layer_is_a_matrix_product():
    model = mlp("none")
    hot = torch.nn.functional.one_hot(TEST.tokens[:, :-1], TOKENS.d_vocab)
    first = hot.flatten(1).float() @ model.tokens + model.bias
    second = first.relu() @ model.hidden + model.hidden_bias
    expected = second.relu() @ model.readout + model.readout_bias
    torch.testing.assert_close(model(TEST.tokens)[:, 0], expected)


def test_the_lstm_is_torchs():
    model = Recurrent(TOKENS, width=5, cell="lstm", generator=generator(2))
    theirs = torch.nn.LSTM(5, 5, batch_first=True)
    # Torch orders the gates input, forget, cell, output; ours keep, write, show, new.
    order = torch.cat([torch.arange(5) + 5 * gate for gate in (1, 0, 3, 2)])
    with torch.no_grad():
        theirs.weight_ih_l0.copy_(model.inward.mT[order])
        theirs.weight_hh_l0.copy_(model.again.mT[order])
        theirs.bias_ih_l0.zero_()
        theirs.bias_hh_l0.zero_()
    states, _ = theirs(model.W_E[TEST.tokens])
    expected = states[:, -1] @ model.readout + model.readout_bias
    torch.testing.assert_close(answers(model, TEST), expected)


def test_the_rnn_is_torchs():
    model = Recurrent(TOKENS, width=5, cell="rnn", generator=generator(2))
    theirs = torch.nn.RNN(5, 5, batch_first=True, bias=False)
    with torch.no_grad():
        theirs.weight_ih_l0.copy_(model.inward.mT)
        theirs.weight_hh_l0.copy_(model.again.mT)
    states, _ = theirs(model.W_E[TEST.tokens])
    expected = states[:, -1] @ model.readout + model.readout_bias
    torch.testing.assert_close(answers(model, TEST), expected)


class Says(torch.nn.Module):
    """Says the same thing at CLS of every string."""

    def __init__(self, said):
        super().__init__()
        self.said = torch.tensor(said)

    def forward(self, tokens):
        return self.said.expand(len(tokens), 1, -1)


def test_scores_by_hand():
    constant = Says([0.0])
    assert float(loss(constant, TEST)) == pytest.approx(1)
    assert float(error(Says([0.5]), TEST)) == float((TEST.targets < 0).float().mean())
    copies = alphabet(task("copy"), 2, n_held_out=1)
    strings = sample(copies, "test", 3, generator=generator(4))
    # Ids: train 0-1, validation 2, test 3, CLS 4, whose logit is left out.
    says = Says([0.0, 2.0, 0.0, 1.0, 9.0])
    assert float(error(says, strings)) == 1
    assert float(alphabet_error(says, strings, among=copies.ids["test"])) == 0


def test_an_answer_is_right_if_it_is_nearest_to_its_label():
    # Perfect answers on three labels used to score .33, for 0 has no sign.
    labels = (-1.2247, 0.0, 1.2247)
    targets = torch.tensor(labels)
    assert not wrong(targets[:, None], targets, labels).any()
    # Answers of the right sign on four labels used to score 0.
    four = (-3.0, -1.0, 1.0, 3.0)
    said = torch.tensor([[-1.0], [-1.0], [1.0], [1.0]])
    found = wrong(said, torch.tensor(four), four)
    assert found.tolist() == [True, False, False, True]
    # A tie is wrong, and so is what is no number.
    odd = torch.tensor([[0.0], [torch.nan]])
    assert wrong(odd, torch.tensor([1.0, 1.0]), (-1.0, 1.0)).all()


def test_areas_by_hand():
    constant = Says([0.5])
    assert float(area_of(constant, TEST)) == 0.5
    symbols = TOKENS.ids["test"]
    assert float(area_score(constant, TEST, symbols=symbols)) == 0
    right = torch.nn.Module()
    right.forward = lambda tokens: (tokens[:, 0] == tokens[:, 1]).float()[:, None, None]
    assert float(area_of(right, TEST)) == 1
    assert float(area_score(right, TEST, symbols=symbols)) > 100


def test_an_area_of_chance_is_a_few_standard_errors_from_one_half():
    found = []
    for seed in range(40):
        strings = sample(TOKENS, "test", 200, generator=generator(seed))
        values = torch.randn(TOKENS.d_vocab, generator=generator(seed, "values"))
        guesses = torch.nn.Module()
        # It knows the symbols, not the relation: strings that share one are alike.
        guesses.forward = lambda t, v=values: (v[t[:, 0]] + v[t[:, 1]])[:, None, None]
        symbols = TOKENS.ids["test"]
        found.append(float(area_score(guesses, strings, symbols=symbols)))
    assert 0.6 < float(torch.tensor(found).std()) < 1.4
    assert max(map(abs, found)) < 4


def test_only_cls_is_read():
    model, strings = build("recall")
    full = model(strings.tokens)[:, -1, :-1]
    torch.testing.assert_close(answers(model, strings), full)


SHAPE = {"multiplier": 10.0, "width": (16, 2, 8), "depth": 2, "d_mlp": 32}


def build(name="same_different", identity="none", **changes):
    tokens = alphabet(task(name), 12)
    shape = sizes(tokens, identity, **{**SHAPE, **changes})
    strings = sample(tokens, "test", 30, generator=generator(3))
    model = transformer(shape, generator=generator(0)).requires_grad_(False)
    return model, strings


@pytest.mark.parametrize("name", ["same_different", "recall"])
@pytest.mark.parametrize("identity", ["a", "b", "ab", "a_scores"])
def test_scalars_at_zero_are_the_vanilla_model_bit_for_bit(name, identity):
    plain, strings = build(name)
    changed, _ = build(name, identity)
    assert torch.equal(plain(strings.tokens), changed(strings.tokens))
    with torch.no_grad():
        changed.blocks[0].attn.get_parameter(identity[0]).fill_(0.1)
    assert not torch.equal(plain(strings.tokens), changed(strings.tokens))


def test_real_labels_are_one_number_and_symbols_are_tied():
    model, strings = build("same_different")
    assert model(strings.tokens).shape == (30, 3, 1)
    tied, strings = build("recall")
    assert torch.equal(tied.W_U, tied.W_E.mT)
    assert tied(strings.tokens).shape[-1] == tied.config.d_vocab


def test_the_first_position_sees_the_last_one():
    model, strings = build()
    other = strings.tokens.clone()
    other[:, 1] = other[:, 0]
    changed = (model(other) - model(strings.tokens))[:, 0].abs()
    different = strings.tokens[:, 1] != strings.tokens[:, 0]
    assert bool((changed[different] > 0).all())


def test_weights_start_as_torch_starts_them():
    model, _ = build(width=(64, 4, 16), d_mlp=128)
    std = float(model.blocks[0].attn.W_Q.std())
    assert std == pytest.approx((3 * 64) ** -0.5, rel=0.05)
    assert float(model.W_E.std()) == pytest.approx(1, rel=0.05)
    large = transformer(model.config, scale=8.0, generator=generator(0))
    ratio = large.blocks[1].mlp.W_in / model.blocks[1].mlp.W_in
    torch.testing.assert_close(ratio, torch.full_like(ratio, 8.0))
    assert torch.equal(large.unembedding, model.unembedding)


def test_mimetic_initialisation_is_diagonal_and_the_default_is_not():
    model, _ = build(width=(32, 2, 32))

    def scores(of):
        attention = of.blocks[0].attn
        return diagonal_score(attention.W_Q @ attention.W_K.mT)

    assert bool((scores(model).abs() < 4).all())
    near = start_near_identity(model, 0.7, generator=generator(1))
    # 0.7 Z + 0.7 I with Z of unit variance per row: z = d / sqrt(2).
    expected = torch.full((2,), 32 / 2**0.5)
    torch.testing.assert_close(scores(near), expected, rtol=0.1, atol=0)
    attention = near.blocks[0].attn
    product = (attention.W_Q @ attention.W_K.mT) / 32**0.5
    assert float(product.diagonal(dim1=1, dim2=2).mean()) == pytest.approx(0.7, abs=0.1)


def test_orthogonal_matching_is_not_the_identity():
    model, strings = build(identity="aQ")
    rotation = model.blocks[0].attn.orthogonal
    torch.testing.assert_close(rotation @ rotation.mT, torch.eye(16))
    identity, _ = build(identity="a")
    for one in (model, identity):
        with torch.no_grad():
            one.blocks[0].attn.a.fill_(0.1)
    assert not torch.allclose(model(strings.tokens), identity(strings.tokens))

import pytest
import torch

from trained.seeding import generator
from trained.symbols.baselines import Perceptron, Recurrent
from trained.symbols.sampler import alphabet, sample
from trained.symbols.scores import alphabet_error, answers, error, loss
from trained.symbols.tasks import task

TOKENS = alphabet(task("same_different"), 8)
TEST = sample(TOKENS, "test", 40, generator=generator(0))


def mlp(incidence):
    model = Perceptron(TOKENS, width=6, incidence=incidence, generator=generator(1))
    return model.requires_grad_(False)


def test_an_mlp_sees_unseen_symbols_through_untrained_weights_only():
    model = mlp(incidence=False)
    with torch.no_grad():
        test = TOKENS.ids["test"]
        for place in range(2):
            start = place * TOKENS.d_vocab
            model.tokens[start + test.start : start + test.stop] = 0
    said = model(TEST.tokens)
    assert torch.equal(said, said[:1].expand_as(said))


def test_the_incidence_matrix_lets_it_tell_same_from_different():
    model = mlp(incidence=True)
    with torch.no_grad():
        model.tokens.zero_()
    said = answers(model, TEST)[:, 0]
    same = TEST.targets > 0
    assert float(said[same].std()) == pytest.approx(0, abs=1e-6)
    assert float((said[same].mean() - said[~same].mean()).abs()) > 1e-4


def test_the_one_hot_layer_is_a_matrix_product():
    model = mlp(incidence=False)
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

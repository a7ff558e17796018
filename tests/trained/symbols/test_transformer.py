import pytest
import torch

from probes.weights import diagonal_score
from trained.seeding import generator
from trained.symbols.sampler import alphabet, sample
from trained.symbols.tasks import task
from trained.symbols.transformer import sizes, start_near_identity, transformer

SHAPE = {"multiplier": 10.0, "width": (16, 2, 8), "depth": 2, "d_mlp": 32}


def build(name="same_different", identity="none", **changes):
    tokens = alphabet(task(name), 12)
    shape = sizes(tokens, identity, **{**SHAPE, **changes})
    strings = sample(tokens, "test", 30, generator=generator(3))
    model = transformer(shape, generator=generator(0)).requires_grad_(False)
    return model, strings


@pytest.mark.parametrize("name", ["same_different", "recall"])
@pytest.mark.parametrize("identity", ["a", "b", "ab"])
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
    near = start_near_identity(model, generator=generator(1))
    # 0.7 Z + 0.7 I with Z of unit variance per row: z = d / sqrt(2).
    expected = torch.full((2,), 32 / 2**0.5)
    torch.testing.assert_close(scores(near), expected, rtol=0.1, atol=0)
    attention = near.blocks[0].attn
    product = (attention.W_Q @ attention.W_K.mT) / 32**0.5
    assert float(product.diagonal(dim1=1, dim2=2).mean()) == pytest.approx(0.7, abs=0.1)


def test_orthogonal_matching_is_not_the_identity():
    model, strings = build(identity="orthogonal")
    rotation = model.blocks[0].attn.orthogonal
    torch.testing.assert_close(rotation @ rotation.mT, torch.eye(16))
    identity, _ = build(identity="a")
    for one in (model, identity):
        with torch.no_grad():
            one.blocks[0].attn.a.fill_(0.1)
    assert not torch.allclose(model(strings.tokens), identity(strings.tokens))

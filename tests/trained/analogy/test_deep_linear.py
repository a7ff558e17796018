import torch

from trained.analogy.config import Config
from trained.analogy.deep_linear import DeepLinear, arms, examples
from trained.seeding import generator

CONFIG = Config(linear_layers=4, linear_width=64)


def test_untrained_it_is_the_identity_below_its_head():
    model = DeepLinear(32, 4, 3, generator=generator(0, "test"))
    tokens = torch.arange(8)[:, None]
    assert torch.allclose(model(tokens)[:, 0], model.W_E[:, :4], atol=1e-6)


def test_two_inputs_share_each_label():
    data = examples(3)
    assert data.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert data.tokens.shape == (6, 1)


def test_layers_take_turns_from_the_bottom():
    (arm,) = arms(CONFIG)
    assert [stage.trainable for stage in arm.stages] == [
        ("blocks.0.*",),
        ("blocks.1.*",),
        ("blocks.2.*",),
    ]
    assert len(arm.build(0).blocks) == 3


def test_inputs_are_orthonormal_and_depend_on_the_seed():
    (arm,) = arms(CONFIG)
    one, other = arm.build(0).W_E, arm.build(1).W_E
    assert torch.allclose(one @ one.T, torch.eye(len(one)), atol=1e-5)
    assert not torch.allclose(one, other)

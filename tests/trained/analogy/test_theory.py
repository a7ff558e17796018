from functools import cache

import pytest
import torch

from probes.alignment import paired_cosine
from trained.analogy.config import BlockSizes, Values
from trained.analogy.model import LinearBlock
from trained.analogy.task import curriculum, premise_loss, value_features
from trained.analogy.theory import Alignment
from trained.seeding import generator

VALUES = Values()
SIZES = BlockSizes(30, 150)
LAW = Alignment(SIZES, VALUES)


@cache
def after_stage_1(name, k):
    taught = curriculum(name, k)
    world = taught.world(SIZES.n_entities)
    source = generator(11, "law", name)
    model = LinearBlock(
        world.size,
        SIZES.d_model,
        n_neurons=SIZES.n_neurons,
        std=SIZES.init_std,
        generator=source,
    )
    premises = world.phase(taught.phases[0])
    parameters = list(model.blocks[0].attn.parameters())
    for _ in range(VALUES.steps):
        loss = premise_loss(model, premises)
        for tensor, slope in zip(
            parameters, torch.autograd.grad(loss, parameters), strict=True
        ):
            tensor.data -= LAW.rate * slope
    return model, world.conclusions()


def cosine(name, k=3):
    model, asked = after_stage_1(name, k)
    states = (value_features(model, prompts) for prompts in (asked.known, asked.test))
    return paired_cosine(*states).mean().item()


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5])
def test_joint_training_follows_the_law(k):
    assert cosine("joint", k) == pytest.approx(LAW.joint(k), abs=0.02)


def test_similarity_first_follows_the_law():
    assert cosine("SA") == pytest.approx(LAW.similarity_first(), abs=0.02)


def test_the_bridge_follows_the_law():
    assert cosine("bridge") == pytest.approx(LAW.joint(3), abs=0.02)


@pytest.mark.parametrize("name", ["AS_T", "AS_E", "no_bridge", "permuted"])
def test_without_a_shared_label_cosines_stay_at_zero(name):
    assert abs(cosine(name)) <= LAW.zero + 0.01


def test_the_papers_cosines_fix_k():
    """rho from the SA cosine 0.9689 predicts Table 5 at k = 1, 3, 5."""
    law = Alignment(BlockSizes(100, 512), VALUES)
    predicted = [law.joint(k) for k in (1, 3, 5)]
    assert predicted == pytest.approx([0.6706, 0.9202, 0.9405], abs=0.02)


def test_it_depends_on_neither_width_nor_size_at_the_scaled_rate():
    paper = Alignment(BlockSizes(100, 512), VALUES).joint(3)
    for n, d in ((60, 300), (30, 150), (80, 400)):
        assert Alignment(BlockSizes(n, d), VALUES).joint(3) == pytest.approx(paper)


def test_more_copies_align_more_and_noise_less():
    values = [LAW.joint(k) for k in range(1, 8)]
    assert values == sorted(values)
    noisy = Alignment(BlockSizes(30, 150, n_neurons=40), VALUES)
    assert noisy.joint(3) < LAW.joint(3)

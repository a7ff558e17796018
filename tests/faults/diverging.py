"""A study one of whose seeds comes to nothing."""

import math
from dataclasses import replace

import torch
from torch import Tensor

from tests import toy
from trained.arm import Arm

SPOILT = toy.Net(1).shift[0]


def spoilt_error(model: toy.Net, data: dict[str, Tensor]) -> Tensor:
    """Not a number for the nets of seed 1."""
    spoilt = model.shift[0] == SPOILT
    return toy.squared_error(model, data) + torch.where(spoilt, math.nan, 0.0)


def study_arms(config: toy.Config) -> tuple[Arm, ...]:
    """The toy study's two arms, the first of them with the spoilt loss."""
    first, second = toy.study_arms(config)
    return replace(first, stages=(toy.net_stage(loss=spoilt_error),)), second


STUDY = replace(
    toy.study(toy.SIZE, toy.NEGATIVE, slug="diverging"), arms_part=study_arms
)

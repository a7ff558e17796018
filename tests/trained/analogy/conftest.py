"""Small matrices: one core is faster than two."""

import pytest
import torch


@pytest.fixture(scope="module", autouse=True)
def _one_core():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)

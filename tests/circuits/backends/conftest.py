"""Every layout behind every backend; all families are in test_doctor."""

import pytest

from tests.random_models import LAYOUTS


@pytest.fixture(params=LAYOUTS)
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["hf", "bridge", "nnsight"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["bridge", "nnsight"])
def other(request: pytest.FixtureRequest) -> str:
    """A backend to compare with hf."""
    return str(request.param)


@pytest.fixture(params=["left", "right"])
def side(request: pytest.FixtureRequest) -> str:
    """Where the padding is."""
    return str(request.param)

import doctest
import importlib
import pkgutil

import pytest

import probes

MODULES = [module.name for module in pkgutil.iter_modules(probes.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_hold(name):
    module = importlib.import_module(f"probes.{name}")
    assert doctest.testmod(module).failed == 0

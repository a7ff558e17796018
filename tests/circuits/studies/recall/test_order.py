import pytest
import torch
from threadpoolctl import threadpool_limits

from circuits.claims import judge
from circuits.studies.recall import order
from circuits.studies.recall.claims_causal import order as order_claims
from circuits.studies.recall.context import Context
from trained.recall.config import Config

from .test_causal import absent, known, planted

CONFIG = Config(n_subjects=5, n_relations=20, n_test=400)


@pytest.fixture(autouse=True)
def _quick_probes(monkeypatch):
    monkeypatch.setattr(order, "PROBE_PROMPTS", 400)
    with threadpool_limits(1):
        yield


def verdicts(path, config, build):
    observed = order.observe(Context(planted(path, config, build)))
    return {v.claim.id: v for v in judge(tuple(order_claims(config)), observed)}


def test_the_memory_creates_the_relation_and_not_the_answer(tmp_path):
    found = verdicts(tmp_path / "run", CONFIG, known)
    answer = found.pop("recall.order.answer-probe")
    for key, verdict in found.items():
        assert verdict.passed, (key, verdict.observed)
    # 100 test prompts and a chance of 1/3: three standard errors are .14.
    assert abs(answer.mean) < 0.14
    assert answer.control_passed


def lens(path, build):
    """The lens alone: the probes take most of the time."""
    observed = order._lens(Context(planted(path, CONFIG, build)))
    claims = [c for c in order_claims(CONFIG) if c.id in observed]
    return {v.claim.id: v for v in judge(claims, observed)}


def test_without_the_memory_the_lens_reads_nothing(tmp_path):
    found = lens(tmp_path / "run", absent)
    assert not found["recall.order.relation-before-memory"].control_passed
    assert not found["recall.order.answer-after-memory"].control_passed


def test_a_memory_that_names_the_answer_is_noticed(tmp_path):
    def leaky(table, seed):
        model = known(table, seed)
        n = table.shape[1]
        source = torch.Generator().manual_seed(seed)
        noise = torch.randn(3 * n * n, model.W_E.shape[1], generator=source)
        model.memory.W_out.data += noise
        return model

    found = lens(tmp_path / "run", leaky)
    assert not found["recall.order.answer-after-memory"].value_passed


@pytest.mark.parametrize("n", [3, 4])
def test_small_vocabularies_have_no_answer_probe(tmp_path, n):
    config = Config(n_subjects=n, n_relations=6, n_test=200)
    found = verdicts(tmp_path / "run", config, known)
    assert "recall.order.answer-probe" not in found
    assert found["recall.order.relation-before-memory"].passed

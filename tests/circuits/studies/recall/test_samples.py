import pytest
import torch

from circuits.studies.recall import samples
from circuits.studies.recall.claims_figures import figure3
from circuits.studies.recall.context import Context
from trained.recall.config import Config
from trained.recall.scores import PositionScores

from .test_evidence import trained

CONFIG = Config(
    n_subjects=5,
    n_relations=20,
    sample_sizes=(1, 4),
    sample_tables=("affine", "6"),
    sample_modes=("partial", "full-gd"),
    full_steps=1,
    n_test=300,
)
SEEDS = (0, 1)


@pytest.fixture(scope="module")
def context(tmp_path_factory):
    return Context(trained(tmp_path_factory.mktemp("samples") / "run", CONFIG, SEEDS))


def relative(context, table, *weights):
    """Accuracy over the ceiling of attention that is set by hand."""
    model = PositionScores(2)
    model.theta.data = torch.tensor(weights).clamp_min(1e-26).log()
    return samples._relative(context, table, 0, model)


def test_accuracy_over_the_ceiling_of_known_attention(context):
    pairwise = (0.18, 0.18, 0.32, 0.32, 0.0, 0.0)
    crossed = (0.32, 0.18, 0.18, 0.32, 0.0, 0.0)
    assert relative(context, "affine", *pairwise) == pytest.approx(1)
    assert relative(context, "affine", *crossed) == 0
    # The ceiling of a random table is below one, and pairwise attention reaches it.
    assert relative(context, "6", *pairwise) == pytest.approx(1, abs=1e-5)


def test_the_baselines(context):
    affine = samples.baselines(context, "affine")
    assert affine["uniform"] == pytest.approx([1 / 6, 1 / 6])
    assert affine["saddle"] == pytest.approx([1 / 2, 1 / 2])
    random = samples.baselines(context, "6")
    assert all(
        u < s < 1 for u, s in zip(random["uniform"], random["saddle"], strict=True)
    )


def test_hardly_trained_position_scores_are_at_the_uniform_baseline(context):
    values = samples.accuracies(context, "affine", "partial", 4)
    assert len(values) == 2
    # Twenty steps: the two pairs are still equal, so at best the saddle's half.
    assert max(values) <= 1 / 2 + 1e-6


def test_observations_are_those_of_the_claims(context):
    observed = samples.observe(context)
    assert observed.keys() == {claim.id for claim in figure3(CONFIG)}
    uniform = tuple(samples.baselines(context, "affine")["uniform"])
    assert observed["recall.fig3.affine.partial"].control == uniform
    one_prompt = tuple(samples.accuracies(context, "affine", "full-gd", 1))
    assert observed["recall.fig3.affine.full-gd"].control == one_prompt


def test_the_learning_curve_is_labelled(context):
    curve = samples.learning_curve(context, "6")
    assert curve.axes == ("mode", "prompts", "seed")
    assert curve.values.shape == (2, 2, 2)
    assert curve.labels["mode"] == ("partial", "full-gd")
    assert curve.labels["prompts"] == (1, 4)
    expected = samples.accuracies(context, "6", "full-gd", 4)
    assert curve.values[1, 1].tolist() == pytest.approx(expected)

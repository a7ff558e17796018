import pytest
from matplotlib.figure import Figure

from circuits.studies.recall.figures import FIGURES, attention_measurement, key_labels
from probes.figures import save
from trained.errors import BadInput
from trained.recall import setting
from trained.recall.config import Config

from .test_causal import known
from .test_evidence import cut_short, small, trained

CONFIG = small(
    n_subjects=7,
    n_relations=12,
    sample_sizes=(1, 2),
    sample_tables=("affine", "5"),
    triple_steps=1,
    pretrained_steps=1,
)


@pytest.fixture(autouse=True)
def _cut_short(monkeypatch):
    cut_short(monkeypatch)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("figures") / "run", CONFIG)


@pytest.mark.parametrize("kind", FIGURES)
def test_every_figure_is_drawn_with_titles(run, tmp_path, kind):
    figure = FIGURES[kind](run)
    assert isinstance(figure, Figure)
    drawn = [ax for ax in figure.axes if ax.has_data() and ax.get_label() == ""]
    assert drawn
    assert all(ax.get_title() for ax in drawn)
    file = save(figure, tmp_path / f"{kind}.png", dpi=40)
    assert file.stat().st_size > 1000


def test_the_attention_figure_has_a_panel_per_model(run):
    titles = [ax.get_title() for ax in FIGURES["attention"](run).axes]
    for mode in ("partial", "full"):
        for kind in ("affine", "random"):
            assert any(t.startswith(f"{mode} fine-tuning, {kind}") for t in titles)
    for model in (
        *("three examples", "pretrained", "pretrained, cold"),
        "pretrained, three examples, 0.06",
    ):
        assert f"{model}, full fine-tuning" in titles


def test_keys_are_named():
    assert key_labels(2) == ("s1", "a1", "s2", "a2", "s3", "EoS", "r*")
    assert key_labels(3)[-4:] == ("a3", "s4", "EoS", "r*")


def test_the_attention_measurement_leaves_the_missing_token_blank():
    table = setting.table_of(Config(), "affine", 0)
    prompts = setting.unseen_prompts(table, 2, 50, 0)
    measured = attention_measurement(known(table), prompts)
    assert measured.values.shape == (2, 7)
    assert measured.values[0, -1].isnan()
    wanted = [0.18, 0.18, 0.32, 0.32, 0, 0]
    assert measured.values[0, :-1].tolist() == pytest.approx(wanted, abs=1e-6)
    assert float(measured.values[1].sum()) == pytest.approx(1, abs=1e-6)


def test_figures_of_three_examples(tmp_path):
    """Interventions are written for two examples; the other figures are not."""
    config = small(n_subjects=5, n_relations=20, n_examples=3)
    run = trained(tmp_path / "run", config)
    for kind in ("attention", "dynamics", "prompts"):
        assert FIGURES[kind](run).axes
    with pytest.raises(BadInput):
        FIGURES["causes"](run)

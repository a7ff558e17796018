import pytest

from circuits.studies.analogy.figures import FIGURES
from probes.figures import save
from trained.analogy.config import Config
from trained.errors import BadInput

from .conftest import trained


@pytest.mark.parametrize("kind", FIGURES)
def test_every_figure_is_drawn(kind, tiny_run, tmp_path):
    file = save(FIGURES[kind](tiny_run), tmp_path / f"{kind}.png", dpi=40)
    assert file.stat().st_size > 3000


def test_what_was_not_trained_is_named(tmp_path):
    config = Config(parts=("linear",), linear_layers=2, linear_width=32)
    run = trained(tmp_path, config)
    FIGURES["depth"](run)
    with pytest.raises(BadInput, match="parts=block"):
        FIGURES["transfer"](run)

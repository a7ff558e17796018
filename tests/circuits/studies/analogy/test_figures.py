import pytest

from circuits.studies.analogy import STUDY
from circuits.studies.analogy.lab import AnalogyLab
from probes.figures import save
from tests.figure_laws import cut_texts
from trained.analogy.config import Config, Linear
from trained.errors import BadInput

from .conftest import trained


@pytest.mark.parametrize("kind", STUDY.figures_part)
def test_every_figure_is_drawn(kind, tiny, tmp_path):
    figure = STUDY.figures[kind](tiny)
    assert save(figure, tmp_path / f"{kind}.png", dpi=40).stat().st_size > 3000
    assert not cut_texts(figure)


def test_what_was_not_trained_is_named(tmp_path):
    config = Config(parts=("linear",), linear=Linear(layers=2, width=32))
    lab = AnalogyLab(STUDY, trained(tmp_path, config))
    STUDY.figures["depth"](lab)
    with pytest.raises(BadInput, match="parts=block"):
        STUDY.figures["transfer"](lab)

"""The last touch: styles, titles inside the figure, and the line at the foot."""

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from probes.figures import STYLES, save, styled
from probes.figures.finish import add_foot, fit_titles


def panels(title: str, n: int = 1) -> Figure:
    figure = Figure((3.0 * n, 2.0), layout="constrained")
    for index in range(n):
        axes = figure.add_subplot(1, n, index + 1)
        axes.plot([0, 1], [0, 1])
        axes.set_title(title)
    return figure


@pytest.mark.parametrize("n", [1, 2])
def test_a_long_title_is_broken_until_it_fits(n: int) -> None:
    figure = panels("how much of the attention lies on the clause that matters", n)
    fit_titles(figure)
    figure.draw_without_rendering()
    for axes in figure.axes:
        assert "\n" in axes.get_title()
        box = axes.title.get_window_extent()
        assert 0 <= box.x0 < box.x1 <= figure.bbox.width


def test_a_short_title_and_a_formula_stay_as_they_are() -> None:
    for title in ("mass", "$\\frac{a}{b}$ " + "x" * 80):
        figure = panels(title)
        fit_titles(figure)
        assert figure.axes[0].get_title() == title


def test_the_foot_line_stands_below_the_panels(tmp_path: Path) -> None:
    figure = panels("mass")
    add_foot(figure, "recall: preset zoo")
    figure.draw_without_rendering()
    (foot,) = figure.texts
    below = foot.get_window_extent().y1
    assert all(axes.get_tightbbox().y0 >= below for axes in figure.axes)
    file = save(panels("mass"), tmp_path / "x.svg", foot="recall: preset zoo")
    assert "recall: preset zoo" in file.read_text()


def test_no_foot_line_adds_nothing() -> None:
    figure = panels("mass")
    add_foot(figure, "")
    assert not figure.texts


def test_a_style_holds_inside_its_block_only() -> None:
    with styled("dark"):
        dark = panels("mass")
    light = panels("mass")
    assert dark.get_facecolor() != light.get_facecolor()
    with styled("slides"):
        large = panels("mass")
    assert large.axes[0].title.get_fontsize() > light.axes[0].title.get_fontsize()


def test_an_unknown_style_is_named() -> None:
    with pytest.raises(ValueError, match="unknown style 'neon'; valid: paper"):
        styled("neon").__enter__()
    assert list(STYLES) == ["paper", "slides", "dark"]

"""The last touch: styles, titles inside the figure, and the line at the foot."""

from itertools import pairwise
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from probes.figures import STYLES, save, shared_legend, styled
from probes.figures.finish import add_foot, fit_titles
from tests.figure_laws import cut_texts


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


@pytest.mark.parametrize("letters", range(24, 44, 2))
def test_titles_touch_neither_the_edge_nor_each_other(letters: int) -> None:
    figure = panels(("a word " * 9)[:letters].strip(), 3)
    fit_titles(figure)
    figure.draw_without_rendering()
    boxes = [axes.title.get_window_extent() for axes in figure.axes]
    assert not cut_texts(figure)
    assert all(one.x1 < other.x0 for one, other in pairwise(boxes))


def test_a_long_title_over_all_panels_is_broken_until_it_fits() -> None:
    figure = panels("mass", 2)
    figure.suptitle("how much of the attention lies on the clause that matters " * 2)
    fit_titles(figure)
    figure.draw_without_rendering()
    assert "\n" in figure.get_suptitle()
    assert not cut_texts(figure)


def test_names_at_ticks_that_would_touch_become_smaller() -> None:
    figure = panels("mass")
    (axes,) = figure.axes
    axes.set_xticks([0, 0.5, 1], ["target right"] * 3, fontsize=14)
    fit_titles(figure)
    labels = axes.get_xticklabels()
    assert {label.get_fontsize() < 14 for label in labels} == {True}
    boxes = [label.get_window_extent() for label in labels]
    assert all(one.x1 < other.x0 for one, other in pairwise(boxes))


def test_names_at_ticks_that_have_room_stay_as_they_are() -> None:
    figure = panels("mass")
    (axes,) = figure.axes
    axes.set_xticks([0, 1], ["no", "yes"], fontsize=14)
    fit_titles(figure)
    assert {label.get_fontsize() for label in axes.get_xticklabels()} == {14}


def test_a_long_name_of_an_axis_is_broken_until_it_fits() -> None:
    figure = panels("mass")
    figure.axes[0].set_ylabel("share of the attention that lies on the right clause")
    assert cut_texts(figure)
    fit_titles(figure)
    assert "\n" in figure.axes[0].get_ylabel()
    assert not cut_texts(figure)


def test_a_short_title_and_a_formula_stay_as_they_are() -> None:
    for title in ("mass", "$\\frac{a}{b}$ " + "x" * 80):
        figure = panels(title)
        assert not fit_titles(figure)
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


def test_a_prompt_at_the_foot_is_no_formula(tmp_path: Path) -> None:
    file = save(panels("mass"), tmp_path / "x.svg", foot="gpt2: costs $5 or $6\x07")
    assert "gpt2: costs $5 or $6U+0007" in file.read_text()


def test_no_foot_line_adds_nothing() -> None:
    figure = panels("mass")
    add_foot(figure, "")
    assert not figure.texts


def test_a_style_holds_inside_its_block_only() -> None:
    with styled("dark"):
        dark = panels("mass")
    light = panels("mass")
    assert dark.get_facecolor() != light.get_facecolor()


def test_slides_enlarge_every_letter_once(tmp_path: Path) -> None:
    def sizes(style: str) -> list[float]:
        figure = panels("how much of the attention lies on the clause that matters")
        axes = figure.axes[0]
        axes.set_title(axes.get_title(), fontsize=12)
        axes.set_xticks([0, 1], ["no", "yes"], fontsize=10)
        axes.set_xlabel("step", fontsize=11)
        axes.legend(axes.lines, ["line"], fontsize=9)
        with styled(style):
            save(figure, tmp_path / "x.svg", foot="zoo")
        texts = (axes.title, axes.xaxis.label, *axes.get_xticklabels())
        legend = axes.get_legend().get_texts()
        return [text.get_fontsize() for text in (*texts, *legend, *figure.texts)]

    assert sizes("paper") == [12, 11, 10, 10, 9, 6]
    assert sizes("slides") == pytest.approx([1.35 * size for size in sizes("paper")])


def test_panels_share_one_legend_above_the_foot_line() -> None:
    figure = panels("mass", 2)
    for axes, names in zip(figure.axes, ("ab", "bc"), strict=True):
        axes.plot([0, 1], [1, 0])
        axes.legend(axes.lines, names)
        for line, name in zip(axes.lines, names, strict=True):
            line.set_label(name)
    shared_legend(figure)
    add_foot(figure, "recall: preset zoo")
    figure.draw_without_rendering()
    (legend,), (foot,) = figure.legends, figure.texts
    assert [text.get_text() for text in legend.get_texts()] == ["a", "b", "c"]
    assert not any(axes.get_legend() for axes in figure.axes)
    box = legend.get_window_extent()
    assert foot.get_window_extent().y1 <= box.y0
    assert all(axes.get_tightbbox().y0 >= box.y1 for axes in figure.axes)


def test_an_unknown_style_is_named() -> None:
    with pytest.raises(ValueError, match="unknown style 'neon'; valid: paper"):
        styled("neon").__enter__()
    assert list(STYLES) == ["paper", "slides", "dark"]

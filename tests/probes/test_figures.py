import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from matplotlib import rcParams
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from probes import figures
from probes.measurement import Measurement


def grid(*shape: int, axes: tuple[str, ...], **labels) -> Measurement:
    values = torch.arange(float(torch.Size(shape).numel())).reshape(shape)
    return Measurement(values / values.max(), axes, labels, name="mass", unit="share")


def tick_labels(axis) -> list[str]:
    return [label.get_text() for label in axis.get_ticklabels()]


def test_heatmap_shows_values_labels_and_a_colour_bar():
    m = grid(2, 3, axes=("layer", "head"), head=("a", "b", "c"))
    ax = figures.heatmap(m)
    torch.testing.assert_close(
        torch.tensor(ax.images[0].get_array()), m.values.double()
    )
    assert tick_labels(ax.xaxis) == ["a", "b", "c"]
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_title()) == (
        "head",
        "layer",
        "mass",
    )
    assert ax.figure.axes[1].get_ylabel() == "mass (share)"


def test_heatmap_of_signed_values_is_centred_on_zero():
    m = Measurement(torch.tensor([[-1.0, 3.0]]), ("layer", "head"))
    assert figures.heatmap(m).images[0].get_clim() == (-3, 3)


@pytest.mark.parametrize(
    ("limits", "end"),
    [
        ((0.0, 1.0), "neither"),
        ((0.0, 0.5), "max"),
        ((0.1, 1.0), "min"),
        ((0.1, 0.5), "both"),
    ],
)
def test_a_colour_bar_is_pointed_where_values_go_on(limits, end):
    m = grid(2, 3, axes=("layer", "head"))
    assert figures.heatmap(m, limits=limits).images[0].colorbar.extend == end


def test_heatmap_thins_many_labels():
    ax = figures.heatmap(grid(3, 100, axes=("layer", "key")))
    assert len(ax.get_xticks()) <= 24


@pytest.mark.parametrize("shape", [(3,), (2, 3)])
def test_attention_rows_write_every_weight(shape):
    axes = ("query", "key")[-len(shape) :]
    ax = figures.attention_rows(grid(*shape, axes=axes, key=("s1", "a1", "EoS")))
    assert len(ax.texts) == math.prod(shape)
    assert ax.texts[-1].get_text() == "1.00"
    assert tick_labels(ax.xaxis) == ["s1", "a1", "EoS"]
    assert ax.images[0].get_clim()[0] == 0


def test_attention_rows_share_their_colours_if_asked():
    m = grid(2, 3, axes=("query", "key"))
    assert figures.attention_rows(m, top=2.0).images[0].get_clim() == (0, 2)


def test_curve_draws_the_mean_and_a_band_inside_the_range():
    m = grid(2, 4, 3, axes=("group", "length", "seed"), length=(5, 10, 20, 40))
    ax = figures.curve(m, x="length", hue="group")
    first, second = ax.lines
    assert list(first.get_xdata()) == [5, 10, 20, 40]
    expected = m.mean("seed").select(group=1).values.tolist()
    assert list(second.get_ydata()) == pytest.approx(expected)
    outline = torch.tensor(ax.collections[0].get_paths()[0].vertices)[:, 1]
    part = m.values[0]
    assert (
        float(part.min()) - 1e-6 <= outline.min() <= outline.max() <= part.max() + 1e-6
    )
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["0", "1"]


def test_curve_without_seeds_has_no_band_and_names_words():
    m = grid(3, axes=("kind",), kind=("a", "b", 3))
    ax = figures.curve(m, x="kind")
    assert not ax.collections
    assert tick_labels(ax.xaxis) == ["a", "b", "3"]


def test_bars_have_the_mean_as_height_and_errors_over_seeds():
    m = grid(2, 3, 4, axes=("kind", "group", "seed"))
    ax = figures.bars(m, x="kind", hue="group")
    heights = [bar.get_height() for bar in ax.patches]
    expected = m.mean("seed").values.mT.flatten().tolist()
    assert heights == pytest.approx(expected)
    assert len(figures.bars(m.mean("seed"), x="kind", hue="group").collections) == 0


def test_dots_have_a_row_for_each_label_and_the_papers_value():
    m = grid(2, 3, 4, axes=("edit", "model", "seed"), edit=("none", "swap"))
    ax = figures.dots(m, y="edit", hue="model", paper={"swap": 0.25})
    *series, paper = ax.lines
    means = m.mean("seed").values
    for number, line in enumerate(series):
        assert list(line.get_xdata()) == pytest.approx(means[:, number].tolist())
        assert [round(y) for y in line.get_ydata()] == [0, 1]
    assert (list(paper.get_xdata()), paper.get_label()) == ([0.25], "paper")
    assert round(paper.get_ydata()[0]) == 1
    assert tick_labels(ax.yaxis) == ["none", "swap"]
    assert ax.get_ylim() == (1.5, -0.5)
    with pytest.raises(ValueError, match=r"select or average \['model'\]"):
        figures.dots(m, y="edit")


def test_rows_of_dots_are_named_apart_without_seeds():
    ax = figures.dots(grid(3, axes=("edit",)), y="edit")
    assert not ax.collections
    assert ax.get_legend() is None


def test_polar_places_angles_by_layer():
    angles = Measurement(torch.tensor([[0.1, 0.3], [1.0, 2.0]]), ("layer", "pair"))
    ax = figures.polar(angles)
    assert list(ax.lines[0].get_xdata()) == pytest.approx([0.2, 1.5])
    beside = Measurement(angles.values.expand(2, 2, 2), ("model", "layer", "pair"))
    ax = figures.polar(beside, hue="model")
    first, second = (dots.get_offsets()[:, 1] for dots in ax.collections[:2])
    assert set(first).isdisjoint(second)
    assert list(ax.lines[0].get_ydata()) == [1, 2]
    assert ax.get_thetamax() == pytest.approx(120)
    with pytest.raises(ValueError, match="polar axes"):
        figures.polar(angles, ax=Figure().add_subplot())
    with pytest.raises(ValueError, match="no axis 'layer'"):
        figures.polar(grid(3, axes=("pair",)))


def test_given_axes_are_used():
    ax = Figure().add_subplot()
    assert figures.heatmap(grid(2, 2, axes=("layer", "head")), ax) is ax
    assert figures.curve(grid(2, axes=("layer",)), x="layer", ax=ax) is ax


def test_what_cannot_be_drawn_is_named():
    cube = grid(2, 2, 2, axes=("layer", "head", "seed"))
    with pytest.raises(ValueError, match="no grid"):
        figures.heatmap(cube)
    with pytest.raises(ValueError, match=r"select or average \['head'\]"):
        figures.curve(cube, x="layer")
    with pytest.raises(ValueError, match="no axis 'haed'"):
        figures.bars(cube, x="layer", hue="haed")


@pytest.mark.parametrize(
    ("extension", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")]
)
def test_save_of_the_same_measurement_gives_the_same_bytes(tmp_path, extension, magic):
    m = grid(2, 3, axes=("layer", "head"))
    first = figures.save(figures.heatmap(m), tmp_path / "new" / f"a.{extension}")
    again = figures.save(figures.heatmap(m).figure, tmp_path / "new" / f"b.{extension}")
    first, second = first.read_bytes(), again.read_bytes()
    assert first.startswith(magic)
    assert first == second
    assert len(list((tmp_path / "new").iterdir())) == 2


def test_save_refuses_other_formats_before_writing(tmp_path):
    with pytest.raises(ValueError, match=r"'a\.jpg'; valid: png, svg, pdf"):
        figures.save(Figure(), tmp_path / "a.jpg")
    assert not list(tmp_path.iterdir())


def test_drawing_needs_no_pyplot_and_leaves_settings_alone():
    before = dict(rcParams)
    figures.curve(grid(3, axes=("layer",)), x="layer")
    assert dict(rcParams) == before
    code = "import sys, probes.figures; print('matplotlib.pyplot' in sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("shape", "axes", "kinds"),
    [
        ((4,), ("layer",), ["line"]),
        ((4,), ("example",), ["line"]),
        ((4, 3), ("layer", "head"), ["map"]),
        ((4, 3), ("layer", "example"), ["band"]),
        ((2, 4, 3), ("pairs", "layer", "example"), ["band"]),
        ((9, 4, 3), ("head", "layer", "seed"), ["map"]),
        ((4, 3, 2), ("layer", "example", "seed"), ["band"]),
        ((2, 3, 3), ("head", "query", "key"), ["map", "map"]),
        ((2, 2, 3, 3), ("seed", "head", "query", "key"), ["map"] * 4),
        ((20, 3, 3), ("head", "query", "key"), ["map"] * figures.MAX_PANELS),
    ],
)
def test_plot_chooses_by_axes(shape, axes, kinds):
    figure = grid(*shape, axes=axes).plot()
    found = []
    for ax in figure.axes:
        if ax.axison and ax.get_label() != "<colorbar>":
            lines = "band" if ax.collections else "line"
            found.append("map" if ax.images else lines)
    assert found == kinds


def test_plot_draws_the_mean_of_what_measure_gives():
    m = grid(2, 3, axes=("statistic", "layer"), statistic=("mean", "standard_error"))
    (ax,) = m.plot().axes
    assert list(ax.lines[0].get_ydata()) == m.select(statistic="mean").values.tolist()
    with pytest.raises(ValueError, match="no axis to draw over"):
        m.mean().plot()


def test_what_the_font_lacks_is_shown_by_its_number(tmp_path):
    """A glyph that is missing would be a box, and a warning is an error here."""
    labels = ("中文", "a\x07", "naïve")
    m = grid(3, 3, axes=("layer", "position"), layer=labels, position=labels)
    named = Measurement(m.values, m.axes, m.labels, name="log p of 中")
    texts = [["中", "\u200b", "é"]] * 3
    ax = figures.text_heatmap(named, texts)
    figures.save(ax, tmp_path / "cells.png")
    assert tick_labels(ax.xaxis) == ["U+4E2DU+6587", "aU+0007", "naïve"]
    assert ax.get_title() == "log p of U+4E2D"
    assert [text.get_text() for text in ax.texts[:3]] == ["U+4E2D", "U+200B", "é"]
    lines = figures.curve(m, x="position", hue="layer", band=None)
    figures.save(lines, tmp_path / "lines.png")


def test_panels_with_the_same_colours_share_one_colour_bar() -> None:
    drawn = grid(3, 2, 2, axes=("head", "query", "key")).plot().axes
    assert [ax.get_label() == "<colorbar>" for ax in drawn] == [False] * 3 + [True]
    assert drawn[-1].get_ylabel() == "mass (share)"


def test_every_line_is_seen_in_the_dark() -> None:
    with figures.styled("dark"):
        ax = figures.curve(grid(8, 3, axes=("arm", "x")), x="x", hue="arm")
        lines = [np.array(to_rgb(line.get_color())) for line in ax.lines]
    assert len(lines) == 8
    assert min(colour.max() for colour in lines) > 0.5


def test_attention_that_cannot_be_seen_is_blank_and_panels_share_their_colours():
    seen = torch.tensor([[[1.0, 0.0], [0.9, 0.1]], [[1.0, 0.0], [0.5, 0.5]]])
    drawn = Measurement(seen, ("head", "query", "key")).plot().axes[:2]
    first, second = (ax.images[0] for ax in drawn)
    assert np.isnan(first.get_array().filled(np.nan)[0, 1])
    assert first.get_clim() == second.get_clim() == (0.0, 1.0)


def test_attention_to_the_future_is_not_hidden():
    seen = torch.tensor([[0.5, 0.5], [0.9, 0.1]])
    (image,) = Measurement(seen, ("query", "key")).plot().axes[0].images
    assert not np.isnan(image.get_array().filled(np.nan)).any()


def test_an_embedding_far_away_does_not_set_the_scale():
    layers = ("embedding", "0", "1", "2")
    far = Measurement(torch.tensor([-120.0, -4, -3, -1]), ("layer",), {"layer": layers})
    near = Measurement(torch.tensor([-5.0, -4, -3, -1]), ("layer",), {"layer": layers})
    (ax,), (other,) = far.plot().axes, near.plot().axes
    assert ax.get_ylim()[0] > -6
    assert "off the scale: -120" in ax.texts[0].get_text()
    assert not other.texts


def test_a_line_that_hides_another_has_smaller_markers():
    same = torch.tensor([[0.0, 1.0, 2.0], [0.0, 1.0, 2.0]])
    apart = torch.tensor([[0.0, 1.0, 2.0], [2.0, 3.0, 9.0]])
    for values, hidden in ((same, True), (apart, False)):
        ax = figures.curve(Measurement(values, ("arm", "x")), x="x", hue="arm")
        first, second = (line.get_markersize() for line in ax.lines)
        assert (first > second) == hidden

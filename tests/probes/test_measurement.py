import json
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save, save_file

from probes.measurement import Measurement


def grid() -> Measurement:
    return Measurement(
        torch.arange(6.0).reshape(2, 3),
        ("layer", "head"),
        {"head": ("a", "b", "c")},
        name="mass",
        unit="share",
        provenance={"run": "r1", "seeds": (0, 1)},
    )


def test_missing_labels_are_positions():
    assert grid().labels == {"layer": (0, 1), "head": ("a", "b", "c")}


def test_select_one_label_drops_the_axis_and_a_list_keeps_it():
    one = grid().select(head="b")
    assert one.axes == ("layer",)
    assert one.values.tolist() == [1.0, 4.0]
    assert one.provenance["selected"] == {"head": "b"}
    two = grid().select(head=["c", "a"], layer=1)
    assert two.axes == ("head",)
    assert two.labels["head"] == ("c", "a")
    assert two.values.tolist() == [5.0, 3.0]


def test_mean_by_hand():
    assert grid().mean("head").values.tolist() == [1.0, 4.0]
    assert grid().mean("layer", "head").values.item() == 2.5
    assert grid().mean().axes == ()


def test_mean_of_flags_and_half_precision_is_a_number():
    flags = Measurement(torch.tensor([True, False]), ("example",), name="hit")
    assert flags.mean().values.item() == 0.5
    half = Measurement(torch.ones(3, dtype=torch.bfloat16), ("example",))
    assert half.mean().values.dtype == torch.float32
    assert half.to_frame()["value"].tolist() == [1.0, 1.0, 1.0]


def test_to_frame_is_tidy():
    frame = grid().to_frame()
    assert list(frame.columns) == ["layer", "head", "mass"]
    assert frame.loc[4].tolist() == [1, "b", 4.0]
    scalar = Measurement(torch.tensor(3), (), name="count").to_frame()
    assert scalar["count"].tolist() == [3]


@given(
    st.lists(st.integers(0, 3), max_size=3), st.sampled_from(["f4", "f8", "i8", "?"])
)
@settings(deadline=None, max_examples=25)
def test_save_and_load_are_inverse(tmp_path_factory, shape, kind):
    dtype = {
        "f4": torch.float32,
        "f8": torch.float64,
        "i8": torch.int64,
        "?": torch.bool,
    }
    values = torch.arange(torch.Size(shape).numel()).reshape(shape).to(dtype[kind])
    axes = ("layer", "head", "seed")[: len(shape)]
    labels = {axes[0]: tuple(f"{i}é" for i in range(shape[0]))} if shape else {}
    before = Measurement(values, axes, labels, "m", "nats", {"a": [1, {"b": None}]})
    path = before.save(tmp_path_factory.mktemp("m") / "deep" / "m.safetensors")
    after = Measurement.load(path)
    assert torch.equal(after.values, values)
    assert after.values.dtype == values.dtype
    for field in ("axes", "labels", "name", "unit", "provenance"):
        assert getattr(after, field) == getattr(before, field)
    assert [file.name for file in path.parent.iterdir()] == ["m.safetensors"]


@given(st.permutations(["layer", "head"]), st.integers(0, 2**16))
@settings(deadline=None, max_examples=20)
def test_mean_does_not_depend_on_the_order_of_axes(order, seed):
    values = torch.rand(3, 4, generator=torch.Generator().manual_seed(seed))
    m = Measurement(values, ("layer", "head"))
    torch.testing.assert_close(m.mean(*order).values, m.mean().values)


def test_values_are_a_detached_copy():
    source = torch.ones(2, requires_grad=True)
    m = Measurement(source * 1, ("layer",))
    assert not m.values.requires_grad
    plain = torch.zeros(2)
    m = Measurement(plain, ("layer",))
    plain += 1
    assert m.values.tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"axes": ("layer",)}, "2 dimensions.*1 axis names"),
        ({"axes": ("layer", "layer")}, "repeat"),
        ({"axes": ("layer", "mass")}, "'mass' is also an axis"),
        ({"labels": {"haed": ("a",)}}, r"unknown axes \['haed'\]; valid: .*'head'"),
        ({"labels": {"head": ("a", "b")}}, "'head' of 'mass' has size 3 but 2 labels"),
        ({"provenance": {"model": object()}}, "JSON"),
    ],
)
def test_disagreement_is_one_clear_error(arguments, message):
    good = {"values": torch.zeros(2, 3), "axes": ("layer", "head"), "name": "mass"}
    with pytest.raises(ValueError, match=message):
        Measurement(**{**good, **arguments})


def test_unknown_names_list_the_valid_ones():
    with pytest.raises(ValueError, match=r"no axis 'pos'; valid: \('layer', 'head'\)"):
        grid().mean("pos")
    with pytest.raises(ValueError, match=r"no label 'z'; valid: \('a', 'b', 'c'\)"):
        grid().select(head="z")
    twice = Measurement(torch.zeros(2), ("key",), {"key": ("the", "the")})
    with pytest.raises(ValueError, match="more than once"):
        twice.select(key="the")


def test_load_refuses_missing_truncated_and_foreign_files(tmp_path):
    with pytest.raises(FileNotFoundError, match="nothing"):
        Measurement.load(tmp_path / "nothing")
    whole = grid().save(tmp_path / "m.safetensors").read_bytes()
    (tmp_path / "cut").write_bytes(whole[:-4])
    save_file({"values": torch.zeros(1)}, tmp_path / "foreign")
    header = {"measurement": json.dumps({"schema": 99})}
    save_file({"values": torch.zeros(1)}, tmp_path / "future", metadata=header)
    for name in ("cut", "foreign", "future"):
        with pytest.raises(ValueError, match=name):
            Measurement.load(tmp_path / name)


def test_html_escapes_and_truncates():
    m = Measurement(
        torch.zeros(2, 20, 30), ("seed", "<b>", "key"), provenance={"run": "<script>"}
    )
    page = m._repr_html_()
    assert "<script>" not in page
    assert "12 more" in page
    assert page.count("<tr>") == 10
    assert "seed = 0" in page
    for shape in ((), (3,), (0, 2)):
        axes = ("layer", "head")[: len(shape)]
        assert "provenance" in Measurement(torch.zeros(shape), axes)._repr_html_()


def test_probes_stay_light():
    modules = "probes.measurement, probes.attention, probes.alignment, probes.lens"
    code = (
        f"import probes, sys; assert 'torch' not in sys.modules; import {modules}; "
        "import probes.statistics, probes.weights; "
        "print([m for m in ('sklearn', 'matplotlib', 'pandas', 'transformer_lens') "
        "if m in sys.modules])"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "[]"


def test_a_few_values_are_printed_and_many_are_not():
    assert repr(grid()).endswith("layer: 2, head: 3): 0, 1, 2, 3, 4, 5")
    many = Measurement(torch.zeros(3, 3), ("layer", "head"))
    assert repr(many) == "Measurement('value', layer: 3, head: 3)"


def test_top_gives_the_largest_values_and_their_places():
    best = grid().top(2)
    assert best[["layer", "head", "mass"]].values.tolist() == [[1, "c", 5], [1, "b", 4]]
    assert len(grid().top(99)) == 6


def test_to_xarray_keeps_axes_labels_unit_and_provenance():
    array = grid().to_xarray()
    assert array.dims == ("layer", "head")
    assert float(array.sel(layer=1, head="b")) == 4.0
    assert (array.name, array.attrs["units"]) == ("mass", "share")
    assert array.attrs["seeds"] == [0, 1]
    half = Measurement(torch.ones(2, dtype=torch.bfloat16), ("layer",))
    assert half.to_xarray().dtype == "float32"


@pytest.mark.parametrize(
    "change",
    [
        {"axes": 3},
        {"labels": [1]},
        {"labels": {"layer": 5}},
        {"axes": ["a", "b", "c"]},
        {"unknown": 1},
        {"schema": None},
    ],
)
def test_a_header_that_does_not_fit_is_one_documented_error(tmp_path, change):
    header = {
        **{"schema": 1, "axes": ["layer"], "labels": {}, "name": "n", "unit": ""},
        **{"provenance": {}, **change},
    }
    path = tmp_path / "odd.safetensors"
    metadata = {"measurement": json.dumps(header)}
    path.write_bytes(save({"values": torch.zeros(2)}, metadata=metadata))
    with pytest.raises(ValueError, match=r"odd\.safetensors is not a stored Measure"):
        Measurement.load(path)
    path.write_bytes(save({"values": torch.zeros(2)}, {"measurement": "[1]"}))
    with pytest.raises(ValueError, match="not a stored Measurement"):
        Measurement.load(path)

"""The names of what can be observed, spelled in one file."""

import ast
import re
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest

from circuits.backends import hooked
from circuits.sites import KINDS, Kind, Site, hooked_name
from tests.ground_truth import Decoder
from trained.errors import BadInput

ROOT = Path(__file__).parents[2]
HOOK_NAME = re.compile(r"(^|\.)hook_(?!dict$)[a-z]")
"""What a spelled hook name contains: blocks.0.attn.hook_z, hook_logits, not hook_dict
(the attribute that lists them) and not blocks.0.attn.W_Q (a parameter)."""


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_a_hook_of_a_decoder(kind: Kind, tiny_decoder: Decoder) -> None:
    layers = (0,) if kind == "logits" else (0, 1)
    names = [hooked_name(Site(kind, layer)) for layer in layers]
    assert len(set(names)) == len(layers)
    assert set(names) <= tiny_decoder.hook_dict.keys()


def test_the_sites_of_a_model_are_all_kinds_at_all_layers(
    tiny_decoder: Decoder,
) -> None:
    sites = hooked.sites(tiny_decoder)
    assert len(sites) == 2 * (len(KINDS) - 1) + 1
    assert set(sites) == {
        Site(kind, layer) for kind in KINDS if kind != "logits" for layer in (0, 1)
    } | {Site("logits")}


def test_an_unknown_kind_is_refused_with_the_valid_ones() -> None:
    # As users run it: in tests the type checker would be faster than the check.
    unchecked = runpy.run_path(str(ROOT / "circuits" / "sites.py"))["Site"]
    with pytest.raises(BadInput, match="unknown site 'patern'; choose from: resid_pre"):
        unchecked("patern")


def test_logits_have_no_layer() -> None:
    with pytest.raises(BadInput, match="unknown layer of logits '1'"):
        Site("logits", 1)


def test_sites_read_well_and_sort_by_layer() -> None:
    assert str(Site("pattern", 3)) == "pattern[3]"
    assert str(Site("logits")) == "logits"
    assert sorted([Site("pattern", 10), Site("pattern", 2)])[0].layer == 2


def sources() -> list[Path]:
    folders = ("trained", "probes", "circuits", "scripts")
    files = [file for folder in folders for file in (ROOT / folder).rglob("*.py")]
    return [file for file in files if file != ROOT / "circuits" / "sites.py"]


def strings(tree: ast.AST) -> Iterator[ast.Constant]:
    """String constants that are values: no docstrings, no bare strings."""
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if is_text and id(node) not in prose:
            yield node


def test_no_other_file_spells_a_hook_name() -> None:
    strays = [
        f"{file.relative_to(ROOT)}:{constant.lineno}: {constant.value}"
        for file in sources()
        for constant in strings(ast.parse(file.read_text()))
        if HOOK_NAME.search(constant.value)
    ]
    assert strays == []


def test_the_search_for_strays_finds_one_and_leaves_prose_alone() -> None:
    code = '"""Reads blocks.0.hook_z."""\nx = f"blocks.{i}.attn.hook_z"\ny = "hook_z"\n'
    found = [s.value for s in strings(ast.parse(code)) if HOOK_NAME.search(s.value)]
    assert set(found) == {".attn.hook_z", "hook_z"}

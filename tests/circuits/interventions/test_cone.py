"""Branches of a stored run equal whole passes, one cell at a time, and run less."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from circuits.backends.branches import Layout
from circuits.hooks import intervene, sites_of
from circuits.interventions import sweep as sweeping
from circuits.interventions.ablation import ablation_sweep
from circuits.interventions.edit import Rule, Transplant, Zero, part_edits
from circuits.interventions.part import Grid, Part, column, position_grid
from circuits.interventions.patching import patch_sweep
from circuits.interventions.sweep import (
    Reading,
    known,
    logit_difference,
    target_log_prob,
)
from circuits.models import open as pretrained
from circuits.models.language_model import LanguageModel
from circuits.sites import Kind, Site
from tests.random_models import CONFIGS, N_LAYERS, letter_tokenizer, random_model
from trained.task import Batch

WINDOWS = ("gemma2", "gemma3", "gemma3_inside", "mistral", "mixtral", "phi3")
INSIDE: tuple[Kind, ...] = ("resid_mid", "attn_out", "mlp_act", "mlp_out")
WRONG = torch.tensor([9, 8, 7])
METRICS = {"two columns": logit_difference(WRONG), "vocabulary": target_log_prob}


@cache
def opened(family: str, **options: Any) -> LanguageModel:
    return pretrained.wrap(random_model(family, **options), letter_tokenizer())


@pytest.fixture(params=["left", "right"])
def side(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def pair(model: LanguageModel, side: Any = "left") -> tuple[Batch, Batch]:
    texts = ["the cat sat", "a dog", "Hi there I"], ["the bat hid", "a log", "Hi where"]
    roles = {"it": ["c", "d", "t"]}, {"it": ["b", "l", "w"]}
    clean = model.prompts(texts[0], list("abc"), roles=roles[0], side=side)
    corrupt = model.prompts([*texts[1][:2], "Hi where I"], roles=roles[1], side=side)
    return clean, corrupt.with_targets(clean.targets)


def parts_of(model: LanguageModel) -> Grid[Part]:
    """Every kind of site, by role, by column, by head and everywhere."""
    kinds = [kind for kind in INSIDE if Site(kind) in sites_of(model)]
    parts = (
        *(Part("resid_pre", layer, None, "it") for layer in range(N_LAYERS)),
        *(Part("resid_pre", 1, None, place) for place in (3, 7, "last", (4, 6))),
        *(Part("resid_post", layer, None, "it") for layer in range(N_LAYERS)),
        *(Part(kind, 1, None, "it") for kind in kinds),
        *(Part("head_out", layer, 1) for layer in (0, 2)),
        Part("attn_out", 2),
        Part("resid_pre", 2, None, None, (0, 5)),
        # Patterns and values have no cone: they go the other way.
        *(Part("pattern", 1, 2), Part("value", 1)),
    )
    return Grid({"part": tuple(range(len(parts)))}, parts)


@torch.no_grad()
def whole_passes(
    model: LanguageModel, batch: Batch, grid: Grid[Part], rule: Rule, reading: Reading
) -> Tensor:
    """A whole pass with all logits for every cell."""
    edits = part_edits(model, batch, grid.items, rule)
    rows, found = torch.arange(len(batch)), []
    for part in grid.items:
        with intervene(model, {part.site: edits[part]}):
            logits = model(batch.tokens, batch.mask)
        there = logits[rows, column(batch, reading.at)]
        found.append(reading.metric(there, batch))
    return torch.stack(found)


def require_equal(found: Tensor, expected: Tensor) -> None:
    assert found.shape == expected.shape
    assert (found - expected).abs().max() <= 1e-5 * expected.abs().max()


@contextmanager
def cones(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many cells each sweep in the block runs as branches."""
    counts: list[int] = []
    make = sweeping.cone

    def counted(*args: Any) -> Any:
        counts.append(len(args[3]))
        return make(*args)

    with monkeypatch.context() as patch:
        patch.setattr(sweeping, "cone", counted)
        yield counts


@pytest.mark.parametrize("family", sorted(CONFIGS))
def test_every_family_gives_what_whole_passes_give(
    family: str, side: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prompts as long as a window go the other way."""
    model = opened(family)
    clean, corrupt = pair(model, side)
    grid, reading = parts_of(model), Reading(METRICS["two columns"])
    with cones(monkeypatch) as counts:
        swept = patch_sweep(model, clean, corrupt, grid, reading)
    expected = whole_passes(model, corrupt, grid, Transplant(clean), reading)
    require_equal(swept.values, expected)
    assert counts == ([] if family in WINDOWS else [len(grid.items) - 2])


@pytest.mark.parametrize("family", WINDOWS)
def test_windows_that_hold_the_prompts_are_no_hindrance(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = CONFIGS[family]

    def wide() -> Any:
        found = config()
        found.get_text_config().sliding_window = 11
        return found

    monkeypatch.setitem(CONFIGS, family, wide)
    model = pretrained.wrap(random_model(family), letter_tokenizer())
    clean, corrupt = pair(model)
    grid, reading = parts_of(model), Reading(METRICS["two columns"])
    with cones(monkeypatch) as counts:
        swept = patch_sweep(model, clean, corrupt, grid, reading)
    assert counts == [len(grid.items) - 2]
    expected = whole_passes(model, corrupt, grid, Transplant(clean), reading)
    require_equal(swept.values, expected)


@pytest.mark.parametrize(
    ("metric", "at", "tokens_at_once", "implementation"),
    [
        ("two columns", "it", 1024, "sdpa"),
        ("two columns", "last", 1, "eager"),
        ("vocabulary", "last", 9, "sdpa"),
        ("vocabulary", "it", 1024, "eager"),
    ],
)
def test_every_reading_gives_what_whole_passes_give(
    metric: str, at: str, tokens_at_once: int, implementation: str
) -> None:
    """Zero also edits padding, and what lies behind the answer."""
    model = opened("llama", attn_implementation=implementation)
    batch = pair(model)[1]
    reading = Reading(METRICS[metric], at=at, tokens_at_once=tokens_at_once)
    grid = parts_of(model)
    swept = ablation_sweep(model, batch, grid, Zero(), reading)
    require_equal(swept.values, whole_passes(model, batch, grid, Zero(), reading))


# What is run


@contextmanager
def positions_run(model: LanguageModel) -> Iterator[list[list[int]]]:
    """[layer, rows, positions] of every block that is run."""
    calls: list[list[int]] = []
    blocks = model.module.model.layers
    for number, block in enumerate(blocks):
        own = block.forward

        def counted(
            states: Tensor,
            *args: Any,
            number: int = number,
            own: Any = own,
            **rest: Any,
        ) -> Any:
            calls.append([number, *states.shape[:2]])
            return own(states, *args, **rest)

        block.forward = counted
    try:
        yield calls
    finally:
        for block in blocks:
            del block.forward


def test_only_the_cone_is_run() -> None:
    model = opened("llama")
    clean = model.prompts(["abcdef"], ["a"])
    corrupt = model.prompts(["ghijkl"]).with_targets(clean.targets)
    reading = Reading(logit_difference(torch.tensor([9])), at=4)
    n_pos = clean.tokens.shape[1]
    assert n_pos == 6
    grid = position_grid("resid_pre", [1], range(n_pos))
    with positions_run(model) as calls:
        swept = patch_sweep(model, clean, corrupt, grid, reading)
    whole = [[layer, 1, n_pos] for layer in range(N_LAYERS)]
    # Positions 0 to 4 reach the answer at 4 from 5, 4, ..., 1 places; 5 does not.
    branches = [[layer, 1, 5 + 4 + 3 + 2 + 1] for layer in (1, 2)]
    # The clean run, the stored one, and the branches.
    assert calls == [*whole, *whole, *branches]
    unedited = known(swept, "unedited")
    assert torch.equal(swept.values[0, 5], unedited)
    assert not torch.allclose(swept.values[0, 4], unedited, rtol=1e-3)


def test_cells_that_begin_later_join_those_under_way() -> None:
    model = opened("llama")
    clean = model.prompts(["abcdef"], ["a"])
    corrupt = model.prompts(["ghijkl"]).with_targets(clean.targets)
    reading = Reading(logit_difference(torch.tensor([9])))
    at, inside = position_grid("resid_pre", [0, 2], [3, 4]), Part("mlp_out", 2, None, 4)
    grid = Grid({"part": tuple(range(5))}, (*at.items, inside))
    with positions_run(model) as calls:
        swept = patch_sweep(model, clean, corrupt, grid, reading)
    # Columns 3 and 4 reach the last one, 5, at three and two places.
    whole = [[layer, 1, 6] for layer in range(N_LAYERS)]
    later = sorted(calls[2 * len(whole) + 2 :])
    assert calls[: 2 * len(whole) + 2] == [*whole, *whole, [0, 1, 5], [1, 1, 5]]
    assert later == [[2, 1, 2], [2, 2, 5]]
    expected = whole_passes(model, corrupt, grid, Transplant(clean), reading)
    require_equal(swept.values, expected)


def test_the_end_of_the_last_block_is_run_at_the_answers_alone() -> None:
    model = opened("llama")
    clean = model.prompts(["abcdef"], ["a"])
    corrupt = model.prompts(["ghijkl"]).with_targets(clean.targets)
    last = model.module.model.layers[-1]
    seen: list[tuple[str, int]] = []
    own = {"attention": last.self_attn.o_proj.forward, "mlp": last.mlp.forward}

    def watched(name: str) -> Any:
        def forward(states: Tensor) -> Any:
            seen.append((name, states.shape[1]))
            return own[name](states)

        return forward

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(last.self_attn.o_proj, "forward", watched("attention"))
        patch.setattr(last.mlp, "forward", watched("mlp"))
        grid = position_grid("resid_pre", [1], [2, 3, 4])
        patch_sweep(model, clean, corrupt, grid, Reading(METRICS["vocabulary"]))
    whole = [("attention", 6), ("mlp", 6)]
    assert seen == [*whole, *whole, ("attention", 3), ("mlp", 3)]


def test_rows_of_a_long_prompt_do_not_multiply_what_is_stored() -> None:
    model = opened("llama")
    clean = model.prompts(["abcdef"], ["a"])
    corrupt = model.prompts(["ghijkl"]).with_targets(clean.targets)
    grid = position_grid("resid_pre", range(N_LAYERS), [5])
    metric = logit_difference(torch.tensor([9]))
    rows = {}
    for tokens_at_once in (12, 1024):
        reading = Reading(metric, tokens_at_once=tokens_at_once)
        with positions_run(model) as calls:
            patch_sweep(model, clean, corrupt, grid, reading)
        rows[tokens_at_once] = max(n_rows for _, n_rows, _ in calls)
    # A further row is one token, and reads the five columns before it.
    assert rows == {12: 2, 1024: 3}


@pytest.mark.parametrize("tokens_at_once", [11, 24, 40])
def test_no_pass_holds_more_tokens_than_asked_for(tokens_at_once: int) -> None:
    model = opened("llama")
    clean, corrupt = pair(model)
    grid = position_grid("resid_pre", [0, 1], ["it", "last", 3, 5, 6])
    reading = Reading(METRICS["two columns"], tokens_at_once=tokens_at_once)
    with positions_run(model) as calls:
        patch_sweep(model, clean, corrupt, grid, reading)
    assert max(rows * places for _, rows, places in calls) <= tokens_at_once


def test_the_model_is_left_as_it_was() -> None:
    model = opened("llama")
    clean, corrupt = pair(model)
    reading = Reading(METRICS["two columns"])
    with torch.no_grad():
        before = model(clean.tokens, clean.mask)
    patch_sweep(model, clean, corrupt, parts_of(model), reading)
    with torch.no_grad():
        assert torch.equal(model(clean.tokens, clean.mask), before)
    for module in model.module.modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks
        assert "forward" not in vars(module)


def test_inside_an_intervention_whole_passes_are_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its edits know columns, and branches have none."""
    model = opened("llama")
    clean, corrupt = pair(model)
    reading = Reading(METRICS["two columns"])
    grid = position_grid("resid_pre", [1, 2], ["it", "last"])

    def edit(activation: Tensor) -> Tensor:
        activation = activation.clone()
        activation[:, 2] = 0.0
        return activation

    for site in (Site("attn_out", 1), Site("value", 1)):
        with cones(monkeypatch) as counts, intervene(model, {site: edit}):
            swept = patch_sweep(model, clean, corrupt, grid, reading)
            edits = part_edits(model, corrupt, grid.items, Transplant(clean))
            expected = []
            for part in grid.items:
                with torch.no_grad(), intervene(model, {part.site: edits[part]}):
                    logits = model(corrupt.tokens, corrupt.mask)[:, -1]
                expected.append(reading.metric(logits, corrupt))
        assert counts == []
        require_equal(swept.values.flatten(0, 1), torch.stack(expected))


# Layout


def test_a_layout_by_hand() -> None:
    """Two branches of two prompts that end at columns 2 and 1."""
    layout = Layout(torch.tensor([2, 1]), (1, 3))
    assert layout.ends.tolist() == [0, 3]
    assert layout.columns.tolist() == [[2, 0, 1, 2], [1, -1, 0, 1]]
    assert layout.starts.tolist() == [[2, 0, 0, 0], [1, 0, 0, 0]]
    real = torch.ones(2, 3, dtype=torch.bool)
    real[0, 0] = False
    seen = layout.seen(real, 2).int().tolist()
    # Stored columns 0 and 1, then the four places.
    assert seen[0] == [
        [0, 1, 1, 0, 0, 0],
        [0, 0, 0, 1, 0, 0],
        [0, 0, 0, 0, 1, 0],
        [0, 0, 0, 0, 1, 1],
    ]
    assert seen[1] == [
        [1, 0, 1, 0, 0, 0],
        [0, 0, 0, 1, 0, 0],
        [0, 0, 0, 0, 1, 0],
        [0, 0, 0, 0, 1, 1],
    ]

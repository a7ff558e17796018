"""Direct paths: the wired one carries the answer; delta equals explicit freezing."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from circuits.hooks import intervene
from circuits.interventions.edit import Edits
from circuits.interventions.part import Grid, Part, head_grid, layer_grid
from circuits.interventions.passes import activations, answer_logits
from circuits.interventions.patching import effect
from circuits.interventions.path_patching import (
    Path,
    Receiver,
    path_grid,
    path_patch_sweep,
    paths_by_head,
)
from circuits.interventions.sweep import change
from circuits.sites import Site
from tests.ground_truth import Decoder, DecoderConfig, GroundTruth
from tests.intervention_pairs import pair_of, random_decoder, random_pair
from trained.errors import BadInput
from trained.task import Batch


def head(layer: int, number: int) -> Part:
    return Part("head_out", layer, number)


EMBEDDING = Part("resid_pre")


def restored(truth: GroundTruth, paths: Sequence[Path]) -> list[float]:
    pair = pair_of(truth)
    grid = Grid({"path": tuple(range(len(paths)))}, tuple(paths))
    patched = path_patch_sweep(
        truth.model, pair.clean, pair.corrupt, grid, pair.reading
    )
    return effect(patched).mean("example").values.tolist()


def test_the_wired_paths_carry_the_answer(two_hop: GroundTruth) -> None:
    """Subject -> head 0.0 -> values of head 1.0 -> logits."""
    found = restored(
        two_hop,
        [
            Path(EMBEDDING, Receiver("attention", 0, 0, "value")),
            Path(head(0, 0), Receiver("attention", 1, 0)),
            Path(head(0, 0), Receiver("attention", 1, 0, "value")),
            Path(head(1, 0), Receiver("logits")),
        ],
    )
    assert found == pytest.approx([1, 1, 1, 1], abs=1e-5)


def test_the_other_paths_do_not(two_hop: GroundTruth) -> None:
    found = restored(
        two_hop,
        [
            Path(EMBEDDING, Receiver("attention", 0, 1)),
            Path(EMBEDDING, Receiver("attention", 1)),
            Path(EMBEDDING, Receiver("logits")),
            Path(head(0, 0), Receiver("attention", 1, 1)),
            Path(head(0, 0), Receiver("attention", 1, 0, "pattern")),
            Path(head(0, 0), Receiver("logits")),
            Path(head(0, 1), Receiver("attention", 1)),
            Path(head(1, 1), Receiver("logits")),
        ],
    )
    assert found == pytest.approx([0] * 8, abs=1e-5)


def test_without_a_circuit_no_path_carries_anything(uninformed: GroundTruth) -> None:
    pair = pair_of(uninformed)
    grid = paths_by_head(EMBEDDING, [0, 1], [0, 1])
    patched = path_patch_sweep(
        uninformed.model, pair.clean, pair.corrupt, grid, pair.reading
    )
    assert float(change(patched).values.abs().max()) == 0


def pinned(seen: dict[Site, Tensor], sites: Sequence[Site]) -> Edits:
    return {site: (lambda _, value=seen[site]: value) for site in sites}


@pytest.mark.parametrize("part", ["attention", "mlp"])
def test_delta_equals_freezing_everything_between(part: str) -> None:
    """Step by step: patch the sender, pin the rest, take over the receiver alone."""
    model, (clean, corrupt, reading) = random_decoder(), random_pair()
    own = Site("head_out", 0)
    out = Site("attn_out" if part == "attention" else "mlp_out", 2)
    between = [Site("mlp_out", 0), Site("attn_out", 1), Site("mlp_out", 1)]
    if part == "mlp":
        between.append(Site("attn_out", 2))
    clean_heads = activations(model, clean, [own])[own]
    corrupt_run = activations(model, corrupt, between)

    def patch(head_out: Tensor) -> Tensor:
        head_out = head_out.clone()
        head_out[:, :, 1] = clean_heads[:, :, 1]
        return head_out

    with intervene(model, {own: patch, **pinned(corrupt_run, between)}):
        received = activations(model, corrupt, [out])
    with intervene(model, pinned(received, [out])):
        expected = reading.metric(answer_logits(model, corrupt), corrupt)

    receiver = Receiver("attention", 2) if part == "attention" else Receiver("mlp", 2)
    grid = path_grid(head_grid("head_out", [0], [1]), receiver)
    patched = path_patch_sweep(model, clean, corrupt, grid, reading)
    torch.testing.assert_close(patched.values[0, 0], expected)
    assert float(change(patched).values.abs().max()) > 1e-4


def test_one_head_receives_through_its_pattern_or_its_values() -> None:
    """With the pattern pinned, values alone; by hand for one head of block 1."""
    model, (clean, corrupt, reading) = random_decoder(n_layers=2), random_pair()
    attention, layer = model.blocks[1].attn, 1
    sites = [Site("resid_pre", layer), Site("mlp_out", 0), Site("head_out", layer)]
    sites.append(Site("pattern", layer))
    before = activations(model, corrupt, sites)
    delta = activations(model, clean, sites)[sites[1]] - before[sites[1]]
    inputs = model.blocks[1].ln1.layer(before[sites[0]] + delta)
    assert attention.b_V is not None
    values = inputs @ attention.W_V[2] + attention.b_V[2]
    scores = (inputs @ attention.W_Q[2] + attention.b_Q[2]) @ (
        inputs @ attention.W_K[2] + attention.b_K[2]
    ).mT
    future = torch.ones(5, 5, dtype=torch.bool).triu(1)
    new = (scores / 2).masked_fill(future, -torch.inf).softmax(-1)
    old_values = (
        model.blocks[1].ln1.layer(before[sites[0]]) @ attention.W_V[2]
        + attention.b_V[2]
    )
    written = {
        "value": before[sites[3]][:, 2] @ values @ attention.W_O[2],
        "pattern": new @ old_values @ attention.W_O[2],
        "input": new @ values @ attention.W_O[2],
    }
    for through, result in written.items():

        def put(head_out: Tensor, result: Tensor = result) -> Tensor:
            head_out = head_out.clone()
            head_out[:, :, 2] = result.detach()
            return head_out

        with intervene(model, {sites[2]: put}):
            expected = reading.metric(answer_logits(model, corrupt), corrupt)
        receiver = Receiver("attention", 1, 2, through)  # type: ignore[arg-type]
        grid = path_grid(layer_grid("mlp_out", [0]), receiver)
        patched = path_patch_sweep(model, clean, corrupt, grid, reading)
        torch.testing.assert_close(patched.values[0], expected.detach())


def test_all_paths_of_a_linear_readout_add_up() -> None:
    """One block without norms: what attention and logits read is all there is."""
    config = DecoderConfig(
        d_vocab=13,
        d_model=12,
        n_layers=1,
        n_heads=3,
        n_ctx=6,
        d_mlp=0,
        norm="none",
        init_std=0.4,
    )
    source = torch.Generator().manual_seed(0)
    model, (clean, corrupt, reading) = (
        Decoder(config, generator=source).double(),
        random_pair(),
    )
    paths = (
        *(Path(EMBEDDING, Receiver("attention", 0, number)) for number in range(3)),
        Path(EMBEDDING, Receiver("logits")),
    )
    grid = Grid({"path": (0, 1, 2, "logits")}, paths)
    patched = path_patch_sweep(model, clean, corrupt, grid, reading)
    shares = effect(patched).mean("example").values
    assert float(shares.sum()) == pytest.approx(1)
    assert float(shares.abs().min()) > 0


def test_impossible_paths_are_named() -> None:
    model, (clean, corrupt, reading) = random_decoder(), random_pair()

    def patch(sender: Part, receiver: Receiver) -> None:
        grid = Grid({"path": (0,)}, (Path(sender, receiver),))
        path_patch_sweep(model, clean, corrupt, grid, reading)

    with pytest.raises(BadInput, match=r"head_out\[1\] writes after the attention of"):
        patch(head(1, 0), Receiver("attention", 1))
    with pytest.raises(BadInput, match=r"mlp_out\[1\] writes after the mlp of block 1"):
        patch(Part("mlp_out", 1), Receiver("mlp", 1))
    patch(head(1, 0), Receiver("mlp", 1))
    with pytest.raises(BadInput, match=r"unknown sender 'resid_pre\[1\]'"):
        patch(Part("resid_pre", 1), Receiver("logits"))
    shorter = Batch(clean.tokens[:, :4], clean.targets)
    grid = Grid({"path": (0,)}, (Path(EMBEDDING, Receiver("logits")),))
    with pytest.raises(BadInput, match="prompts of 4 and of 5 tokens"):
        path_patch_sweep(model, shorter, corrupt, grid, reading)
    with pytest.raises(BadInput, match="has neither heads nor a pattern"):
        Receiver("mlp", 1, head=0)

import copy
import json
from dataclasses import replace

import pytest
import torch
from einops import rearrange
from torch import Tensor
from torch.func import functional_call, stack_module_state
from transformer_lens import HookedRootModule
from transformers import GPT2Config, GPT2LMHeadModel

from tests.ground_truth import (
    GroundTruth,
    accuracy,
    copy_head_model,
    two_hop_model,
    uninformed_model,
)
from trained.config import as_dict, from_dict
from trained.decoder import Decoder, DecoderConfig, answer

TINY = DecoderConfig(
    d_vocab=11, d_model=16, n_layers=2, n_heads=2, n_ctx=6, init_std=0.3
)


def build(config: DecoderConfig, seed: int = 0) -> Decoder:
    return Decoder(config, generator=torch.Generator().manual_seed(seed))


def prompts(batch: int = 3, n_pos: int = 5, d_vocab: int = 11) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(d_vocab, (batch, n_pos), generator=generator)


VARIANTS = {
    "gpt2": TINY,
    "no positions, no norm": replace(TINY, positions="none", norm="none"),
    "untied relu": replace(TINY, head="untied", activation="relu", biases="mlp"),
    "regression": replace(TINY, head="affine", d_vocab_out=1, final_gain="none"),
    "attention only": replace(TINY, d_mlp=0, d_head=5, biases="none"),
    "orthonormal": replace(TINY, embedding="orthonormal", head="untied"),
    "own match left out": replace(
        TINY, key_query_identity=10.0, matching="off_diagonal"
    ),
    "symbols": replace(
        TINY,
        mask="none",
        key_query_identity=10.0,
        value_output_identity=10.0,
        matching="orthogonal",
    ),
}


@pytest.fixture(params=VARIANTS.values(), ids=VARIANTS.keys())
def variant(request: pytest.FixtureRequest) -> Decoder:
    model = build(request.param)
    draw = torch.Generator().manual_seed(2)
    for parameter in model.parameters():
        if not parameter.any():
            parameter.data.normal_(std=0.1, generator=draw)
    return model


def hugging_face_twin(model: Decoder) -> GPT2LMHeadModel:
    """Hugging Face's GPT-2 with the weights of a model of the default choices."""
    config = model.config
    twin = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=config.d_vocab,
            n_positions=config.n_ctx,
            n_embd=config.d_model,
            n_layer=config.n_layers,
            n_head=config.n_heads,
            bos_token_id=0,
            eos_token_id=0,
        )
    ).eval()
    state = {"wte.weight": model.W_E, "wpe.weight": model.W_pos}
    layers = {"ln_f": model.ln_final.layer}
    for index, block in enumerate(model.blocks):
        attn, mlp, name = block.attn, block.mlp, f"h.{index}"
        into = torch.stack([attn.W_Q, attn.W_K, attn.W_V])
        weights = {
            "attn.c_attn.weight": rearrange(into, "qkv head d k -> d (qkv head k)"),
            "attn.c_attn.bias": torch.stack([attn.b_Q, attn.b_K, attn.b_V]).flatten(),
            "attn.c_proj.weight": rearrange(attn.W_O, "head k d -> (head k) d"),
            "attn.c_proj.bias": attn.b_O,
            "mlp.c_fc.weight": mlp.W_in,
            "mlp.c_fc.bias": mlp.b_in,
            "mlp.c_proj.weight": mlp.W_out,
            "mlp.c_proj.bias": mlp.b_out,
        }
        state |= {f"{name}.{key}": weight for key, weight in weights.items()}
        layers |= {f"{name}.ln_1": block.ln1.layer, f"{name}.ln_2": block.ln2.layer}
    for name, layer in layers.items():
        state |= {f"{name}.weight": layer.weight, f"{name}.bias": layer.bias}
    twin.transformer.load_state_dict(state)
    return twin


def test_equals_hugging_face_gpt2() -> None:
    model = build(TINY)
    draw = torch.Generator().manual_seed(3)
    for parameter in model.parameters():
        parameter.data += torch.randn(parameter.shape, generator=draw) / 5
    with torch.no_grad():
        expected = hugging_face_twin(model)(prompts()).logits
        torch.testing.assert_close(model(prompts()), expected, atol=1e-5, rtol=0)


def test_transformer_lens_caches_every_site(variant: Decoder) -> None:
    assert isinstance(variant, HookedRootModule)
    plain = variant(prompts())
    logits, cache = variant.run_with_cache(prompts())
    torch.testing.assert_close(logits, plain)
    assert set(cache) == set(variant.hook_dict)
    config, last = variant.config, f"blocks.{variant.config.n_layers - 1}."
    heads = (3, 5, config.n_heads, config.head_size)
    assert cache[last + "attn.hook_q"].shape == heads
    assert cache[last + "attn.hook_z"].shape == heads
    assert cache[last + "attn.hook_result"].shape == (*heads[:3], config.d_model)
    attn_out = cache[last + "attn.hook_result"].sum(dim=2)
    bias = variant.blocks[-1].attn.b_O
    attn_out = attn_out if bias is None else attn_out + bias
    torch.testing.assert_close(cache[last + "hook_attn_out"], attn_out)
    torch.testing.assert_close(cache["hook_logits"], logits)


def test_final_norm_and_unembedding_give_the_logits(variant: Decoder) -> None:
    logits, cache = variant.run_with_cache(prompts())
    residual = cache[f"blocks.{variant.config.n_layers - 1}.hook_resid_post"]
    fired: list[str] = []
    variant.ln_final.hook_normalized.add_hook(lambda _, hook: fired.append(hook.name))
    lens = variant.final_norm(residual) @ variant.W_U
    lens = lens if variant.b_U is None else lens + variant.b_U
    torch.testing.assert_close(lens, logits)
    assert not fired
    assert variant.final_norm(residual[:, -1]).shape == (3, variant.config.d_model)


def test_pattern_rows_sum_to_one_and_obey_the_mask(variant: Decoder) -> None:
    _, cache = variant.run_with_cache(prompts())
    for layer in range(variant.config.n_layers):
        pattern = cache[f"blocks.{layer}.attn.hook_pattern"]
        assert pattern.shape == (3, 2, 5, 5)
        torch.testing.assert_close(pattern.sum(dim=-1), torch.ones(3, 2, 5))
        future = pattern.triu(1)
        assert (future.sum() == 0) == (variant.config.mask == "causal")


def test_run_with_hooks_edits_take_effect_and_leave_no_trace(variant: Decoder) -> None:
    plain = variant(prompts())
    for name in variant.hook_dict:
        same = variant.run_with_hooks(prompts(), fwd_hooks=[(name, lambda x, **_: x)])
        torch.testing.assert_close(same, plain)
        if not name.endswith(("hook_attn_scores", "hook_k")):
            double = [(name, lambda x, **_: x.roll(1, dims=0) * 2)]
            edited = variant.run_with_hooks(prompts(), fwd_hooks=double)
            assert not torch.allclose(edited, plain), name
    torch.testing.assert_close(variant(prompts()), plain, atol=0, rtol=0)


@pytest.mark.parametrize("name", ["hook_q", "hook_k", "hook_v"])
def test_a_hook_may_write_into_what_it_gets(variant: Decoder, name: str) -> None:
    """Queries, keys and values come out of one product; gradients still flow."""
    tokens = prompts()

    def written(x: Tensor, hook: object) -> Tensor:  # noqa: ARG001
        x[:, :, 0] = 0
        return x

    def replaced(x: Tensor, hook: object) -> Tensor:  # noqa: ARG001
        return torch.cat([torch.zeros_like(x[:, :, :1]), x[:, :, 1:]], 2)

    at = f"blocks.0.attn.{name}"
    one, other = (
        variant.run_with_hooks(tokens, fwd_hooks=[(at, edit)])
        for edit in (written, replaced)
    )
    torch.testing.assert_close(one, other)
    one.sum().backward()


def test_a_scores_edit_takes_effect() -> None:
    model = build(TINY)
    cut = [("blocks.0.attn.hook_attn_scores", lambda x, **_: x.roll(1, dims=0))]
    assert not torch.allclose(
        model.run_with_hooks(prompts(), fwd_hooks=cut), model(prompts())
    )


def test_embed_through_readout_compose(variant: Decoder) -> None:
    early = variant.through(variant.embed(prompts()), stop=1)
    late = variant.readout(variant.through(early, start=1))
    torch.testing.assert_close(late, variant(prompts()), atol=0, rtol=0)


def test_the_answer_is_what_all_positions_give_at_the_last(variant: Decoder) -> None:
    whole, short = variant(prompts())[:, -1], variant.answer(prompts())
    torch.testing.assert_close(short, whole, atol=1e-5, rtol=1e-5)
    parameters = [p for p in variant.parameters() if p.requires_grad]
    both = [
        torch.autograd.grad(said.square().sum(), parameters, allow_unused=True)
        for said in (short, whole)
    ]
    for ours, theirs in zip(*both, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


def test_a_listener_in_the_last_block_hears_every_position(variant: Decoder) -> None:
    seen: list[Tensor] = []
    hooks = [("blocks.1.hook_resid_post", lambda x, **_: seen.append(x))]
    with variant.hooks(fwd_hooks=hooks):
        said = variant.answer(prompts())
    assert seen[0].shape[:2] == prompts().shape
    torch.testing.assert_close(said, variant(prompts())[:, -1])


def test_other_models_answer_too() -> None:
    model = torch.nn.Embedding(11, 4)
    assert torch.equal(answer(model, prompts()), model(prompts()[:, -1]))


@pytest.mark.parametrize("matching", ["identity", "off_diagonal", "orthogonal"])
def test_identity_scalings_equal_explicit_matrices(matching: str) -> None:
    config = DecoderConfig(
        d_vocab=7, d_model=6, n_layers=1, n_heads=2, n_ctx=4, biases="none", d_mlp=0,
        init_std=0.5, key_query_identity=10.0, value_output_identity=3.0,
        matching=matching,
    )  # fmt: skip
    model = build(config)
    attention = model.blocks[0].attn
    attention.a.data[:] = torch.tensor([0.05, -0.2])
    attention.b.data[:] = torch.tensor([0.7, -1.1])
    _, cache = model.run_with_cache(prompts(2, 4, 7))
    x = cache["blocks.0.ln1.hook_normalized"]
    out = torch.zeros_like(x)
    for head, (a, b) in enumerate(zip(attention.a, attention.b, strict=True)):
        basis = attention.orthogonal.T if matching == "orthogonal" else torch.eye(6)
        scores = x @ attention.W_Q[head] @ attention.W_K[head].T @ x.mT / 3**0.5
        extra = 10 * a * x @ basis @ x.mT
        if matching == "off_diagonal":
            extra = extra - torch.diag_embed(extra.diagonal(dim1=-2, dim2=-1))
        future = torch.ones(4, 4, dtype=torch.bool).triu(1)
        pattern = (scores + extra).masked_fill(future, -torch.inf).softmax(dim=-1)
        move = attention.W_V[head] @ attention.W_O[head] + 3 * b * torch.eye(6)
        out += pattern @ x @ move
    torch.testing.assert_close(cache["blocks.0.hook_attn_out"], out)


def test_zero_scalars_leave_the_plain_model() -> None:
    scaled = replace(TINY, key_query_identity=10.0, value_output_identity=10.0)
    torch.testing.assert_close(
        build(scaled)(prompts()), build(TINY)(prompts()), atol=0, rtol=0
    )


def test_tied_head_is_the_embedding() -> None:
    model = build(TINY)
    assert model.W_U.data_ptr() == model.W_E.data_ptr()
    assert "unembedding" not in model.state_dict()
    untied = build(replace(TINY, head="untied"))
    assert not torch.equal(untied.W_U, untied.W_E.mT)


@pytest.mark.parametrize(
    ("gamma", "init_std"), [(0.5, None), (1.2, None), (None, 0.05), (None, None)]
)
def test_measured_init_std(gamma: float | None, init_std: float | None) -> None:
    model = build(
        DecoderConfig(
            d_vocab=200, d_model=64, n_layers=2, n_heads=4, d_head=32, n_ctx=100,
            head="untied", gamma=gamma, init_std=init_std,
        )
    )  # fmt: skip
    d_in = {"W_O": 128, "W_out": 256}
    for name, parameter in model.named_parameters():
        short = name.rsplit(".", 1)[-1]
        if parameter.ndim > 1 and "b_" not in short:
            fixed = 0.02 if init_std is None else init_std
            std = d_in.get(short, 64) ** -gamma if gamma else fixed
            # 6400 draws at least: the relative error of a std is about 0.009.
            assert parameter.std().item() == pytest.approx(std, rel=0.05), name
        elif "b_" in short:
            assert not parameter.any()


def test_orthonormal_embedding_is_orthonormal_and_frozen() -> None:
    model = build(replace(TINY, embedding="orthonormal", head="untied"))
    torch.testing.assert_close(model.W_E @ model.W_E.mT, torch.eye(11))
    assert "W_E" in model.state_dict()
    assert "W_E" not in dict(model.named_parameters())
    assert not torch.equal(model.W_E, build(model.config, seed=1).W_E)


def test_offset_shifts_positions() -> None:
    model, tokens = build(TINY), prompts(3, 4)
    offset = torch.tensor([0, 1, 2])
    expected = model.W_E[tokens] + model.W_pos[torch.arange(4) + offset[:, None]]
    torch.testing.assert_close(model.embed(tokens, offset=offset), expected)
    shifted = model(tokens, offset=offset)
    torch.testing.assert_close(shifted[0], model(tokens)[0])
    assert not torch.allclose(shifted[1], model(tokens)[1])


def test_no_positions_ignore_the_order_of_earlier_tokens() -> None:
    model = build(replace(TINY, positions="none", n_layers=1))
    tokens = torch.tensor([[1, 2, 3, 4], [3, 1, 2, 4]])
    logits = model(tokens)[:, -1]
    torch.testing.assert_close(logits[0], logits[1])


def test_vmap_over_stacked_models_equals_a_loop(variant: Decoder) -> None:
    models = [variant, build(variant.config, 1), build(variant.config, 2)]
    weights, buffers = stack_module_state(models)
    tokens = torch.stack([prompts(), prompts().flip(0), prompts().flip(1)])

    def loss(weights, buffers, tokens):
        logits = functional_call(variant, (weights, buffers), (tokens,))
        return logits.square().sum(), logits

    gradients, logits = torch.vmap(torch.func.grad(loss, has_aux=True))(
        weights, buffers, tokens
    )
    for index, model in enumerate(models):
        expected = model(tokens[index])
        torch.testing.assert_close(logits[index], expected, atol=1e-5, rtol=1e-5)
        expected.square().sum().backward()
        for name, parameter in model.named_parameters():
            found = gradients[name][index]
            torch.testing.assert_close(found, parameter.grad, atol=1e-4, rtol=1e-4)


def test_vmap_with_offsets() -> None:
    models = [build(TINY, seed) for seed in range(3)]
    offsets = torch.tensor([[0, 1, 2], [2, 0, 1], [1, 1, 1]])
    tokens = prompts(3, 4)

    def run(state, offset):
        return functional_call(models[0], state, (tokens,), {"offset": offset})

    logits = torch.vmap(run)(stack_module_state(models), offsets)
    loop = [m(tokens, offset=o) for m, o in zip(models, offsets, strict=True)]
    torch.testing.assert_close(logits, torch.stack(loop), atol=1e-5, rtol=0)


def test_weights_come_from_the_generator_alone(variant: Decoder) -> None:
    torch.manual_seed(0)
    first = build(variant.config, 5).state_dict()
    torch.manual_seed(1)
    second, other = (build(variant.config, seed).state_dict() for seed in (5, 6))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["W_E"], other["W_E"])


@pytest.mark.parametrize("build_truth", [copy_head_model, two_hop_model])
def test_wired_circuits_solve_their_task(build_truth) -> None:
    truth: GroundTruth = build_truth()
    logits, cache = truth.model.run_with_cache(truth.tokens)
    assert accuracy(truth, logits) == 1.0
    for wired in truth.circuit:
        pattern = cache[f"blocks.{wired.layer}.attn.hook_pattern"]
        assert pattern[:, wired.head, wired.query, wired.key].min() > 0.999
        name = f"blocks.{wired.layer}.attn.hook_z"
        assert (
            accuracy(truth, without(truth.model, truth.tokens, name, wired.head)) < 0.2
        )
    for layer, head in truth.idle:
        name = f"blocks.{layer}.attn.hook_z"
        assert cache[name][:, :, head].any()
        torch.testing.assert_close(
            without(truth.model, truth.tokens, name, head), logits, atol=0, rtol=0
        )


def without(model: Decoder, tokens: Tensor, name: str, head: int) -> Tensor:
    def zero(z: Tensor, **_: object) -> Tensor:
        keep = torch.ones(z.shape[2]).index_fill(0, torch.tensor(head), 0.0)
        return z * keep[:, None]

    return model.run_with_hooks(tokens, fwd_hooks=[(name, zero)])


def test_two_hop_bridge_is_at_position_one_after_the_first_layer() -> None:
    truth = two_hop_model()
    _, cache = truth.model.run_with_cache(truth.tokens)
    residual = cache["blocks.0.hook_resid_post"]
    bridge = residual[:, 1, truth.subspaces["bridge"]].argmax(dim=-1)
    assert torch.equal(bridge, (torch.arange(6) + 1) % 6)
    donor = residual.roll(1, dims=0)
    for position, follows in ((0, 0.0), (1, 1.0)):
        patched = residual.clone()
        patched[:, position] = donor[:, position]
        logits = truth.model.readout(truth.model.through(patched, start=1))
        answers = logits[:, -1].argmax(dim=-1)
        rate = (answers == truth.targets.roll(1)).double().mean().item()
        assert rate == follows


def test_uninformed_model_is_at_chance_whatever_the_context() -> None:
    truth, twin = uninformed_model(), two_hop_model()
    logits = truth.model(truth.tokens)
    assert accuracy(truth, logits) == pytest.approx(1 / 6)
    torch.testing.assert_close(logits[:, -1], logits[:1, -1].expand(6, -1))
    assert truth.model.config == twin.model.config
    assert torch.equal(truth.tokens, twin.tokens)
    assert torch.equal(truth.targets, twin.targets)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"positions": "rotary"}, "unknown positions 'rotary'.*: learned, none"),
        ({"activation": "silu"}, "unknown activation 'silu'.*: gelu_new, gelu, relu"),
        ({"n_layers": 0}, "n_layers=0: must be positive"),
        ({"d_mlp": -1}, "d_mlp=-1"),
        ({"n_heads": 3}, "n_heads=3: must divide d_model=16"),
        ({"d_vocab_out": 2}, "d_vocab_out=2.*untied or affine"),
        ({"d_model": 10, "embedding": "orthonormal"}, "d_model=10.*11"),
        ({"gamma": 0.5}, "init_std=0.3, gamma=0.5"),
    ],
)
def test_impossible_configs_are_refused(change, message: str) -> None:
    config = copy.copy(TINY)
    # Set behind the constructor, whose type check in tests would speak first.
    for name, value in change.items():
        object.__setattr__(config, name, value)
    with pytest.raises(ValueError, match=message):
        config.__post_init__()


def test_config_survives_json() -> None:
    for config in VARIANTS.values():
        assert (
            from_dict(DecoderConfig, json.loads(json.dumps(as_dict(config)))) == config
        )


def test_impossible_prompts_are_refused() -> None:
    with pytest.raises(ValueError, match="prompt of 7 tokens: the context holds 6"):
        build(TINY)(prompts(2, 7))
    no_positions = build(replace(TINY, positions="none"))
    with pytest.raises(ValueError, match="offset"):
        no_positions(prompts(), offset=torch.zeros(3, dtype=torch.long))

"""A tiny Llama written as a GGUF file, the way llama.cpp's converter lays it out."""

from pathlib import Path
from typing import Any

import pytest
from einops import rearrange
from torch import Tensor

from tests.random_models import D_VOCAB, random_model

_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def write_tiny_llama(path: Path, *, add_bos: bool | None = None) -> Any:
    """Write a random Llama with a byte-level tokenizer; the model that was written."""
    gguf = pytest.importorskip("gguf")
    model = random_model("llama")
    config = model.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(D_VOCAB)
    _add_tokenizer(writer)
    if add_bos is not None:
        writer.add_add_bos_token(add_bos)
    for name, tensor in _tensors(model):
        writer.add_tensor(name, tensor.detach().contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model


def _add_tokenizer(writer: Any) -> None:
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHI."
    tokens = ["<unk>", "<s>", "</s>", *letters, "ab"]
    assert len(tokens) == D_VOCAB
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_types([3, 3, 3, *[1] * (D_VOCAB - 3)])
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)


def _tensors(model: Any) -> list[tuple[str, Tensor]]:
    state = model.state_dict()
    found = [
        ("token_embd.weight", state["model.embed_tokens.weight"]),
        ("output_norm.weight", state["model.norm.weight"]),
        ("output.weight", state["lm_head.weight"]),
    ]
    for layer in range(model.config.num_hidden_layers):
        for theirs, short in _NAMES.items():
            tensor = state[f"model.layers.{layer}.{theirs}.weight"]
            if short in ("attn_q", "attn_k"):
                tensor = _interleaved(tensor, model.config.head_dim)
            found.append((f"blk.{layer}.{short}.weight", tensor))
    return found


def _interleaved(weight: Tensor, d_head: int) -> Tensor:
    """Rotary pairs side by side (GGUF) instead of in two halves (transformers)."""
    return rearrange(
        weight, "(head half d) m -> (head d half) m", half=2, d=d_head // 2
    )

"""stories260K, a real model of 1 MB: read from beside the project, never shipped.

The llama2.c layout: seven little-endian int32 sizes, then float32 tables. Query and key
rows hold each rotary pair side by side; transformers wants the pairs in two halves.
"""

import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from einops import rearrange
from tokenizers import Tokenizer, decoders, models, normalizers, processors
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

FOLDER = Path(__file__).parents[2] / "shared" / "data" / "stories260K"


def stories() -> tuple[Any, Any]:
    """The model and its tokenizer; skips the test if the files are not here."""
    if not FOLDER.is_dir():
        pytest.skip(f"{FOLDER} is not here")
    return _model().eval(), _tokenizer()


def _model() -> LlamaForCausalLM:
    data = (FOLDER / "stories260K.bin").read_bytes()
    d_model, d_mlp, n_layers, n_heads, n_kv, d_vocab, n_ctx = struct.unpack_from(
        "<7i", data
    )
    config = LlamaConfig(
        vocab_size=d_vocab,
        hidden_size=d_model,
        intermediate_size=d_mlp,
        num_hidden_layers=n_layers,
        num_attention_heads=n_heads,
        num_key_value_heads=n_kv,
        max_position_embeddings=n_ctx,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
    )
    rest = torch.frombuffer(bytearray(data[28:]), dtype=torch.float32)
    d_kv = d_model // n_heads * n_kv
    shapes = {
        "input_layernorm": (d_model,),
        "self_attn.q_proj": (d_model, d_model),
        "self_attn.k_proj": (d_kv, d_model),
        "self_attn.v_proj": (d_kv, d_model),
        "self_attn.o_proj": (d_model, d_model),
        "post_attention_layernorm": (d_model,),
        "mlp.gate_proj": (d_mlp, d_model),
        "mlp.down_proj": (d_model, d_mlp),
        "mlp.up_proj": (d_mlp, d_model),
    }
    embedding, rest = _take(rest, d_vocab, d_model)
    state = {"model.embed_tokens.weight": embedding, "lm_head.weight": embedding}
    for name, shape in shapes.items():
        layers, rest = _take(rest, n_layers, *shape)
        if name in ("self_attn.q_proj", "self_attn.k_proj"):
            layers = _in_halves(layers, d_model // n_heads)
        for layer, tensor in enumerate(layers):
            state[f"model.layers.{layer}.{name}.weight"] = tensor
    state["model.norm.weight"], _ = _take(rest, d_model)
    model = LlamaForCausalLM(config)
    model.load_state_dict(state)
    return model


def _take(data: Tensor, *shape: int) -> tuple[Tensor, Tensor]:
    """The first table of the data, and what follows it."""
    size = torch.Size(shape).numel()
    return data[:size].reshape(shape), data[size:]


def _in_halves(weight: Tensor, d_head: int) -> Tensor:
    return rearrange(
        weight,
        "layer (head d half) m -> layer (head half d) m",
        d=d_head // 2,
        half=2,
    )


def _tokenizer() -> PreTrainedTokenizerFast:
    """Pairs of pieces merge in the order of the scores of what they make."""
    pieces = _pieces()
    known = {piece: index for index, (piece, _) in enumerate(pieces)}
    merges = [
        (score, piece[:cut], piece[cut:])
        for piece, score in pieces
        for cut in range(1, len(piece))
        if piece[:cut] in known and piece[cut:] in known
    ]
    merges.sort(key=lambda merge: -merge[0])
    tokenizer = Tokenizer(
        models.BPE(
            vocab=known,
            merges=[(left, right) for _, left, right in merges],
            unk_token="<unk>",
        )
    )
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", known["<s>"])]
    )
    tokenizer.decoder = decoders.Replace("▁", " ")
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        pad_token="<unk>",
    )


def _pieces() -> list[tuple[str, float]]:
    data = (FOLDER / "tok512.bin").read_bytes()
    pieces, place = [], 4
    while place < len(data):
        score, length = struct.unpack_from("<fi", data, place)
        text = data[place + 8 : place + 8 + length].decode()
        pieces.append((text.replace(" ", "▁"), score))
        place += 8 + length
    # The file spells the first three in a way of its own.
    return [("<unk>", 0.0), ("<s>", 0.0), ("</s>", 0.0), *pieces[3:]]

"""Tiny models of every decoder family with random weights, and a tokenizer for them."""

from collections.abc import Callable
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from torch import nn
from transformers import PreTrainedTokenizerFast

D_VOCAB = 40
N_CTX = 32
N_LAYERS = 3

_SIZES: dict[str, Any] = {
    "vocab_size": D_VOCAB,
    "hidden_size": 32,
    "intermediate_size": 20,
    "num_hidden_layers": N_LAYERS,
    "num_attention_heads": 4,
    "max_position_embeddings": N_CTX,
    "initializer_range": 0.3,
    "tie_word_embeddings": False,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_GROUPED = {**_SIZES, "num_key_value_heads": 2}
_WIDE_HEADS = {**_GROUPED, "head_dim": 12}
_WINDOW = {"sliding_window": 4}
_ALTERNATING = {
    **_WINDOW,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
}

_VISION = {
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_hidden_layers": N_LAYERS,
    "num_attention_heads": 2,
}

CONFIGS: dict[str, Callable[[], Any]] = {
    "gemma": lambda: transformers.GemmaConfig(**_WIDE_HEADS),
    "gemma2": lambda: transformers.Gemma2Config(
        **_WIDE_HEADS,
        **_ALTERNATING,
        query_pre_attn_scalar=12,
        attn_logit_softcapping=2.0,
        final_logit_softcapping=3.0,
    ),
    "gemma3": lambda: transformers.Gemma3TextConfig(
        **_WIDE_HEADS, **_ALTERNATING, query_pre_attn_scalar=12
    ),
    "gemma3_inside": lambda: transformers.Gemma3Config(
        text_config=CONFIGS["gemma3"](),
        vision_config={**_VISION, "image_size": 8, "patch_size": 4},
        mm_tokens_per_image=4,
        tie_word_embeddings=False,
    ),
    "glm4": lambda: transformers.Glm4Config(**_GROUPED, head_dim=8),
    "gpt2": lambda: transformers.GPT2Config(
        vocab_size=D_VOCAB,
        n_embd=32,
        n_layer=N_LAYERS,
        n_head=4,
        n_positions=N_CTX,
        initializer_range=0.3,
        bos_token_id=1,
        eos_token_id=2,
    ),
    "granite": lambda: transformers.GraniteConfig(
        **_GROUPED,
        embedding_multiplier=3.0,
        attention_multiplier=0.4,
        residual_multiplier=0.5,
        logits_scaling=2.0,
    ),
    "llama": lambda: transformers.LlamaConfig(**_GROUPED),
    "mistral": lambda: transformers.MistralConfig(**_GROUPED, **_WINDOW),
    "mixtral": lambda: transformers.MixtralConfig(
        **{**_GROUPED, "intermediate_size": 16},
        **_WINDOW,
        num_local_experts=4,
        num_experts_per_tok=2,
    ),
    "neox": lambda: transformers.GPTNeoXConfig(**_SIZES),
    "neox_serial": lambda: transformers.GPTNeoXConfig(
        **_SIZES, use_parallel_residual=False
    ),
    "olmo": lambda: transformers.OlmoConfig(**_GROUPED),
    "olmo2": lambda: transformers.Olmo2Config(**_GROUPED),
    "phi": lambda: transformers.PhiConfig(**_GROUPED),
    "phi3": lambda: transformers.Phi3Config(**_GROUPED, **_WINDOW),
    "qwen2": lambda: transformers.Qwen2Config(**_GROUPED),
    "qwen3": lambda: transformers.Qwen3Config(**_WIDE_HEADS),
    # The block in the middle has an MLP, the others experts.
    "qwen3_moe": lambda: transformers.Qwen3MoeConfig(
        **_WIDE_HEADS,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=16,
        mlp_only_layers=[1],
    ),
    # The block in the middle has no rotary positions.
    "smollm3": lambda: transformers.SmolLM3Config(**_GROUPED, no_rope_layers=[1, 0, 1]),
}


LAYOUTS = (
    *("gemma2", "gemma3_inside", "gpt2", "granite", "llama", "mistral", "neox"),
    *("neox_serial", "olmo2", "phi", "phi3", "qwen3_moe"),
)
"""Families no two of which have their parts at the same places."""


def random_model(family: str, **options: Any) -> Any:
    """A tiny causal language model whose every parameter, biases too, is random."""
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(CONFIGS[family](), **options)
    _shake(model)
    return model.eval()


@torch.no_grad()
def _shake(model: nn.Module) -> None:
    """Biases start at 0 and norms at 1, where a mistake with them would not show."""
    for parameter in model.parameters():
        if parameter.ndim == 1:
            parameter += 0.2 * torch.randn_like(parameter)


def letter_tokenizer(**options: Any) -> PreTrainedTokenizerFast:
    """One token per letter, digit, space and full stop; padding is token 0."""
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHI ."
    words = ["<pad>", "<s>", "</s>", *letters]
    assert len(words) == D_VOCAB
    model = WordLevel({word: i for i, word in enumerate(words)}, unk_token="</s>")
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = Split("", "isolated")
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        **options,
    )

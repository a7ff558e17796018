"""Tiny random language models whose vocabulary is the words of given texts."""

import re
from collections.abc import Iterable
from typing import Any

import torch
from tokenizers import Regex, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from circuits.models import open as pretrained
from circuits.models.language_model import LanguageModel

WORD = r" ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]|\s"
"""A word, a number or a sign with the space before it, as in common vocabularies."""


def word_tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """One token for every word of the texts; `<s>` begins prompts if it is written."""
    words = dict.fromkeys(word for text in texts for word in re.findall(WORD, text))
    names = ["<pad>", "<s>", "</s>", *words]
    model = WordLevel({name: i for i, name in enumerate(names)}, unk_token="</s>")
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = Split(Regex(WORD), "isolated")
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
    )


def word_model(texts: Iterable[str], seed: int = 0, **options: Any) -> LanguageModel:
    """A random Llama of two layers and four heads that reads the texts."""
    tokenizer = word_tokenizer(texts)
    sizes = {
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "intermediate_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 1024,
        "initializer_range": 0.3,
    }
    torch.manual_seed(seed)
    hf = LlamaForCausalLM(LlamaConfig(**{**sizes, **options}))
    return pretrained.wrap(hf.eval().requires_grad_(False), tokenizer)

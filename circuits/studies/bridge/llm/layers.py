"""Layers of a language model: where the bridge can be read, and aligns.

A layer is chosen on every second row; the value comes from the others.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.interventions.part import column
from circuits.interventions.passes import activations
from circuits.models.language_model import LanguageModel
from circuits.models.prompts import opening
from circuits.sites import Site
from probes.alignment import centred_paired_cosine
from probes.lens import target_rank

from .rows import Row, lenders

States = Float[Tensor, "layer prompt d_model"]


def bridge_rank(model: LanguageModel, rows: Sequence[Row], at_once: int) -> float:
    """How much better the bridge ranks than another one, in powers of ten.

    log10 rank(other) - log10 rank(own) of the first tokens under the logit lens, at the
    subject's last token of a two-hop prompt, mean over rows that did not choose the
    layer.
    """
    subjects, asked = [row.e1 for row in rows], [row.two_hop for row in rows]
    others = lenders(rows)
    pairs = [
        [_first(model, r.e2) for r in pair] for pair in zip(rows, others, strict=True)
    ]
    states = states_at(model, asked, subjects, at_once)
    bridges = torch.tensor(pairs, device=model.device)
    ranks = target_rank(states, model.readout.logits, bridges).log10()
    gain = ranks[..., 1] - ranks[..., 0]
    layer = int(gain[:, 0::2].mean(1).argmax())
    return float(gain[layer, 1::2].mean())


def _first(model: LanguageModel, word: str) -> int:
    """The first token of a word, as it follows another."""
    return int(model.tokenizer.encode(f" {word}", add_special_tokens=False)[0])


def best_alignment(hops: States, names: States, others: States) -> tuple[float, float]:
    """Centred cosine of hops with names and with others, in the layer that is best.

    The even prompts choose the layer, the odd ones are measured.
    """
    halves = [slice(0, None, 2), slice(1, None, 2)]
    (chosen, chosen_null), (own, null) = (
        [
            centred_paired_cosine(hops[:, half], states[:, half]).mean(1)
            for states in (names, others)
        ]
        for half in halves
    )
    layer = int((chosen - chosen_null).argmax())
    return float(own[layer]), float(null[layer])


def states_at(
    model: LanguageModel, texts: Sequence[str], phrases: Sequence[str], at_once: int
) -> States:
    """The residual stream after every block, at the last token of each text's phrase.

    Args:
        model: the model.
        texts: the prompts, without what every prompt begins with.
        phrases: for each a part of it.
        at_once: prompts in one pass.
    """
    sites = [Site("resid_post", layer) for layer in range(model.n_layers)]
    first = opening(model).text
    parts = []
    for begin in range(0, len(texts), at_once):
        part = slice(begin, begin + at_once)
        written = [first + text for text in texts[part]]
        prompts = model.prompts(written, roles={"phrase": phrases[part]})
        seen = activations(model, prompts, sites)
        rows = torch.arange(len(prompts), device=model.device)
        at = column(prompts, "phrase")
        parts.append(torch.stack([seen[site][rows, at] for site in sites]))
    return torch.cat(parts, 1)

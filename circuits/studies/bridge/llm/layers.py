"""Where in the layers is a landmark's country?

A layer is chosen on half of the landmarks; the value comes from the other half.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.interventions.part import column
from circuits.interventions.passes import activations
from circuits.models.language_model import LanguageModel
from circuits.models.prompts import Prompts
from circuits.sites import Site
from probes.alignment import centred_paired_cosine
from probes.lens import target_rank

from .data import AT_ONCE, other_countries, start, tokens
from .facts import ATTRIBUTES, FIRST, Place


def bridge_rank(model: LanguageModel, several: Sequence[Place]) -> float:
    """How much better the country ranks than another one, in powers of ten.

    log10 rank(other) - log10 rank(own) under the logit lens at the landmark's last
    token of a two-hop question, mean over landmarks that did not choose the layer.
    """
    asked = [ATTRIBUTES[0].both.format(place.landmark) for place in several]
    states = states_at(model, asked, [place.landmark for place in several])
    own = tokens(model, (place.country for place in several))
    other = tokens(model, other_countries(several))
    readout = model.readout
    ranks = target_rank(
        states,
        readout.unembedding,
        torch.stack([own, other], -1),
        final_norm=readout.final_norm,
        bias=readout.bias,
    ).log10()
    gain = ranks[..., 1] - ranks[..., 0]
    layer = int(gain[:, 0::2].mean(1).argmax())
    return float(gain[layer, 1::2].mean())


def alignment(model: LanguageModel, several: Sequence[Place]) -> tuple[float, float]:
    """Does the first hop's output point where the country's own state does?

    The centred cosine of the last token of "[landmark] is in the country of" with the
    last token of "[country]", in one layer.

    Returns:
        Its mean over landmarks that did not choose the layer, and that with the state
        of another country.
    """
    asked = [FIRST.format(place.landmark) for place in several]
    hops = states_at(model, asked, asked)
    names, others = (
        states_at(model, countries, countries)
        for countries in ([p.country for p in several], other_countries(several))
    )
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
    model: LanguageModel, texts: Sequence[str], phrases: Sequence[str]
) -> Float[Tensor, "layer prompt d_model"]:
    """The residual stream after every block, at the last token of each text's phrase.

    Args:
        model: the model.
        texts: the prompts, without what every prompt begins with.
        phrases: for each a part of it.
    """
    first = start(model)
    parts = []
    for at in range(0, len(texts), AT_ONCE):
        part = slice(at, at + AT_ONCE)
        written = [first + text for text in texts[part]]
        prompts = model.prompts(written, roles={"phrase": phrases[part]})
        parts.append(_residuals(model, prompts))
    return torch.cat(parts, 1)


def _residuals(
    model: LanguageModel, prompts: Prompts
) -> Float[Tensor, "layer prompt d_model"]:
    sites = [Site("resid_post", layer) for layer in range(model.n_layers)]
    seen = activations(model, prompts, sites)
    rows = torch.arange(len(prompts.tokens), device=model.device)
    at = column(prompts, "phrase")
    return torch.stack([seen[site][rows, at] for site in sites])

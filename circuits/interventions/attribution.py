"""Who writes the answer's logit? Direct logit attribution by head and layer.

The final residual is a sum of what the embedding, every head and every MLP wrote, and
with the final norm frozen at its actual scale the logits are linear in it. So a logit
difference is a sum of one number per component; what a component does through later
ones counts as theirs. Falsified by: parts that do not add up to the model's own
logit difference.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from circuits.hooks import Model, readout_of, sites_of
from circuits.models.norms import exact, norm_parts
from circuits.sites import Site
from probes.measurement import Measurement
from trained.task import Batch

from .part import Places, column
from .passes import activations
from .sweep import require_answers


@torch.no_grad()
def logit_attribution(
    model: Model,
    examples: Batch,
    wrong: Int[Tensor, "..."],
    *,
    read_at: Places = "last",
) -> Measurement:
    """What each component adds to the logit of the target minus that of a wrong one.

    a_c = s <A c, W_U[target] - W_U[wrong]>, with A the final norm at the actual scale
    of the example's final residual, without its bias, and s the factor of the logits.
    Components: "embedding", "L0H1" for head 1 of block 0, "L0 bias" for what the
    attention adds beside its heads, "L0 mlp", and "constant", the bias of the norm and
    of the unembedding. Their sum is the logit difference, before the soft cap of models
    that have one.

    Returns:
        A Measurement with axes ("component", "example").
    """
    require_answers(wrong, examples)
    readout = readout_of(model)
    sites = sites_of(model)
    n_layers = 1 + max(site.layer for site in sites)
    last = Site("resid_post", n_layers - 1)
    kinds = ("head_out", "attn_out", "mlp_out")
    wanted = [Site("resid_pre"), *(s for s in sites if s.kind in kinds), last]
    seen = activations(model, examples, wanted, column(examples, read_at)[:, None])
    # Hundreds of small numbers: short types would lose their sum.
    parts = _components({site: exact(value[:, 0]) for site, value in seen.items()})
    final = seen[last][:, 0]
    norm = norm_parts(readout.final_norm, final)
    scale = norm.inverse_scale(final)
    # W_U may be tied and huge: only the two columns are used.
    columns = readout.unembedding.mT
    direction = exact(columns[examples.targets]) - exact(columns[wrong])
    direction = readout.scale * direction
    values = {
        name: (scale * norm.gain * norm.centre(written) * direction).sum(-1)
        for name, written in parts.items()
    }
    values["constant"] = (norm.bias * direction).sum(-1)
    if readout.bias is not None:
        bias = readout.bias[examples.targets] - readout.bias[wrong]
        values["constant"] += readout.scale * bias
    return Measurement(
        torch.stack(list(values.values())),
        ("component", "example"),
        {"component": tuple(values)},
        name="direct logit attribution",
        unit="logits",
        provenance={"read_at": str(read_at)},
    )


def _components(written: dict[Site, Tensor]) -> dict[str, Float[Tensor, "batch d"]]:
    """What every component wrote at the answer, by name."""
    parts = {"embedding": written[Site("resid_pre")]}
    n_layers = 1 + max(site.layer for site in written)
    for layer in range(n_layers):
        heads, total = Site("head_out", layer), Site("attn_out", layer)
        if heads in written:
            for number, head in enumerate(written[heads].unbind(1)):
                parts[f"L{layer}H{number}"] = head
            parts[f"L{layer} bias"] = written[total] - written[heads].sum(1)
        elif total in written:
            parts[f"L{layer} attention"] = written[total]
        if Site("mlp_out", layer) in written:
            parts[f"L{layer} mlp"] = written[Site("mlp_out", layer)]
    return parts

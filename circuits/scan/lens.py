"""The rows of the lens: every token of every accepted answer, layer by layer."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from circuits.inspection.answer_lens import answer_lens
from circuits.inspection.packing import Teaching
from circuits.models.language_model import LanguageModel

from .tables import Part, long


def lens_part(
    model: LanguageModel,
    taught: Sequence[Teaching],
    residual: Float[Tensor, "layer batch place d_model"],
    layers: Sequence[int],
    others: Mapping[int, int],
) -> Part | None:
    """The rows of a batch; None if no answer is read off it.

    Args:
        model: gives the readout.
        taught: what the model read.
        residual: at the last token of each prompt and at those of its answer.
        layers: their numbers.
        others: the token of the null, by prompt.
    """
    reads = [(row, read) for row, t in enumerate(taught) for read in t.reads]
    if not reads:
        return None
    # Answers of one prompt that begin alike are read at the same places.
    spots = list(dict.fromkeys((row, read.token) for row, read in reads))
    rows, places = torch.tensor(spots, device=residual.device).unbind(1)
    number = {spot: n for n, spot in enumerate(spots)}
    at = torch.tensor([number[row, read.token] for row, read in reads])
    targets = torch.tensor([read.target for _, read in reads], device=residual.device)
    prompts = [taught[row].item.index for row, _ in reads]
    nulls = [
        others.get(prompt, -1) if (read.answer, read.token) == (0, 0) else -1
        for prompt, (_, read) in zip(prompts, reads, strict=True)
    ]
    null = torch.tensor(nulls, device=residual.device)
    found = answer_lens(
        *(model.readout, residual[:, rows, places], targets, null),
        at=at.to(residual.device) if len(spots) < len(reads) else None,
    )
    values = {name: v.T.cpu().numpy() for name, v in found._asdict().items()}
    axes = {"read": range(len(reads)), "layer": layers}
    part = long(axes, values, np.ones((1, 1), bool))
    own = part.pop("read")
    part["prompt"] = np.asarray(prompts)[own]
    part["answer"] = np.asarray([read.answer for _, read in reads])[own]
    part["token"] = np.asarray([read.token for _, read in reads])[own]
    return part

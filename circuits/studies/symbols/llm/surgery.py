"""What programs lose when heads lose the identity part of their maps."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.interventions.head_matrices import Circuit
from circuits.models.language_model import LanguageModel

from .data import Program
from .programs import Cut, run
from .weights import strongest

SURGERY_SHARE = 0.1
"""Share of heads whose identity part is taken off."""


@dataclass(frozen=True)
class Patient:
    """A model and the programs that it is tried on, before and after.

    Attributes:
        programs: kinds of programs, with the logit differences of an untouched run;
            they repeat their assignments.
    """

    model: LanguageModel
    programs: Sequence[tuple[Sequence[Program], Float[Tensor, " example"]]]

    def lost(
        self,
        scores: Float[Tensor, "layer head"],
        circuit: Circuit,
        rotation: int | None,
    ) -> Float[Tensor, " kind"]:
        """The share of each kind's mean logit difference that is lost.

        Args:
            scores: heads with the largest ones are operated on; nan: undefined.
            circuit: which map.
            rotation: None for the identity part, a seed for a rotation in its place.
        """
        if bool(scores.isnan().any()):
            return torch.full((len(self.programs),), torch.nan)
        cut = Cut(strongest(scores, SURGERY_SHARE), circuit, rotation)
        shares = []
        for several, whole in self.programs:
            printed = run(self.model, several, form="repeated", marker="", cut=cut)
            shares.append(lost_share(whole, printed.difference))
        return torch.tensor(shares)


def lost_share(
    whole: Float[Tensor, " example"], without: Float[Tensor, " example"]
) -> float:
    """The share of the mean logit difference that is lost; nan if there is none.

    1 - mean(without) / mean(whole).

    >>> lost_share(torch.tensor([4.0, 2.0]), torch.tensor([1.0, 2.0]))
    0.5
    """
    before = float(whole.mean())
    return 1 - float(without.mean()) / before if before > 0 else float("nan")

"""Two models on one prompt: the same signals side by side, and their difference."""

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from circuits.datasets.row import Row
from probes.measurement import Measurement
from trained.errors import BadInput

from .inspect import ORIGIN_LETTERS, SCHEMA, Inspection

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Comparison:
    """The readings of one prompt by two models of one shape.

    Attributes:
        one: of the first.
        other: of the one that it is compared with.
    """

    one: Inspection
    other: Inspection

    def __post_init__(self) -> None:
        one, other = self.one, self.other
        if one.tokens != other.tokens:
            raise BadInput(
                f"{one.model} and {other.model} read {len(one.tokens)} and "
                f"{len(other.tokens)} tokens, not the same: compare models that share "
                "a tokenizer"
            )
        for name, (own, its) in self._pairs():
            if own.values.shape != its.values.shape:
                raise BadInput(
                    f"{name} of {one.model} has shape {tuple(own.values.shape)}, of "
                    f"{other.model} {tuple(its.values.shape)}: compare models of one "
                    "shape"
                )

    @property
    def models(self) -> tuple[str, str]:
        """Their names, told apart."""
        one, other = self.one.model, self.other.model
        return (one, other) if one != other else (one, f"{other} (against)")

    @property
    def change(self) -> str:
        """Which is taken from which, wherever a difference is shown."""
        one, other = self.models
        return f"{other} minus {one}"

    @property
    def origin(self) -> str:
        """What the figures are of: both models, and how the prompt begins."""
        prompt = textwrap.shorten(self.one.text, ORIGIN_LETTERS)
        return f"{' and '.join(self.models)}: {prompt}"

    def beside(self) -> dict[str, Measurement]:
        """Every signal of both; a first axis ("model",)."""
        return {
            name: Measurement(
                torch.stack([own.values, its.values]),
                ("model", *own.axes),
                {"model": self.models, **own.labels},
                name=own.name,
                unit=own.unit,
            )
            for name, (own, its) in self._pairs()
        }

    def differences(self) -> dict[str, Measurement]:
        """Every signal of the other (`--against`) minus that of the one."""
        return {
            name: Measurement(
                its.values - own.values,
                own.axes,
                own.labels,
                name=f"{own.name}: {self.change}",
                unit=own.unit,
            )
            for name, (own, its) in self._pairs()
        }

    def _pairs(self) -> Iterator[tuple[str, tuple[Measurement, Measurement]]]:
        for name, own in signals_of(self.one).items():
            yield name, (own, signals_of(self.other)[name])

    def figures(self) -> "dict[str, Figure]":
        """Every figure of the comparison, by name."""
        from .figures import comparison_figures

        return dict(comparison_figures(self))

    def as_dict(self) -> dict[str, Any]:
        """The object that the command writes."""
        return {
            "schema": SCHEMA,
            "models": list(self.models),
            "change": self.change,
            "inspections": [self.one.as_dict(), self.other.as_dict()],
            "differences": {
                name: {
                    "axes": list(change.axes),
                    "labels": {axis: list(own) for axis, own in change.labels.items()},
                    "values": change.values.tolist(),
                }
                for name, change in self.differences().items()
            },
        }


def signals_of(found: Inspection) -> dict[str, Measurement]:
    """The readings of a prompt that can be set beside another model's."""
    signals = {
        "log_prob": found.lens.log_prob.select(example=0),
        "rank": found.lens.rank.select(example=0),
        "logit": found.logit,
    }
    if found.attention is not None:
        signals["attention"] = found.attention.concentration
        if found.attention.mass is not None:
            signals["mass"] = found.attention.mass.select(keys="role")
    if found.alignment is not None:
        signals["alignment"] = found.alignment.select(of="roles")
    if found.patching is not None:
        signals["patching"] = found.patching
    return signals


def followed(row: Row, found: Inspection) -> Row:
    """The row with the answers that were followed: the other model follows them too."""
    return row if row.answers else replace(row, answers=found.answers.texts)

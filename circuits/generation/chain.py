"""What a model wrote after a prompt, step by step, and what was seen meanwhile."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from circuits.inspection.inspect import ORIGIN_LETTERS
from circuits.models.language_model import LanguageModel
from probes.measurement import Measurement
from trained.errors import BadInput, unknown
from trained.task import Batch

from .transcript import Step, step_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .effects import Effect

SCHEMA = 1

WRITTEN = "written"
"""The target that is whatever token is written."""


@dataclass(frozen=True, eq=False)
class Chain:
    """One prompt, what followed it, and the signals of every token that was written.

    A token's signals are those of the pass that chose it: its query is the token before
    it, its lens the residual there. A signal that was not asked for is None.

    Attributes:
        model: who wrote.
        batch: prompt and text as one prompt, whose roles are all spans: those of the
            prompt, every step (`step 2`) and its roles (`step 2 state`). It is what
            the library's other functions take.
        n_prompt: tokens of the prompt.
        steps: what was written.
        parts: the spans that part the columns among them, if no phrases overlap.
        mass: attention on every span; axes ("layer", "head", "token", "key").
        logit: of the targets, before the first layer and after each; axes ("layer",
            "token", "target").
        log_prob: the same in nats, among the whole vocabulary.
        rank: 1 is the top.
    """

    model: LanguageModel
    batch: Batch
    n_prompt: int
    steps: tuple[Step, ...]
    parts: tuple[str, ...]
    mass: Measurement | None = None
    logit: Measurement | None = None
    log_prob: Measurement | None = None
    rank: Measurement | None = None

    @property
    def prompt(self) -> str:
        """What the model read."""
        return str(self.model.tokenizer.decode(self.batch.tokens[0, : self.n_prompt]))

    @property
    def text(self) -> str:
        """What it wrote, without its special tokens."""
        return self._decoded(self.batch.tokens[0, self.n_prompt :])

    @property
    def origin(self) -> str:
        """What the figures are of: the model, and how the prompt begins."""
        return f"{self.model.name}: {textwrap.shorten(self.prompt, ORIGIN_LETTERS)}"

    def span_text(self, name: str) -> str:
        """The text of a span, without special tokens."""
        return self._decoded(self.batch.tokens[0, self.batch.role(name)[0]]).strip()

    def step(self, number: int) -> Step:
        """A step; people count from 1."""
        if not 1 <= number <= len(self.steps):
            raise unknown("step", number, f"1 to {len(self.steps)}")
        return self.steps[number - 1]

    def mass_by_step(self) -> Measurement:
        """The mass of a step's tokens, their mean; axes (layer, head, step, key)."""
        found = _asked_for(self.mass, "attention")
        parts = [found.values[:, :, list(step.tokens)].mean(2) for step in self.steps]
        return self._by_step(found, torch.stack(parts, 2), found.axes)

    def lens_by_step(self, role: str | None = None) -> Measurement:
        """The written tokens' lens by step; axes (layer, step).

        log p if it was asked for, else the logit.

        Args:
            role: of a step (a next state): its first token's, in the steps that have
                it. None: the mean over each step's tokens.
        """
        source = self.logit if self.log_prob is None else self.log_prob
        found = _asked_for(source, "lens' or 'logit").select(target=WRITTEN)
        if role is None:
            means = [found.values[:, list(step.tokens)].mean(1) for step in self.steps]
            return self._by_step(found, torch.stack(means, 1), ("layer", "token"))
        having = [n for n, step in enumerate(self.steps) if role in step.roles]
        if not having:
            known = sorted({name for step in self.steps for name in step.roles})
            raise unknown("role of a step", role, known or "none: give `roles`")
        first = [self.steps[n].roles[role][0] for n in having]
        return self._by_step(found, found.values[:, first], found.axes, having)

    def _by_step(
        self,
        found: Measurement,
        values: Tensor,
        axes: tuple[str, ...],
        numbers: Sequence[int] | None = None,
    ) -> Measurement:
        """A measurement whose tokens have become steps."""
        several = range(len(self.steps)) if numbers is None else numbers
        labels = {k: v for k, v in found.labels.items() if k in axes and k != "token"}
        labels["step"] = tuple(step_name(number) for number in several)
        named = tuple("step" if axis == "token" else axis for axis in axes)
        return Measurement(
            values, named, labels, found.name, found.unit, found.provenance
        )

    def knock_out(
        self,
        step: int,
        *,
        since: int | None = None,
        layers: Sequence[int] | None = None,
        head: int | tuple[int, ...] | None = None,
    ) -> "Effect":
        """Let later tokens no longer look at a step: what becomes of what follows?

        Their attention is spread over the rest. `NothingChanged` if in one of the
        layers nobody had looked there.

        Args:
            step: whose keys are cut.
            since: the first step that cannot look there; None for all after it.
            layers: None for all.
            head: one head, some, or None for all of these layers.
        """
        from .effects import knocked_out

        heads = (head,) if isinstance(head, int) else head
        return knocked_out(self, step, since or step + 1, layers, heads)

    def exchange(
        self, step: int, donor: "Chain", layer: int, *, role: str | None = None
    ) -> "Effect":
        """Give a step the state that it has in another chain: what follows now?

        Args:
            step: the step, in both chains.
            donor: the other chain, such as that of another prompt.
            layer: after which the residual is exchanged.
            role: of the step, with as many tokens in both; None for its last token.
        """
        from .effects import exchanged

        return exchanged(self, step, donor, layer, role)

    def figures(self) -> "dict[str, Figure]":
        """Every figure of what was seen, by name."""
        from .figures import all_figures

        return dict(all_figures(self))

    def as_dict(self) -> dict[str, Any]:
        """The object that the command writes."""
        found: dict[str, Any] = {
            "schema": SCHEMA,
            "model": self.model.name,
            "prompt": self.prompt,
            "text": self.text,
            "spans": {name: self.span_text(name) for name in self.batch.roles},
            "steps": [
                {
                    "text": step.text,
                    "tokens": [step.tokens.start, step.tokens.stop],
                    "roles": {role: list(at) for role, at in step.roles.items()},
                }
                for step in self.steps
            ],
        }
        for name in ("mass", "logit", "log_prob", "rank"):
            values: Measurement | None = getattr(self, name)
            if values is not None:
                found[name] = {
                    "axes": list(values.axes),
                    "labels": {axis: list(own) for axis, own in values.labels.items()},
                    "values": values.values.tolist(),
                }
        return found

    def _decoded(self, tokens: Tensor) -> str:
        return str(self.model.tokenizer.decode(tokens, skip_special_tokens=True))


def _asked_for(found: Measurement | None, signal: str) -> Measurement:
    if found is None:
        raise BadInput(f"'{signal}' was not among the signals")
    return found

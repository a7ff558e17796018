"""Reading trained models of the study: what they answer, how their states align."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from circuits.hooks import record
from circuits.sites import Site
from probes import alignment
from probes.alignment import paired_cosine, shifted_pair_cosine
from trained.analogy.arms import arms
from trained.analogy.config import Config
from trained.analogy.data import Conclusions, Premises
from trained.analogy.quantities import answer_logits, hits, premise_loss
from trained.arm import Arm
from trained.config import from_dict
from trained.store import Run
from trained.training import restore

VALUE = Site("value", 0)
"""V z of every token of the one-layer block."""

Prompts = Int[Tensor, "pair pos"]
States = Float[Tensor, "pair d_model"]


@dataclass(frozen=True)
class Trained:
    """One seed of an arm at a saved step."""

    arm: Arm
    seed: int
    model: Any

    @property
    def asked(self) -> Conclusions:
        """The test of the arm's task."""
        assert self.arm.held_out is not None
        return self.arm.held_out(self.seed)

    def premises(self, stage: int) -> Premises:
        """What a stage teaches (the last: -1)."""
        return self.arm.stages[stage].data(self.seed, 0)

    def untrained(self) -> "Trained":
        """The same model before training."""
        return Trained(self.arm, self.seed, self.arm.build(self.seed).eval())


class Reader:
    """The trained models of a run, by arm name."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.config = from_dict(Config, run.manifest["config"])
        self._arms = {arm.name: arm for arm in arms(self.config)}

    def arm(self, name: str) -> Arm:
        """An arm by name."""
        return self._arms[name]

    def seeds(self, name: str, step: int | None = None) -> list[Trained]:
        """Every seed of an arm at a saved step (default: the last)."""
        arm = self.arm(name)
        return [
            Trained(arm, seed, restore(self.run, arm, seed, step=step))
            for seed in arm.seeds(self.run.seeds)
        ]

    def of(
        self,
        name: str,
        reading: Callable[[Trained], float],
        *,
        step: int | None = None,
    ) -> list[float]:
        """A reading of every seed of an arm."""
        with torch.no_grad():
            return [float(reading(trained)) for trained in self.seeds(name, step)]


@dataclass(frozen=True)
class Alignment:
    """Mean cosine of matching pairs, raw and centred, beside mismatched ones."""

    raw: float
    centred: float
    shifted: float
    shifted_centred: float

    @classmethod
    def of(cls, source: States, target: States) -> "Alignment":
        """Of the states of sources and targets."""
        apart = alignment.centred(source), alignment.centred(target)
        return cls(
            float(paired_cosine(source, target).mean()),
            float(paired_cosine(*apart).mean()),
            float(shifted_pair_cosine(source, target).mean()),
            float(shifted_pair_cosine(*apart).mean()),
        )


def answers(model: Any, prompts: Prompts) -> Int[Tensor, " pair"]:
    """The argmax over the whole vocabulary."""
    return answer_logits(model, prompts).argmax(-1)


def share(given: Int[Tensor, " pair"], wanted: Int[Tensor, " pair"]) -> float:
    """Share of answers that are the wanted ones."""
    return float((given == wanted).float().mean())


def success(trained: Trained) -> float:
    """Share of targets that get their source's attribute."""
    return share(answers(trained.model, trained.asked.test), trained.asked.answer)


def known(trained: Trained) -> float:
    """Share of sources whose own attribution is answered."""
    return share(answers(trained.model, trained.asked.known), trained.asked.answer)


def shared_answer(trained: Trained) -> float:
    """Share of targets that answer with the shared property."""
    return share(answers(trained.model, trained.asked.test), trained.asked.shared)


def c_only(trained: Trained) -> float:
    """Success among the attribute tokens alone."""
    return _restricted(trained, trained.asked.test)


def known_c_only(trained: Trained) -> float:
    """The sources' own attribution among the attribute tokens alone."""
    return _restricted(trained, trained.asked.known)


def _restricted(trained: Trained, prompts: Prompts) -> float:
    among = answer_logits(trained.model, prompts)[:, trained.asked.answer]
    return share(among.argmax(-1), torch.arange(len(among)))


def answered(stage: int) -> Callable[[Trained], float]:
    """Share of a stage's premises that are answered."""

    def reading(trained: Trained) -> float:
        premises = trained.premises(stage)
        return float(hits(trained.model, premises.tokens, premises.targets))

    return reading


def training_loss(trained: Trained) -> float:
    """Loss on what the last stage teaches."""
    return float(premise_loss(trained.model, trained.premises(-1)))


def value_alignment(trained: Trained) -> Alignment:
    """Of V z, recorded in r2 prompts of source and target."""
    return Alignment.of(
        entity_values(trained.model, trained.asked.known),
        entity_values(trained.model, trained.asked.test),
    )


def entity_values(model: Any, prompts: Prompts) -> States:
    """V z of each prompt's entity."""
    with record(model, [VALUE]) as seen:
        model(prompts)
    return seen[VALUE][:, 0, 0]


def states(
    model: Any, prompts: Prompts, sites: Sequence[Site], position: int
) -> Float[Tensor, "site pair d_model"]:
    """Activations of one position at some sites."""
    with record(model, sites) as seen:
        model(prompts)
    return torch.stack([seen[site][:, position] for site in sites])


def final_alignment(trained: Trained) -> Alignment:
    """Of GPT-2's states after the final norm at the last token of r2 prompts."""
    model = trained.model
    last = [Site("resid_post", len(model.blocks) - 1)]
    source, target = (
        model.final_norm(states(model, prompts, last, -1)[0])
        for prompts in (trained.asked.known, trained.asked.test)
    )
    return Alignment.of(source, target)


def least_gain(values: Sequence[float]) -> float:
    """The smallest step from one value to the next."""
    return min(later - earlier for earlier, later in pairwise(values))

"""Reading the study's trained models: what they answer, how their states align.

Success alone cannot tell missing alignment from forgetting and from output drift, so
it never stands alone: `c_only` takes the answer among the further properties only,
`retained` asks whether the source's own attribution survived, `shared_answer` whether
the target answers with the shared property.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import combinations, pairwise
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize
from torch.utils import _pytree as pytree

from circuits.claims import NotTested
from circuits.interventions.ablation import ablate
from circuits.interventions.edit import Add, Mean
from circuits.interventions.part import Part, column
from circuits.interventions.passes import activations
from circuits.lab import Lab, once
from circuits.sites import Site
from probes import alignment
from probes.alignment import paired_cosine, shifted_pair_cosine
from trained.analogy.arms import labelled
from trained.analogy.block_arms import first_phase_step, fitted_step
from trained.analogy.config import Config
from trained.analogy.task import (
    Conclusions,
    Premises,
    hits,
    hits_among,
    premise_loss,
)
from trained.arm import Arm
from trained.errors import NothingChanged
from trained.seeding import generator
from trained.task import Batch

Values = list[float]
"""One per seed."""
When = Literal["end", "first phase", "fitted"]
"""Of an arm of two phases: its end, the end of the first, when the second just fits."""
Curve = Float[Tensor, "layer pair"]
Taken = Mapping[Part, tuple[Tensor, Tensor]]
"""What a removal takes off: lengths, and the directions they are along."""
Maker = Callable[[Arm, int, int | None], Any]
"""(arm, seed, saved step) -> a model made by hand."""
ENTITY_VALUE = Part("value", positions="entity")


@dataclass(frozen=True)
class Cosines:
    """Mean cosine of matching pairs, raw and centred, beside mismatched ones."""

    raw: float
    centred: float
    shifted: float
    shifted_centred: float

    @classmethod
    def of(cls, source: Tensor, target: Tensor) -> "Cosines":
        """Of the states of sources and targets."""
        apart = alignment.centred(source), alignment.centred(target)
        return cls(
            float(paired_cosine(source, target).mean()),
            float(paired_cosine(*apart).mean()),
            float(shifted_pair_cosine(source, target).mean()),
            float(shifted_pair_cosine(*apart).mean()),
        )


class AnalogyLab(Lab):
    """A run of the study; quantities of an arm are lists, one value per seed.

    Attributes:
        makers: by arm, what makes its models in place of training; see `substitutes`.
    """

    config: Config
    makers: Mapping[str, Maker] = {}

    @once
    def model(self, arm: str, seed: int, step: int | None = None) -> Any:
        """One model at a saved step (default: the last), trained or made by hand."""
        make = self.makers.get(arm) if self.trained and not self.twin else None
        if make is None:
            return super().model(arm, seed, step)
        made = make(self.arm(arm), seed, step)
        return made.eval().requires_grad_(False).to(self.device)

    def has(self, arm: str) -> bool:
        """Whether an arm was trained."""
        name = arm + self.twin
        return name in self.arms and self.run.is_done(name)

    def joint(self, part: str, k: int | None = None) -> str:
        """The arm of joint training with k copies of the similarity premises."""
        return f"{part}-joint-k{k or self.config.multiplicity}"

    def named(self, part: str, curriculum: str) -> str:
        """The arm of a curriculum; `joint` with the main number of copies."""
        joint = curriculum == "joint"
        return self.joint(part) if joint else f"{part}-{curriculum}"

    def asked(self, arm: str, seed: int = 0) -> Conclusions:
        """The test of an arm's task."""
        held_out = self.arm(arm).held_out
        assert held_out is not None
        return self._here(held_out(seed))

    def examples(self, arm: str, seed: int) -> Batch:
        """The prompts that an arm was tested on."""
        if self.arm(arm).held_out is None:
            return labelled(self.config.linear).to(self.device)
        return self.asked(arm, seed).test

    def premises(self, arm: str, stage: int) -> Premises:
        """What a stage teaches (the last: -1).

        Of a twin, too, which was taught permuted answers: it is asked for the true.
        """
        self.arm(arm)  # must have been trained
        return self._here(self.arms[arm].stages[stage].data(0, 0))

    def success(self, arm: str, when: When = "end") -> Values:
        """Share of targets that get their source's attribute."""
        return self._of(arm, lambda model, asked: hits(model, asked.test), when)

    def c_only(self, arm: str, when: When = "end") -> Values:
        """Success among the attribute tokens alone."""
        return self._of(arm, lambda model, asked: hits_among(model, asked.test), when)

    def retained(self, arm: str, when: When = "end") -> Values:
        """Share of sources whose own attribution is answered."""
        return self._of(arm, lambda model, asked: hits(model, asked.known), when)

    def shared_answer(self, arm: str, when: When = "end") -> Values:
        """Share of targets that answer with the shared property."""

        def share(model: Any, asked: Conclusions) -> Tensor:
            return hits(model, asked.test.with_targets(asked.shared))

        return self._of(arm, share, when)

    def answers_as(self, arm: str, shift: int, tuples: slice = slice(None)) -> Values:
        """Share of some targets that answer as the tuple `shift` further on."""

        def share(model: Any, asked: Conclusions) -> Tensor:
            other = asked.test.with_targets(asked.test.targets.roll(-shift))
            return hits(model, other.rows(tuples))

        return self._of(arm, share)

    def answered(self, arm: str, stage: int = -1, when: When = "end") -> Values:
        """Share of a stage's premises that are answered."""
        facts = self.premises(arm, stage).facts
        return self._of(arm, lambda model, _: hits(model, facts), when)

    def loss(self, arm: str, stage: int = -1, when: When = "end") -> Values:
        """Loss on what a stage teaches."""
        premises = self.premises(arm, stage)
        return self._of(arm, lambda model, _: premise_loss(model, premises), when)

    def loss_alike(self, arm: str) -> Values:
        """The same for the last stage, all its entities given one V z.

        No head can then tell n prompts apart: at least the logarithm of n.
        """
        premises = self.premises(arm, -1)
        rule = Mean([premises.facts], over="examples")

        def loss(model: Any, _: Conclusions) -> Tensor:
            with ablate(model, premises.facts, [ENTITY_VALUE], rule):
                return premise_loss(model, premises)

        return self._of(arm, loss)

    def cosine(self, arm: str, of: str = "raw") -> Values:
        """Of source and target; `of` is a field of `Cosines`."""
        return [float(getattr(found, of)) for found in self.cosines(arm)]

    @once
    def cosines(self, arm: str) -> list[Cosines]:
        """Of V z of source and target, recorded in r2 prompts.

        Of GPT-2: of the states after the final norm, at the last token.
        """
        asked = self.asked(arm)
        read = final_states if arm.startswith("gpt") else entity_values
        return [
            Cosines.of(read(model, asked.known), read(model, asked.test))
            for model in self.models(arm)
        ]

    def gains(self, part: str, ks: Sequence[int], of: str = "raw") -> Values:
        """The smallest gain of the cosine from one k to the next."""
        rows = [self.cosine(self.joint(part, k), of) for k in ks]
        return [least_gain(column) for column in zip(*rows, strict=True)]

    def imbalance(self, arm: str) -> Values:
        """The largest distance of the entity's attention from 1/2 over all premises."""
        facts = self.premises(arm, 0).facts
        site = Site("pattern", 0)

        def largest(model: Any, _: Conclusions) -> Tensor:
            rows = activations(model, facts, [site])[site][:, 0, 0]
            weights = rows.gather(-1, facts.role("entity"))
            return (weights - 0.5).abs().max()

        return self._of(arm, largest)

    def coefficient(self, arm: str, entity: str, label: str, shift: int = 0) -> Values:
        """What stage 1 added to V z of a label's head row, over the prediction.

        The rows are not orthogonal, so all coefficients are solved for at once. An even
        softmax takes the same from all of them, which is put back; then the prediction
        is rate x steps x scale / 2 x the weight of the entity's facts with that label.

        Args:
            arm: of the one-layer block.
            entity: `source` or `target`.
            label: `shared` or `answer`.
            shift: take the label of the tuple so much further on.
        """
        asked, (facts, weights) = self.asked(arm), self.premises(arm, 0)
        prompts = asked.known if entity == "source" else asked.test
        labels = asked.shared if label == "shared" else asked.test.targets
        own = facts.tokens.gather(1, facts.role("entity"))[:, 0] == prompts.tokens[0, 0]
        taught = weights[own & (facts.targets == labels[0])].sum()
        labels, stage = labels.roll(-shift), self.arm(arm).stages[0]

        def ratio(model: Any, seed: int) -> float:
            before = self.untrained().model(arm, seed)
            added = entity_values(model, prompts) - entity_values(before, prompts)
            rows = torch.linalg.lstsq(before.head.mT, added.mT).solution
            found = rows[labels, torch.arange(len(labels), device=rows.device)]
            step = stage.optimiser.lr * stage.steps * model.scale / 2
            evenly = weights[own].sum() / len(before.head)
            return float((found.mean() / step + evenly) / taught)

        return self.each(arm, ratio)

    @once
    def without_source(self, arm: str) -> Values:
        """Success after the target loses its component along its source.

        Of the block: of V z. Of GPT-2: along the source's centred direction after all
        blocks but the last, at both positions, since block 0 reads the raw embedding.
        """
        return self._without(arm, self._along_source)

    @once
    def without_random(self, arm: str) -> Values:
        """The control: the same lengths come off random directions, mean of draws."""

        def along_random(arm: str, seed: int, draw: int) -> Taken:
            return {
                part: (length, random_directions(along, seed, part.site, draw))
                for part, (length, along) in self._along_source(arm, seed).items()
            }

        draws = [
            self._without(arm, partial(along_random, draw=draw))
            for draw in range(self.config.random_draws)
        ]
        return [sum(found) / len(found) for found in zip(*draws, strict=True)]

    @once
    def without_property(self, arm: str, shift: int = 0) -> Values:
        """Success of the block after V z loses what tells its property from others.

        That is its component along the head row that the shared property had before
        training, which stage 1 adds to source and target, centred over the properties.

        Args:
            arm: of the one-layer block.
            shift: the control: the same length comes off along the property of the
                tuple so much further on.
        """

        def along_property(arm: str, seed: int) -> Taken:
            asked = self.asked(arm)
            rows = self.untrained().model(arm, seed).head[asked.shared]
            rows = normalize(alignment.centred(rows), dim=-1)
            values = entity_values(self.model(arm, seed), asked.test)
            length = (values * rows).sum(-1, keepdim=True)
            return {
                ENTITY_VALUE: (
                    length[:, None, None],
                    rows.roll(-shift, 0)[:, None, None],
                )
            }

        return self._without(arm, along_property)

    def _without(self, arm: str, taken: Callable[[str, int], Taken]) -> Values:
        """Success without what is taken; nothing to take has no effect."""
        test = self.asked(arm).test

        def success(model: Any, seed: int) -> float:
            try:
                with without(model, test, taken(arm, seed)):
                    return float(hits(model, test))
            except NothingChanged:
                return float(hits(model, test))

        return self.each(arm, success)

    def _along_source(self, arm: str, seed: int) -> Taken:
        model, asked = self.model(arm, seed), self.asked(arm)
        if not arm.startswith("gpt"):
            return removed(model, asked, [ENTITY_VALUE], centred=False)
        parts = [Part("resid_post", i) for i in range(len(model.blocks) - 1)]
        return removed(model, asked, parts, centred=True)

    @once
    def linear_depth(self) -> list[tuple[Curve, Curve]]:
        """Cosine of same-label inputs, and of different labels, from the input on."""
        return [linear_curves(model, self.config) for model in self.models("linear")]

    def depth(self, of: Callable[[Curve, Curve], float]) -> Values:
        """A quantity of the deep linear network's two curves."""
        return [float(of(*curves)) for curves in self.linear_depth()]

    @once
    def entity_depth(self, arm: str) -> list[tuple[Curve, Curve]]:
        """Cosine of source and target, and of shifted pairs, at GPT-2's entity."""
        return [gpt_curves(model, self.asked(arm)) for model in self.models(arm)]

    def step(self, arm: str, when: When) -> int | None:
        """The saved step; None for the last."""
        if when == "end":
            return None
        part = arm.partition("-")[0]
        if part == "block":
            at = first_phase_step if when == "first phase" else fitted_step
            step = at(self.config)
        else:
            step = getattr(self.config, part).steps
        name = self.arm(arm).name
        if step not in self.run.record(name)["saved_steps"]:
            raise NotTested(f"arm {name} was not saved at {when}")
        return step

    def _of(
        self,
        arm: str,
        quantity: Callable[[Any, Conclusions], float | Tensor],
        when: When = "end",
    ) -> Values:
        asked, step = self.asked(arm), self.step(arm, when)
        return self.each(arm, lambda model, _: float(quantity(model, asked)), step)

    def _here(self, data: Any) -> Any:
        return pytree.tree_map(lambda leaf: leaf.to(self.device), data)


def state(model: Any, prompts: Batch, site: Site, role: str) -> Tensor:
    """Activations at the position of a role, example by example."""
    rows = torch.arange(len(prompts), device=prompts.tokens.device)
    return activations(model, prompts, [site])[site][rows, column(prompts, role)]


def entity_values(model: Any, prompts: Batch) -> Float[Tensor, "pair d_model"]:
    """V z of each prompt's entity, in the one-layer block."""
    return state(model, prompts, Site("value", 0), "entity")[:, 0]


def final_states(model: Any, prompts: Batch) -> Float[Tensor, "pair d_model"]:
    """GPT-2's states after the final norm at the last token."""
    last = Site("resid_post", len(model.blocks) - 1)
    states: Tensor = model.final_norm(state(model, prompts, last, "last"))
    return states


def removed(
    model: Any, asked: Conclusions, parts: Sequence[Part], *, centred: bool
) -> Taken:
    """What the targets' parts have along their sources', in a pass that loses it.

    Args:
        model: the model.
        asked: whose sources and targets.
        parts: in the order of the pass: a later one sees the loss of the earlier.
        centred: measure from the mean over the sources.
    """
    taken: dict[Part, tuple[Tensor, Tensor]] = {}
    for part in parts:
        source = activations(model, asked.known, [part.site])[part.site]
        with without(model, asked.test, taken):
            target = activations(model, asked.test, [part.site])[part.site]
        common = source.mean(0) if centred else torch.zeros_like(source[0])
        along = normalize(source - common, dim=-1)
        length = ((target - common) * along).sum(-1, keepdim=True)
        taken[part] = length, along
    return taken


@contextmanager
def without(model: Any, prompts: Batch, taken: Taken) -> Iterator[None]:
    """Let the parts lose lengths along directions, in every pass in the block."""
    with ExitStack() as stack:
        for part, (length, along) in taken.items():
            stack.enter_context(ablate(model, prompts, [part], Add(-length * along)))
        yield


def random_directions(like: Tensor, seed: int, site: Site, draw: int) -> Tensor:
    """Unit vectors of a seed and draw."""
    source = generator(seed, "analogy", "random direction", str(site), draw)
    return normalize(torch.randn(like.shape, generator=source), dim=-1).to(like)


def linear_curves(model: Any, config: Config) -> tuple[Curve, Curve]:
    """Every pair of inputs with one label, and inputs of neighbouring labels."""
    inputs, per_label = labelled(config.linear), config.linear.inputs_per_label
    inputs = inputs.to(model.W_E.device)
    sites = [Site("resid_pre", 0)]
    sites += [Site("resid_post", layer) for layer in range(len(model.blocks))]
    seen = activations(model, inputs, sites)
    states = torch.stack([seen[site][:, 0] for site in sites])
    nth = [states[:, i::per_label] for i in range(per_label)]
    same = [paired_cosine(a, b) for a, b in combinations(nth, 2)]
    return torch.cat(same, -1), shifted_pair_cosine(nth[0], nth[1])


def gpt_curves(model: Any, asked: Conclusions) -> tuple[Curve, Curve]:
    """Source and target, and shifted pairs, from the embedding through every block.

    The first point is the token embedding: positions are the same for all entities.
    """
    sites = [Site("resid_post", layer) for layer in range(len(model.blocks))]

    def states(prompts: Batch) -> Tensor:
        entities = prompts.tokens.gather(1, prompts.role("entity"))[:, 0]
        after = [state(model, prompts, site, "entity") for site in sites]
        return torch.stack([model.W_E[entities], *after])

    source, target = states(asked.known), states(asked.test)
    return paired_cosine(source, target), shifted_pair_cosine(source, target)


def least_gain(values: Sequence[float]) -> float:
    """The smallest step from one value to the next."""
    return min(later - earlier for earlier, later in pairwise(values))

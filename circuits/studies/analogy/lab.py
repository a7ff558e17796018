"""Reading the study's trained models: what they answer, how their states align.

Success alone cannot tell missing alignment from forgetting and from output drift, so
it never stands alone: `c_only` takes the answer among the further properties only,
`retained` asks whether the source's own attribution survived, `shared_answer` whether
the target answers with the shared property.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import normalize
from torch.utils import _pytree as pytree

from circuits.claims import NotTested
from circuits.interventions.part import Part
from circuits.interventions.passes import activations
from circuits.interventions.weights import edited
from circuits.lab import Lab, once
from circuits.sites import Site
from probes import alignment
from trained.analogy.block_arms import first_phase_step, fitted_step, later_steps
from trained.analogy.config import Config
from trained.analogy.head import descend
from trained.analogy.task import (
    Conclusions,
    Premises,
    hits,
    hits_among,
    premise_loss,
)
from trained.arm import Arm
from trained.errors import or_intact
from trained.task import Batch

from .curves import Curve, gpt_curves, labelled_curves, linear_curves
from .removal import ENTITY_VALUE, Taken, randomised, removed, without
from .states import Cosines, entity_values, final_states

Values = list[float]
"""One per seed."""
When = Literal["end", "first phase", "fitted"] | int
"""Of an arm of two phases: its end, the end of the first, when the second just fits;
or a saved step."""
Maker = Callable[[Arm, int, int | None], Any]
"""(arm, seed, saved step) -> a model made by hand."""


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
            found: Batch = self._here(self.arm(arm).stages[0].data(seed, 0))
            return found
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

    def most(self, quantity: str, arm: str) -> Values:
        """A quantity of AS where it is largest, summed over the seeds.

        That is among all kept steps from the first full fit to convergence.

        Args:
            quantity: the name of a method such as `success`.
            arm: of the one-layer block.
        """
        read = getattr(self, quantity)
        found = [read(arm, step) for step in later_steps(self.config)]
        return max(found, key=sum)

    @once
    def loss_alike(self, arm: str) -> Values:
        """The loss on the last phase if it is taught to a block that cannot fit it.

        Its entities share one V z, the mean of theirs, and the arm's own stages of the
        last phase train the head: it stays above the logarithm of their number.
        """
        premises = self.premises(arm, -1)
        tokens = premises.facts.tokens[:, 0]
        stages = [s for s in self.arms[arm].stages if s.name.startswith("round")]

        def loss(model: Any, _: int) -> float:
            values = model.value_vectors(tokens)
            change = (values.mean(0) - values).mT @ model.W_E[tokens]
            alike = edited(model, {"blocks.0.attn.W_V": lambda w: w + change})
            alike.head.requires_grad_()
            for stage in stages:
                descend(alike, stage, premises)
            return float(premise_loss(alike, premises).detach())

        return self.each(arm, loss, self.step(arm, "first phase"))

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
        return self._mean_of_draws(arm, self._along_source)

    @once
    def with_displacement(self, arm: str, share: float, shift: int = 0) -> Values:
        """Share of targets that answer as the source whose displacement they are given.

        That is V z of a source less what it was before stage 1.

        Args:
            arm: of the one-layer block.
            share: of the displacement, added to V z of the target.
            shift: the source of the tuple so much further on.
        """
        return self._without(arm, partial(self._displacement, -share, shift), shift)

    @once
    def with_random(self, arm: str) -> Values:
        """The control: success with as long a random vector, mean of draws."""
        return self._mean_of_draws(arm, partial(self._displacement, -1.0, 0))

    def _displacement(self, share: float, shift: int, arm: str, seed: int) -> Taken:
        known = self.asked(arm).known
        models = self.model(arm, seed), self.untrained().model(arm, seed)
        after, before = (entity_values(model, known) for model in models)
        added = (after - before).roll(-shift, 0)[:, None, None]
        length = share * added.norm(dim=-1, keepdim=True)
        return {ENTITY_VALUE: (length, normalize(added, dim=-1))}

    def _mean_of_draws(self, arm: str, taken: Callable[[str, int], Taken]) -> Values:
        def along_random(arm: str, seed: int, draw: int) -> Taken:
            return randomised(taken(arm, seed), seed, draw)

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

    def _without(
        self, arm: str, taken: Callable[[str, int], Taken], shift: int = 0
    ) -> Values:
        """Success without what is taken; nothing to take has no effect."""
        test = self.asked(arm).test
        asked = test.with_targets(test.targets.roll(-shift))

        def success(model: Any, seed: int) -> float:
            def edited() -> float:
                with without(model, asked, taken(arm, seed)):
                    return float(hits(model, asked))

            return or_intact(edited, lambda: float(hits(model, asked)))

        return self.each(arm, success)

    def _along_source(self, arm: str, seed: int) -> Taken:
        model, asked = self.model(arm, seed), self.asked(arm)
        if not arm.startswith("gpt"):
            return removed(model, asked, [ENTITY_VALUE], centred=False)
        parts = [Part("resid_post", i) for i in range(len(model.blocks) - 1)]
        return removed(model, asked, parts, centred=True)

    @once
    def linear_depth(self, inputs: int) -> list[tuple[Curve, Curve]]:
        """Cosine of same-label inputs, and of shifted labels, from the input on."""
        models = self.models(f"linear-{inputs}")
        return [linear_curves(model, inputs) for model in models]

    @once
    def labelled_depth(self, arm: str = "gpt-labelled") -> list[tuple[Curve, Curve]]:
        """The same of GPT-2 on single tokens, from the embedding to the final norm."""
        inputs = self.config.labelled.inputs_per_label
        return [labelled_curves(model, inputs) for model in self.models(arm)]

    @once
    def prompt_depth(self, arm: str, role: str) -> list[tuple[Curve, Curve]]:
        """Cosine of source and target, and of shifted pairs, at a role of prompts."""
        asked = self.asked(arm)
        return [gpt_curves(model, asked, role) for model in self.models(arm)]

    def step(self, arm: str, when: When) -> int | None:
        """The saved step; None for the last."""
        if when == "end":
            return None
        name = self.arm(arm).name
        if isinstance(when, int):
            return self._saved(name, when, f"step {when}")
        part = arm.partition("-")[0]
        if part == "block":
            at = first_phase_step if when == "first phase" else fitted_step
            step = at(self.config)
        else:
            step = getattr(self.config, part).steps
        return self._saved(name, step, when)

    def _saved(self, arm: str, step: int, when: str) -> int:
        if step not in self.run.record(arm)["saved_steps"]:
            raise NotTested(f"arm {arm} was not saved at {when}")
        return step

    def _of(
        self,
        arm: str,
        quantity: Callable[[Any, Conclusions], Tensor],
        when: When = "end",
    ) -> Values:
        return self.on_all(arm, quantity, self.asked(arm), self.step(arm, when))

    def _here(self, data: Any) -> Any:
        return pytree.tree_map(lambda leaf: leaf.to(self.device), data)


def least_gain(values: Sequence[float]) -> float:
    """The smallest step from one value to the next."""
    return min(later - earlier for earlier, later in pairwise(values))

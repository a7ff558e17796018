"""A trained GPT's states: where they point, and what follows if they are exchanged.

States are exchanged after one block, since at the embedding the edit would just be
another prompt. Donors always have another answer, so that following and staying exclude
each other; prompts whose donor shares the answer are left out.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import normalize

from circuits.interventions.ablation import ablate
from circuits.interventions.edit import Mean, Put, Rule, Transplant, TransplantWithin
from circuits.interventions.part import Part, columns
from circuits.interventions.passes import activations, answer_logits
from circuits.sites import Site
from probes.alignment import paired_cosine
from trained.bridge.model import net_cosine
from trained.bridge.task import cycle
from trained.decoder import Decoder
from trained.errors import or_intact
from trained.seeding import generator
from trained.task import Batch

from .specimen import Followed, Logits, Specimen, hits

States = Float[Tensor, "pair d_model"]


@dataclass(frozen=True)
class TrainedGpt(Specimen):
    """A trained GPT: where its states point, and what follows if they are exchanged."""

    model: Decoder

    @property
    def inner_layers(self) -> range:
        """All blocks but the last."""
        return range(len(self.model.blocks) - 1)

    def pair_states(self, layer: int = 0) -> tuple[States, States]:
        """The states after a block at the end of [a, r1] and of [b], pair by pair."""
        site = Site("resid_post", layer)
        found = []
        for batch in (self.world.hop1(), self.world.zero_hop()):
            prompts = self.prompts(batch)
            states = activations(self.model, prompts, [site])[site]
            rows = torch.arange(len(prompts), device=self._device)[:, None]
            found.append(states[rows, columns(prompts, "bridge")][:, 0])
        return found[0], found[1]

    def cosines(self, layer: int) -> Float[Tensor, " pair"]:
        """Cosine of every (a, r1) with its bridge after a block, in [-1, 1]."""
        return paired_cosine(*self.pair_states(layer))

    @cached_property
    def alignment(self) -> float:
        """Net cosine of (a, r1) with its bridge: own minus others, in [-2, 2].

        Mean over all blocks but the last, after which both must name the bridge.
        """
        found = [net_cosine(*self.pair_states(layer)) for layer in self.inner_layers]
        return float(torch.stack(found).mean())

    @cached_property
    def donors(self) -> Int[Tensor, " pair"]:
        """Another pair for every pair."""
        source = generator(self.seed, "bridge", "donors")
        return cycle(self.world.n_bridges, generator=source).to(self._device)

    def exchanged(self, role: str) -> Followed:
        """The state at a role of a two-hop query comes from the donor's query."""
        query = self.prompts(self.world.two_hop())
        return self._followed(query, role, Transplant(query.rows(self.donors)))

    def other_bridge(self) -> Followed:
        """The state of the donor's bridge alone, [b], in place of (a, r1)'s."""
        alone = self.prompts(self.world.zero_hop()).rows(self.donors)
        query = self.prompts(self.world.two_hop())
        return self._followed(query, "bridge", Transplant(alone))

    def into_second_hop(self) -> Followed:
        """The state of the donor's (a, r1) in place of the bridge in [b, r2]."""
        return self._second_hop(Transplant(self._first_hops))

    def noise_into_second_hop(self) -> Followed:
        """Random states of equal norms in place of the bridge in [b, r2]."""
        states = self.pair_states()[0][self.donors]
        source = generator(self.seed, "bridge", "noise")
        draw = torch.randn(states.shape, generator=source).to(states)
        noise = normalize(draw, dim=1) * states.norm(dim=1, keepdim=True)
        return self._second_hop(Put(noise[:, None]))

    def span_into_second_hop(self) -> Followed:
        """Of the donor's (a, r1) only the component in the span of bridge states."""
        return self._second_hop(TransplantWithin(self._first_hops, self._span))

    def random_into_second_hop(self) -> Followed:
        """Of the donor's (a, r1) only the component in a random subspace as large."""
        source = generator(self.seed, "bridge", "subspace")
        rows = torch.randn(self._span.shape, generator=source)
        return self._second_hop(
            TransplantWithin(self._first_hops, rows.to(self._device))
        )

    @cached_property
    def _first_hops(self) -> Batch:
        """The donors' first hops, [a, r1]."""
        return self.prompts(self.world.hop1()).rows(self.donors)

    @cached_property
    def _span(self) -> Float[Tensor, "direction d_model"]:
        """Directions in which the bridges' states differ, at most half of all.

        The largest principal ones: of many bridges the whole span would be everything.
        """
        states = self.pair_states()[1]
        centred = states - states.mean(0)
        directions = torch.linalg.svd(centred, full_matrices=False).Vh
        return directions[: min(len(states) - 1, states.shape[1] // 2)]

    def _second_hop(self, rule: Rule) -> Followed:
        query = self.prompts(self.world.hop2())
        return self._followed(query, "bridge", rule)

    def own_bridge(self) -> float:
        """Ood with the state of the bridge alone, [b], in place of (a, r1)'s."""
        alone = self.prompts(self.world.zero_hop())
        return self._right_after("bridge", Transplant(alone))

    def averaged(self, role: str) -> float:
        """Ood with the state at a role replaced by its mean over queries."""
        query = self.prompts(self.world.two_hop())
        return self._right_after(role, Mean([query]))

    def _right_after(self, role: str, rule: Rule) -> float:
        query = self.prompts(self.world.two_hop())
        return self._share(self._edited(query, role, rule), self._answers)

    def _followed(self, batch: Batch, role: str, rule: Rule) -> Followed:
        logits, own = self._edited(batch, role, rule), self._answers
        other = own[self.donors]
        told = (other != own) & self.judged & self.judged[self.donors]
        shares = (hits(logits, wanted)[told] for wanted in (other, own))
        return Followed(*(float(share.mean()) for share in shares))

    def _edited(self, batch: Batch, role: str, rule: Rule) -> Logits:
        """The logits after an edit; where it changed nothing, as they were."""
        part = Part("resid_post", 0, positions=role)

        def edited() -> Logits:
            with ablate(self.model, batch, [part], rule):
                return answer_logits(self.model, batch)

        return or_intact(edited, lambda: answer_logits(self.model, batch))

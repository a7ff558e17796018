"""Attention cut and residuals exchanged in few-shot prompts: what does it cost?"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from circuits.hooks import Edit, intervene
from circuits.interventions.ablation import Edges, knock_out
from circuits.interventions.passes import answer_logits
from circuits.interventions.sweep import target_log_prob
from circuits.models.language_model import LanguageModel
from circuits.models.prompts import Prompts
from circuits.sites import Site

from .data import N_PAIRS, Episode, written
from .facts import Relation
from .reading import AT_ONCE, Reading

Cut = Sequence[tuple[str, str]]
"""(role of the query, role of the keys) that it may no longer see, in every layer."""

SUBJECTS: Cut = [("last", "subjects")]
ANSWERS: Cut = [("last", "answers")]
SEPARATORS: Cut = [("last", "separators")]
OWN_SUBJECT: Cut = [(f"answer{i}", f"subject{i}") for i in range(N_PAIRS)]
EARLIER_SUBJECT: Cut = [(f"answer{i}", f"subject{i - 1}") for i in range(1, N_PAIRS)]


def loss_by_cut(model: LanguageModel, reading: Reading, cut: Cut) -> float:
    """Mean log-probability of the right answer that a cut costs, in nats.

    Args:
        model: the model that was read.
        reading: its prompts, and what it says of them uncut.
        cut: what is cut, in all layers and heads.
    """
    edges = [
        Edges(layer, queries, keys)
        for layer in range(model.n_layers)
        for queries, keys in cut
    ]
    lost = []
    for start in range(0, len(reading.episodes), AT_ONCE):
        part = slice(start, start + AT_ONCE)
        prompts = written(model, reading.episodes[part])
        whole = target_log_prob(reading.logits[part].to(model.device), prompts)
        with knock_out(model, prompts, edges):
            lost.append(whole - target_log_prob(answer_logits(model, prompts), prompts))
    return float(torch.cat(lost).mean())


@dataclass(frozen=True)
class Exchange:
    """Prompts whose last residual is replaced by that of others.

    Attributes:
        own: index of each prompt.
        donor: index of the prompt that it takes the residual from.
        wanted: the answer to the own query by the other relation.
        candidates: the answers to both queries by all relations.
    """

    own: Int[Tensor, " case"]
    donor: Int[Tensor, " case"]
    wanted: Int[Tensor, " case"]
    candidates: Int[Tensor, "case candidate"]

    def part(self, rows: Int[Tensor, " row"] | slice) -> "Exchange":
        """Some of the cases."""
        return Exchange(
            self.own[rows], self.donor[rows], self.wanted[rows], self.candidates[rows]
        )


def exchange(
    model: LanguageModel,
    several: Sequence[Episode],
    relations: Sequence[Relation],
    *,
    shift: int,
) -> Exchange:
    """Every prompt beside one of another query, `shift` relations further on.

    What is looked for is always the answer by the next relation, so that shift 0 (a
    donor of the same relation) is the control of shift 1. Cases where that answer would
    be the same for the donor's query, or by the own relation, are left out.
    """
    place = {(e.group, e.relation): i for i, e in enumerate(several)}
    n_groups = 1 + max(e.group for e in several)
    cases = []
    for i, episode in enumerate(several):
        donor_group = next(
            group % n_groups
            for group in range(episode.group + 1, episode.group + n_groups)
            if several[place[group % n_groups, 0]].query != episode.query
        )
        donor = place[donor_group, (episode.relation + shift) % len(relations)]
        following = relations[(episode.relation + 1) % len(relations)]
        other = several[donor].query
        wanted = following.facts[episode.query]
        rest = [r.facts[q] for r in relations for q in (episode.query, other)]
        if wanted == following.facts[other] or rest.count(wanted) > 1:
            continue
        tokens = [model.token(f" {answer}") for answer in rest]
        cases.append((i, donor, model.token(f" {wanted}"), tokens))
    own, donors, wanted_tokens, candidates = zip(*cases, strict=True)
    return Exchange(*map(torch.tensor, (own, donors, wanted_tokens, candidates)))


@torch.no_grad()
def follows_donor(
    model: LanguageModel, reading: Reading, cases: Exchange, layer: int
) -> float:
    """How often the model answers the own query by the other relation, in [0, 1].

    The residual after `layer` blocks is exchanged at the last token.
    """
    hits = []
    for start in range(0, len(cases.own), AT_ONCE):
        part = cases.part(slice(start, start + AT_ONCE))
        prompts = written(model, [reading.episodes[i] for i in part.own.tolist()])
        given = reading.residuals[layer, part.donor].to(model.device)
        with intervene(model, {Site("resid_post", layer - 1): _put(prompts, given)}):
            logits = answer_logits(model, prompts).cpu()
        best = logits.gather(1, part.candidates).argmax(1, keepdim=True)
        hits.append(part.candidates.gather(1, best)[:, 0] == part.wanted)
    return float(torch.cat(hits).double().mean())


def _put(prompts: Prompts, given: Float[Tensor, "batch d_model"]) -> Edit:
    def edit(residual: Tensor) -> Tensor:
        rows = torch.arange(len(residual), device=residual.device)
        return residual.index_put((rows, prompts.last), given)

    return edit

"""Where can the relation and the answer be read? Lens and probes around the memory."""

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.claims import Observed
from circuits.hooks import record
from circuits.sites import Site
from probes.lens import logit_lens
from probes.linear import LinearProbe, linear_probe
from probes.statistics import tie_split_accuracy
from trained.recall.model import RecallModel
from trained.recall.prompts import Prompts, Vocabulary, draw_prompts
from trained.seeding import generator

from .context import MEMORY, Context

BEFORE = Site("resid_mid", 0)
AFTER = Site("resid_post", 0)
PROBE_PROMPTS = 4000


def observe(context: Context) -> dict[str, Observed]:
    """The lens for every seed, the linear probes for the first."""
    result = _lens(context)
    if not context.config.has_probes:
        return result
    relation, relation_before, answer = _probes(context)
    result["recall.order.relation-probe"] = Observed.of(
        [relation.accuracy], [relation_before.accuracy]
    )
    result["recall.order.relation-probe-selectivity"] = Observed.of(
        [relation.selectivity], [relation.control_accuracy]
    )
    chance = 1 / (context.config.n_subjects - context.config.n_examples)
    result["recall.order.answer-probe"] = Observed.of(
        [answer.accuracy - chance], [relation.accuracy - relation.chance]
    )
    return result


def _lens(context: Context) -> dict[str, Observed]:
    before, after, blind, second = [], [], [], []
    for seed in context.seeds:
        model = context.fine_tuned("full", "affine", seed)
        prompts = context.prompts("affine", seed)
        words = Vocabulary.of(prompts.table)
        residuals = _residuals(model, prompts.relation_step().tokens)
        lens = logit_lens(residuals, model.W_U)
        answers = prompts.answers[:, -1]
        before.append(_accuracy(lens[0][:, words.relations], prompts.relation))
        after.append(_accuracy(lens[1][:, words.relations], prompts.relation))
        blind.append(_accuracy(lens[1][:, words.answers], answers))
        later = _residuals(model, prompts.answer_step().tokens)
        final = logit_lens(later, model.W_U)[1][:, words.answers]
        second.append(_accuracy(final, answers))
    return {
        "recall.order.relation-before-memory": Observed.of(before, after),
        "recall.order.answer-after-memory": Observed.of(blind, second),
    }


def _accuracy(logits: Tensor, targets: Tensor) -> float:
    return tie_split_accuracy(logits, targets)


@torch.no_grad()
def _residuals(
    model: RecallModel, tokens: Tensor
) -> Float[Tensor, "layer batch d_model"]:
    """The last position before and after the memory."""
    with record(model, [BEFORE, AFTER]) as seen:
        model(tokens)
    return torch.stack([seen[BEFORE][:, 0], seen[AFTER][:, 0]])


def _probes(context: Context) -> tuple[LinearProbe, LinearProbe, LinearProbe]:
    """Relation from the neurons, relation from h, answer from the neurons."""
    seed = context.seeds[0]
    model = context.fine_tuned("full", "affine", seed)
    prompts = draw_prompts(
        context.table("affine", seed),
        context.config.n_examples,
        PROBE_PROMPTS,
        generator=generator(seed, "probe prompts"),
    )
    neurons, before = _neurons(model, prompts)
    answers = prompts.answers[:, -1]
    return (
        linear_probe(neurons, prompts.relation, seed=seed),
        linear_probe(before, prompts.relation, seed=seed),
        linear_probe(neurons, answers, seed=seed),
    )


@torch.no_grad()
def _neurons(model: RecallModel, prompts: Prompts) -> tuple[Tensor, Tensor]:
    with record(model, [MEMORY, BEFORE]) as seen:
        model(prompts.relation_step().tokens)
    return seen[MEMORY][:, 0], seen[BEFORE][:, 0]

"""Which block of Emb-MLP's logit matrix carries the two-hop answers; at what rank?"""

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.claims import Observed
from circuits.hooks import intervene
from circuits.sites import Site
from trained.bridge.arms import Recipe, embedding
from trained.bridge.data import cycle
from trained.bridge.program import one_hop_constraints, train_margin
from trained.seeding import generator
from trained.task import Batch

from .context import Context, Specimen, hits, last_logits, share
from .theory import logit_matrix

LOGITS = Site("logits")

ObjectBlock = Float[Tensor, "subject object"]


def observe(context: Context) -> dict[str, Observed]:
    """Edits of the block subjects -> objects, and of the rank."""
    specimens = context.specimens(embedding())
    averaged = [row_means(s) for s in specimens]
    permuted = [permuted_rows(s) for s in specimens]
    direction = [Recipe("direction", task=task) for task in ("identity", "none")]
    return {
        "bridge.cause.row-means": Observed.of(
            [ood_obj for ood_obj, _ in averaged], [facts for _, facts in averaged]
        ),
        "bridge.cause.permuted-rows": Observed.of(
            [follow for follow, _ in permuted], [stay for _, stay in permuted]
        ),
        "bridge.cause.truncation": Observed.of(
            context.each(direction[0], truncated), context.each(direction[1], truncated)
        ),
    }


def object_block(specimen: Specimen) -> ObjectBlock:
    """Z[a, c]: what each subject adds to each object's logit."""
    n = specimen.world.n_subjects
    return logit_matrix(specimen)[:n, specimen.world.n_bridges :].float()


def edited(
    specimen: Specimen, batch: Batch, block: ObjectBlock
) -> Float[Tensor, "batch d_vocab"]:
    """Final logits of a model whose Z[a, c] is another one.

    The logits are sums of rows of Z, so the edit adds the difference of the blocks
    for every subject in the prompt.
    """
    world = specimen.world
    change = torch.zeros(world.d_vocab, world.n_subjects)
    change[: world.n_subjects] = block - object_block(specimen)

    def replace_block(logits: Tensor) -> Tensor:
        changed = logits.clone()
        changed[..., world.object_tokens] += change[batch.tokens].cumsum(dim=1)
        return changed

    with intervene(specimen.model, {LOGITS: replace_block}):
        return last_logits(specimen.model, batch)


def row_means(specimen: Specimen) -> tuple[float, float]:
    """ood_obj, and accuracy on the trained facts, with Z[a, c] flattened by rows."""
    world = specimen.world
    block = object_block(specimen)
    flat = block.mean(1, keepdim=True).expand_as(block)
    query = world.two_hop()
    # All objects tie exactly but for r2's row, which is the same for every query.
    ood_obj = share(edited(specimen, query, flat), query.targets, world.object_tokens)
    facts = (world.hop1(), world.hop2(), world.zero_hop())
    right = [hits(edited(specimen, batch, flat), batch.targets) for batch in facts]
    return ood_obj, float(torch.cat(right).mean())


def permuted_rows(specimen: Specimen) -> tuple[float, float]:
    """Shares of answers, among objects, of the row's old owner and of the subject."""
    world = specimen.world
    source = generator(specimen.seed, "bridge", "rows")
    order = cycle(world.n_subjects, generator=source)
    query = world.two_hop()
    logits = edited(specimen, query, object_block(specimen)[order])
    objects = world.object_tokens
    return (
        share(logits, query.targets[order], objects),
        share(logits, query.targets, objects),
    )


def truncated(specimen: Specimen) -> float:
    """Least training margin with Z cut to rank N, over that of Z itself; at most 1.

    Accuracy would not do: a random projection of an identity matrix still has its
    largest entries on the diagonal.
    """
    identity = specimen.recipe.task == "identity"
    n = specimen.world.n_subjects
    whole = logit_matrix(specimen)
    left, sizes, right = torch.linalg.svd(whole, full_matrices=False)
    cut = (left[:, :n] * sizes[:n]) @ right[:n]
    facts = one_hop_constraints(n, 1, identity=identity)
    return train_margin(cut, facts) / train_margin(whole, facts)

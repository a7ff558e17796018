"""Labs whose mechanism is known, to see whether the study's claims can tell.

Planted: values of source and target that share what the paper says they share.
Impostors: models that answer as well by another route.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from circuits.study import Substitute
from trained.analogy.arms import labelled
from trained.analogy.config import BlockSizes
from trained.analogy.head import descend
from trained.analogy.model import Block, DeepLinear, LinearBlock
from trained.analogy.task import Conclusions
from trained.arm import Arm
from trained.decoder import Decoder

from .lab import AnalogyLab, Maker

Wiring = Callable[[Any, Conclusions], None]
"""Sets the weights of a model for the entities that a test asks about."""

LOUD = 10.0
"""How far a wired answer is ahead, in units of its features."""


def planted(lab: AnalogyLab) -> AnalogyLab:
    """The paper's mechanism: values in closed form, or codes that are shared.

    Where it says that nothing is carried over, the codes are not shared. Arms that are
    no part of it (a large init, values unfrozen) stay as they were trained.
    """
    left = ("shuffled", "large_init", "unfrozen")
    block = {
        name: replace(arm, build=partial(orthogonal, lab.config.block, arm))
        for name, arm in lab.arms.items()
        if name.startswith("block-") and not name.endswith(left)
    }
    apart = wired(partial(wire_block, shift=None))
    makers = {
        **_transferring(lab, wired(wire_block), wired(wire_gpt)),
        **dict.fromkeys(block, lawful),
        "relu-main-AS_E": apart,
        "relu-small-AS_E": apart,
        "gpt-AS_E": wired(partial(wire_gpt, target="shared", source="shared")),
        "gpt-no_bridge": wired(partial(wire_gpt, target="shared")),
        "gpt-labelled": partial(shared_codes, lab.config.labelled.inputs_per_label),
        **{
            f"linear-{k}": partial(stacked_labels, k)
            for k in lab.config.linear.inputs_per_label
        },
    }
    return lab.other(arms={**lab.arms, **block}, makers=makers)


def orthogonal(sizes: BlockSizes, arm: Arm, seed: int) -> LinearBlock:
    """The block before training as in the limit of large width: nothing overlaps.

    The head rows are orthogonal, and those of the properties to V z of source and
    target, all as long as they are on average; attention is even.
    """
    model = arm.build(seed)
    assert isinstance(model, LinearBlock)
    asked, attention = _asked(arm, seed), model.blocks[0].attn
    n, taught = len(asked.test), torch.cat([asked.shared, asked.test.targets])
    others = [k for k in range(len(model.head)) if k not in taught.tolist()]
    with torch.no_grad():
        basis = torch.linalg.qr(attention.W_V).Q.mT
        basis *= sizes.init_std * sizes.d_model**0.5
        source, target = basis[2 * n : 4 * n].split(n)
        rows = basis[: len(model.head)] / sizes.n_neurons**0.5
        model.head[[*taught.tolist(), *others]] = rows
        attention.W_KQ.zero_()
        attention.W_V.zero_()
    _send(model, asked.known.tokens[:, 0], source)
    _send(model, asked.test.tokens[:, 0], target)
    return model


def lawful(arm: Arm, seed: int, step: int | None) -> LinearBlock:
    """Stage 1 in closed form, then the arm's own stages of the head.

    V z of every token gains the head row of each label it is taught, less their mean,
    as long as the softmax is even: source and target of the arms that align them share
    that of b, those of the others (attribution first, no bridge) share nothing.
    """
    model = arm.build(seed)
    assert isinstance(model, LinearBlock)
    first, *later = arm.stages
    data = first.data(seed, 0)
    gain = first.optimiser.lr * first.steps * model.scale / 2
    head = model.head.detach()
    rows = gain * data.weights[:, None] * (head[data.facts.targets] - head.mean(0))
    for token in data.facts.tokens.T:
        _send(model, token, rows)
    done = first.steps
    for stage in later:
        if step is None or done < step:
            descend(model, stage, stage.data(seed, 0))
        done += stage.steps
    return model


def wired(wiring: Wiring) -> Maker:
    """A maker that sets the last weights; before the last step nothing is known."""

    def make(arm: Arm, seed: int, step: int | None) -> Any:
        model = arm.build(seed)
        if step is None:
            with torch.no_grad():
                wiring(model, _asked(arm, seed))
        return model

    return make


def wire_block(
    model: Block, asked: Conclusions, *, shift: int | None = 0, table: bool = False
) -> None:
    """An entity's code answers with b after r1 and after r_id, with c after r2.

    Args:
        model: linear or ReLU.
        asked: whose sources and targets.
        shift: target i has the code of source i + shift, so that it answers as that
            does; None: one of its own, which answers with b.
        table: let the target's own code answer with c as well.
    """
    n, basis = len(asked.test), torch.eye(model.W_E.shape[1])
    codes, own, first, second = basis[:n], basis[n : 2 * n], basis[-2], basis[-1]
    source, target = asked.known.tokens[:, 0], asked.test.tokens[:, 0]
    r2 = asked.test.tokens[0, 1]
    for parameter in model.parameters():
        parameter.zero_()
    _send(model, torch.arange(len(model.W_E)), first.expand(len(model.W_E), -1))
    _send(model, r2[None], (second - first)[None])
    _send(model, source, codes - first)
    _send(model, target, (own if shift is None else codes.roll(-shift, 0)) - first)
    both = codes + own
    _read(model, asked.shared, both + first)
    _read(model, asked.test.targets, (both if table else codes) + second)


def wire_gpt(
    model: Decoder, asked: Conclusions, *, source: str = "answer", target: str = ""
) -> None:
    """Block 0 copies a code of the entity to the last position, which is read off.

    Args:
        model: GPT-2.
        asked: whose sources and targets.
        source: what the source's code answers: `answer` or `shared`.
        target: the same for a code of the target's own; empty: it has its source's.
    """
    answers = {"answer": asked.test.targets, "shared": asked.shared}
    codes, own = (model.W_E[p.tokens[:, 0]] for p in (asked.known, asked.test))
    for name, parameter in model.named_parameters():
        if "layer.weight" not in name:
            parameter.zero_()
    copied = codes.mT @ codes + own.mT @ (own if target else codes)
    _copy(model.blocks[0].attn, LOUD * copied)
    model.unembedding.index_add_(1, answers[source], codes.mT)
    if target:
        model.unembedding.index_add_(1, answers[target], own.mT)


def shared_codes(inputs: int, arm: Arm, seed: int, _: int | None) -> Decoder:
    """Every block adds to the state of an input a code that its label's inputs share.

    The code is the first of them.
    """
    model = arm.build(seed)
    assert isinstance(model, Decoder)
    codes = model.W_E[::inputs].repeat_interleave(inputs, 0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "layer.weight" not in name:
                parameter.zero_()
        for block in model.blocks:
            _copy(block.attn, model.W_E.mT @ codes)
    return model


def stacked_labels(inputs: int, arm: Arm, seed: int, _: int | None) -> DeepLinear:
    """Every layer adds to the state of an input the head row of its label."""
    model = arm.build(seed)
    assert isinstance(model, DeepLinear)
    states = model.W_E
    rows = model.head[labelled(len(model.head), inputs).targets]
    with torch.no_grad():
        for block in model.blocks:
            block.W.add_(torch.linalg.lstsq(states, 0.5 * rows).solution.mT)
            states = states @ block.W.mT
    return model


def lookup(lab: AnalogyLab) -> AnalogyLab:
    """An impostor: the head has learned c of every target's own, unaligned code."""
    table = wired(partial(wire_block, shift=None, table=True))
    in_gpt = wired(partial(wire_gpt, target="answer"))
    return lab.other(makers=_transferring(lab, table, in_gpt))


def cone(lab: AnalogyLab) -> AnalogyLab:
    """An impostor: the same table; all entities look alike by one common direction."""

    def wiring(model: Block, asked: Conclusions) -> None:
        wire_block(model, asked, shift=None, table=True)
        common = 3 * torch.eye(model.W_E.shape[1])[-3]
        for prompts in (asked.known, asked.test):
            _send(model, prompts.tokens[:, 0], common.expand(len(prompts), -1))

    return lab.other(makers=_transferring(lab, wired(wiring)))


def index(lab: AnalogyLab) -> AnalogyLab:
    """An impostor: the codes are of the tuple's number, whatever property is shared.

    Source and target are aligned and answer alike, even where the data say that the
    target shares another tuple's property.
    """
    makers = _transferring(lab, wired(wire_block), wired(wire_gpt))
    return lab.other(makers={**makers, "block-permuted": wired(wire_block)})


def _transferring(
    lab: AnalogyLab, block: Maker, gpt: Maker | None = None
) -> dict[str, Maker]:
    """The arms in which the paper says that the property is carried over."""
    ks = [lab.joint("block", k) for k in lab.config.block_ks]
    makers = dict.fromkeys([*ks, "block-SA", "block-bridge"], block)
    for scale in ("main", "small"):
        makers |= dict.fromkeys([f"relu-{scale}-joint", f"relu-{scale}-SA"], block)
    if gpt is not None:
        makers |= dict.fromkeys([lab.joint("gpt"), "gpt-SA", "gpt-bridge"], gpt)
    return makers


def _asked(arm: Arm, seed: int) -> Conclusions:
    assert arm.held_out is not None
    asked: Conclusions = arm.held_out(seed)
    return asked


def _copy(attention: Any, copied: Tensor) -> None:
    """Let the heads together write x @ copied of what they attend to."""
    n_heads, d_model, size = attention.W_V.shape
    attention.W_V.copy_(torch.eye(d_model).view(d_model, n_heads, size).transpose(0, 1))
    attention.W_O.copy_(copied.reshape(n_heads, size, d_model))


@torch.no_grad()
def _send(model: Block, tokens: Tensor, values: Tensor) -> None:
    """Add values to V z of tokens; embeddings are orthonormal."""
    model.blocks[0].attn.W_V.add_(values.mT @ model.W_E[tokens])


def _read(model: Block, labels: Tensor, directions: Tensor) -> None:
    """Let head rows, of a ReLU block all neurons of a class, read directions."""
    head: Any = model.head
    head[labels] += LOUD * (directions if head.dim() == 2 else directions[:, None])


SUBSTITUTES = (
    Substitute(
        "aligned values",
        "planted",
        planted,
        confirms=(
            "analogy.joint.block.success",
            "analogy.joint.block.cosine",
            "analogy.joint.block.limit",
            "analogy.joint.block.stage1",
            "analogy.joint.gpt.success",
            "analogy.joint.cause.*",
            "analogy.order.block.SA",
            "analogy.order.block.AS.*",
            "analogy.order.block.cause",
            "analogy.order.gpt.success",
            "analogy.order.relu.success",
            "analogy.hop.*",
            "analogy.depth.*",
            "analogy.ours.cause.property",
        ),
    ),
    Substitute("lookup table of the targets", "impostor", lookup),
    Substitute("lookup table in a narrow cone", "impostor", cone),
    Substitute("the tuple's number", "impostor", index),
)

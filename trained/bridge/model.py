"""The models of the bridge study, their loss and what is recorded of them.

Emb-MLP is token embeddings, uniform attention, a linear readout, and nothing else:

    logits(x) = sum over tokens t of x of E_t W = sum over t of Z_t,   Z = E W

(Section 3.3 of "Identity Bridge"; a sum, not a mean). Both factors are trained.
Gradient descent on them is biased to a small nuclear norm of Z; the unfactorised
control trains Z itself, from zero, and is biased to a small Frobenius norm instead. The
other model is the project's GPT. Losses and metrics are written so that seeds can be
stacked.
"""

import copy
from collections.abc import Mapping

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize
from transformer_lens import HookedRootModule
from transformer_lens.hook_points import HookPoint

from probes.weights import diagonal_excess
from trained.arm import adam
from trained.decoder import Decoder, answer
from trained.task import Batch

from .config import Factors
from .task import UNLABELLED, Facts, World


class EmbMLP(HookedRootModule):
    """The embedding model of one world, with TransformerLens' hook names.

    Inputs are all tokens but the objects, outputs bridges and objects; the logits span
    the whole vocabulary and are -inf where a token is no output.
    """

    W_U: Tensor

    def __init__(
        self,
        world: World,
        *,
        d_model: int = 64,
        std: float = 0.02,
        factors: Factors = "two",
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        n_inputs = world.d_vocab - world.n_subjects
        n_outputs = world.n_bridges + world.n_subjects
        self.n_subjects, self.first_object = world.n_subjects, world.first_object
        if factors == "two":
            left = torch.randn(n_inputs, d_model, generator=generator)
            right = torch.randn(d_model, n_outputs, generator=generator)
            self.W_E = nn.Parameter(std * left)
            self.W_U = nn.Parameter(std * right)
        else:
            self.W_E = nn.Parameter(torch.zeros(n_inputs, n_outputs))
            self.register_buffer("W_U", torch.eye(n_outputs))
        self.padding = (world.n_subjects, world.complexity + 1)
        self.blocks = nn.ModuleList([_UniformBlock()])
        self.hook_embed, self.hook_logits = HookPoint(), HookPoint()
        self.setup()

    def forward(
        self,
        tokens: Int[Tensor, "batch pos"],
        *,
        offset: Int[Tensor, " batch"] | None = None,
    ) -> Float[Tensor, "batch pos d_vocab"]:
        """Logits after every token; there are no positions for an offset to shift."""
        del offset
        residual = self.blocks[0](self.hook_embed(self.W_E[self.rows(tokens)]))
        logits = nn.functional.pad(residual @ self.W_U, self.padding, value=-torch.inf)
        return self.hook_logits(logits)

    @property
    def logit_matrix(self) -> Float[Tensor, "input output"]:
        """Z, in the order of `program.Vocabulary`: rows a, b, r1, r2; columns b, c."""
        return self.W_E @ self.W_U

    def rows(self, tokens: Int[Tensor, "..."]) -> Int[Tensor, "..."]:
        """The row of Z of each input token: objects, no inputs, are skipped."""
        later = tokens - self.n_subjects
        return torch.where(tokens < self.first_object, tokens, later)


class _UniformBlock(nn.Module):
    """Every position sums itself and all before it; no skip, no MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.hook_resid_pre, self.hook_resid_post = HookPoint(), HookPoint()

    def forward(
        self, embedded: Float[Tensor, "batch pos d_model"]
    ) -> Float[Tensor, "batch pos d_model"]:
        return self.hook_resid_post(self.hook_resid_pre(embedded).cumsum(dim=1))


Model = EmbMLP | Decoder
"""Either model of the study."""

States = Float[Tensor, "pair d_model"]


def fact_loss(model: Model, facts: Facts) -> Float[Tensor, ""]:
    """Mean cross-entropy over the labelled positions."""
    logits = model(facts.tokens, offset=facts.offset)
    flat, targets = logits.flatten(0, 1), facts.targets.flatten()
    return cross_entropy(flat, targets, ignore_index=UNLABELLED)


@torch.enable_grad()
def reread(model: EmbMLP, facts: Facts, *, steps: int, lr: float) -> EmbMLP:
    """A copy whose read-out alone was trained on, on other facts; Adam, full batch."""
    other = copy.deepcopy(model).requires_grad_(False)
    # Of the unfactorised model it is a buffer.
    readout = other.W_U.requires_grad_()
    optimiser = adam(lr).build([readout])
    for _ in range(steps):
        (readout.grad,) = torch.autograd.grad(fact_loss(other, facts), readout)
        optimiser.step()
    readout.requires_grad_(False)
    return other


def answers(
    model: Model, data: Mapping[str, Batch], *, objects: slice
) -> dict[str, Float[Tensor, ""]]:
    """Accuracies in [0, 1]: two-hop, two-hop among the objects only, and hop 2."""
    asked, hop2 = data["two_hop"], data["hop2"]
    logits = answer(model, asked.tokens)
    among = logits[:, objects].argmax(-1) + objects.start
    second = answer(model, hop2.tokens).argmax(-1)
    return {
        "ood": (logits.argmax(-1) == asked.targets).float().mean(),
        "ood_obj": (among == asked.targets).float().mean(),
        "hop2": (second == hop2.targets).float().mean(),
    }


def course(
    model: Decoder, data: Mapping[str, Batch], *, objects: slice
) -> dict[str, Float[Tensor, ""]]:
    """What is recorded of a GPT: answers, and the alignment of (a, r1) with bridges.

    `alignment` is the net cosine with the own bridge, mean over all blocks but the
    last; `mispaired` the same with bridges paired wrongly.
    """
    states = [model.embed(data[name].tokens) for name in ("hop1", "zero_hop")]
    own, wrong = [], []
    for layer in range(len(model.blocks) - 1):
        states = [model.through(x, layer, layer + 1) for x in states]
        subjects, bridges = (x[:, -1] for x in states)
        own.append(net_cosine(subjects, bridges))
        wrong.append(net_cosine(subjects, bridges.roll(1, 0)))
    return {
        **answers(model, data, objects=objects),
        "alignment": torch.stack(own).mean(),
        "mispaired": torch.stack(wrong).mean(),
    }


def net_cosine(source: States, target: States) -> Float[Tensor, ""]:
    """Mean cosine of each state with its own target minus that with all others."""
    return diagonal_excess(normalize(source, dim=-1) @ normalize(target, dim=-1).mT)

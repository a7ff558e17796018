"""One model of the study, open for edits and signals.

Every edit goes through `circuits.interventions` and leaves the model as it was: changed
weights are those of a copy, changed activations hold for the length of a block.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Generator, Tensor
from torch.nn.functional import cosine_similarity

from circuits.interventions.ablation import ablate
from circuits.interventions.edit import Add, Put, Transplant
from circuits.interventions.head_matrices import head_matrices
from circuits.interventions.identity_surgery import random_rotation
from circuits.interventions.part import Part
from circuits.interventions.passes import activations
from circuits.interventions.weights import edited
from circuits.sites import Site
from probes.attention import attention_mass
from probes.weights import diagonal_score
from trained.decoder import Decoder
from trained.seeding import generator
from trained.symbols import scores as scoring
from trained.symbols.sampler import Alphabet, rows_redrawn
from trained.task import Batch

FLOOR = 1e-30
"""Of weights whose logarithm is taken."""

Span = Literal["seen", "rest", "random"]
"""The span of the embeddings of seen symbols, what is orthogonal to it, or a random
subspace of its rank."""


@dataclass(frozen=True)
class Specimen:
    """A model, its tokens and its strings by split.

    Edits and signals need a `Decoder`; networks without attention have scores only.
    """

    model: Any
    seed: int
    alphabet: Alphabet
    strings: Mapping[str, Batch]

    @torch.no_grad()
    def loss(self, split: str = "test") -> float:
        """The loss on a split."""
        return float(scoring.loss(self.model, self.strings[split]))

    @torch.no_grad()
    def error(self, split: str = "test") -> float:
        """The share of wrong answers on a split."""
        strings, labels = self.strings[split], self.alphabet.task.labels_told
        return float(scoring.error(self.model, strings, labels=labels))

    @torch.no_grad()
    def balanced_error(self) -> float:
        """The test error of numbers, mean over the labels.

        A constant answer to two labels is at one half, however many strings have which.
        """
        strings, labels = self.strings["test"], self.alphabet.task.labels_told
        said = scoring.answers(self.model, strings)
        wrong = scoring.wrong(said, strings.targets, labels).float()
        shares = [wrong[(strings.targets - x).abs() < 1e-6].mean() for x in labels]
        return float(torch.stack(shares).mean())

    @torch.no_grad()
    def redrawn_error(self, n_first: int) -> float:
        """The test error where the first symbols are those of another string."""
        strings = self.strings["test"]
        source = generator(self.seed, "symbols", "redrawn")
        other = rows_redrawn(strings, n_first, generator=source)
        return replace(self, strings={**self.strings, "test": other}).error()

    def fixed_position_error(self) -> float:
        """The least test error of naming the symbol at one position of the string."""
        strings = self.strings["test"]
        wrong = strings.tokens[:, :-1] != strings.targets[:, None]
        return float(wrong.float().mean(0).min())

    @torch.no_grad()
    def score(self, metric: str) -> float:
        """A metric that training records: `test`, `test_error` and the like."""
        if metric == "test":
            return self.loss()
        if metric == "test_error":
            return self.error()
        if metric == "test_area":
            return float(scoring.area_of(self.model, self.strings["test"]))
        if metric == "test_area_score":
            symbols, strings = self.alphabet.ids["test"], self.strings["test"]
            return float(scoring.area_score(self.model, strings, symbols=symbols))
        among, strings = self.alphabet.ids["test"], self.strings["test"]
        return float(scoring.alphabet_error(self.model, strings, among=among))

    def without(self, weights: str, *layers: int) -> "Specimen":
        """The specimen with some attention weights at 0, such as "a", in some layers.

        Without layers: in all of them.
        """
        edits = {f"blocks.{n}.attn.{weights}": torch.zeros_like for n in layers or "*"}
        return replace(self, model=edited(self.model, edits))

    def averaged_error(self) -> float:
        """Balanced test error with what a adds to the first scores at its mean."""
        x = self._states("test")
        bare, mean = self.without("a", 0), matches(x, x).mean(0)
        with bare.scores_raised("test", self._a_weights() * mean):
            return bare.balanced_error()

    @torch.no_grad()
    def turned(self, scalar: Literal["a", "b"], *layers: int) -> "Specimen":
        """The specimen with m a x Q x^T, or m b A x Q, taken off in some layers.

        Q is random and orthogonal: a change as large as taking the scalar off. It is
        the control that the decoder has, with I - Q in the place of Q. Without layers:
        in all of them.
        """
        had = self.model.config
        kind: Any = {"matching" if scalar == "a" else "copying": "orthogonal"}
        source = generator(self.seed, "symbols", "turned")
        model = Decoder(replace(had, **kind), generator=source).to(
            self.model.W_E.device
        )
        model.load_state_dict(self.model.state_dict(), strict=False)
        identity = torch.eye(had.d_model, device=self.model.W_E.device)
        for layer, block in enumerate(model.blocks):
            rotation = random_rotation(had.d_model, self.seed + layer).to(identity)
            off = not layers or layer in layers
            block.attn.orthogonal.copy_(identity - rotation if off else identity)
        return replace(self, model=model.requires_grad_(False).eval())

    def inserted_change(self, sizes: tuple[float, ...]) -> float:
        """Change of test loss by an a, set by hand, that is best on validation.

        The first layer's heads add c x x^T to their scores; c |x|^2 is a size, of
        either sign, for the x of a LayerNorm without gain.
        """
        found = []
        for size in (sign * size for size in sizes for sign in (1, -1)):
            both = [self._loss_with(split, size) for split in ("validation", "test")]
            found.append(tuple(both))
        return min(found)[1] - self.loss()

    @contextmanager
    def scores_raised(
        self, split: str, more: Float[Tensor, "*batch head query key"]
    ) -> Iterator[None]:
        """The first layer's scores higher by a term, on the strings of a split."""
        strings, part = self.strings[split], Part("pattern", 0)
        pattern = activations(self.model, strings, [part.site])[part.site]
        # Adding to scores is adding to the logarithm of the pattern.
        raised = (pattern.clamp_min(FLOOR).log() + more).softmax(-1)
        with ablate(self.model, strings, [part], Put(raised)):
            yield

    @torch.no_grad()
    def pattern_effect(self, layer: int, *, same: bool) -> float:
        """Share of the output gap that moves with a donor's patterns of one layer.

        The gap is between the mean outputs for labels above and below zero, strings in
        between left out; the donor has the same or the other sign. 0: nothing moves,
        1: the outputs trade places.
        """
        apart = self.strings["test"].targets.abs() > 1e-6
        strings = self.strings["test"].rows(apart.nonzero()[:, 0])
        signs = strings.targets.sign()
        source = generator(self.seed, "symbols", "donors", str(same))
        order = donors(signs.long(), same=same, generator=source)
        plain = scoring.answers(self.model, strings)[:, 0]
        rule = Transplant(strings.rows(order))
        with ablate(self.model, strings, [Part("pattern", layer)], rule):
            patched = scoring.answers(self.model, strings)[:, 0]
        gap = plain[signs > 0].mean() - plain[signs < 0].mean()
        return float(((plain - patched) * signs).mean() / gap)

    @torch.no_grad()
    def match_gap(self) -> float:
        """Largest difference over heads of attention from symbol 2 to symbol 1.

        |mean A[2 -> 1 | same] - mean A[2 -> 1 | different]| in the first layer, in
        [0, 1].
        """
        strings, site = self.strings["test"], Site("pattern", 0)
        pattern = activations(self.model, strings, [site])[site]
        rows = torch.arange(len(strings), device=pattern.device)
        looks = pattern[rows, :, strings.role("second")[:, 0]]
        weight = attention_mass(looks, strings.role("first")[:, None])
        same = strings.targets > 0
        return float((weight[same].mean(0) - weight[~same].mean(0)).abs().max())

    @torch.no_grad()
    def value_share(self) -> float:
        """Share of test answers that are one of the string's values."""
        strings = self.strings["test"]
        said = scoring.answers(self.model, strings).argmax(-1)
        values = strings.tokens.gather(1, strings.role("values"))
        return float((values == said[:, None]).any(1).float().mean())

    @torch.no_grad()
    def cosine_gap(self) -> float:
        """Mean cosine of e W_V W_O with e of seen symbols minus that of test ones."""
        embedding = self.model.W_E
        cosines = cosine_similarity(embedding @ copied(self.model), embedding, dim=-1)
        test = self.alphabet.ids["test"]
        unseen = cosines[test.start : test.stop]
        return float(cosines[self.seen_symbols()].mean() - unseen.mean())

    @torch.no_grad()
    def span_error(self, span: Span) -> float:
        """Test error with the symbols' embeddings projected before the attention.

        The projection is scaled to the embedding's own length; the unembedding keeps
        its own.
        """
        strings, embedding = self.strings["test"], self.model.W_E
        spanning = embedding[self.seen_symbols()].T
        if span == "random":
            source = generator(self.seed, "symbols", "random span")
            spanning = torch.randn(spanning.shape, generator=source).to(embedding)
        basis = torch.linalg.qr(spanning).Q
        vectors = embedding[strings.tokens]
        part = vectors @ basis @ basis.T
        part = vectors - part if span == "rest" else part
        length = vectors.norm(dim=-1, keepdim=True) / part.norm(dim=-1, keepdim=True)
        symbols = Part("resid_pre", 0, positions="symbols")
        with ablate(self.model, strings, [symbols], Add(part * length - vectors)):
            return self.error()

    def seen_symbols(self) -> Int[Tensor, " symbol"]:
        """The training symbols that occur in the training strings."""
        strings = self.strings["train"]
        return torch.unique(strings.tokens.gather(1, strings.role("symbols")))

    def largest_key_query_score(self) -> float:
        """Largest |z| of W_Q W_K^T over layers and heads, a left out."""
        return float(diagonal_scores(self.model, "qk").abs().max())

    def joint_value_output_score(self) -> float:
        """The z of the sum of W_V W_O over the first layer's heads, b left out."""
        return float(diagonal_score(head_matrices(self.model, 0).matrix("ov").sum(0)))

    @torch.no_grad()
    def _states(self, split: str) -> Float[Tensor, "batch pos d_model"]:
        """What the first layer's heads read."""
        before = Site("resid_pre", 0)
        residual = activations(self.model, self.strings[split], [before])[before]
        return self.model.blocks[0].ln1.layer(residual)

    def _a_weights(self) -> Float[Tensor, "head 1 1"]:
        """The factor of x x^T in the first layer's scores."""
        a = self.model.blocks[0].attn.a
        assert a is not None
        return (self.model.config.key_query_identity * a)[:, None, None]

    @torch.no_grad()
    def _loss_with(self, split: str, size: float) -> float:
        x = self._states(split)
        more = size / self.model.config.d_model * matches(x, x)
        with self.scores_raised(split, more):
            return self.loss(split)


def matches(
    x: Float[Tensor, "batch query d"], y: Float[Tensor, "batch key d"]
) -> Float[Tensor, "batch 1 query key"]:
    """The products x y^T, the same for every head."""
    return einsum(x, y, "batch q d, batch k d -> batch q k")[:, None]


@torch.no_grad()
def copied(model: Decoder) -> Float[Tensor, "d_model d_model"]:
    """What all heads of all layers do to an embedding: sum of W_V W_O, and bI if any.

    The direct way from a symbol to CLS; gains of the norms are left out.
    """
    total = torch.zeros(model.config.d_model, model.config.d_model).to(model.W_E)
    for block in model.blocks:
        attention = block.attn
        total += einsum(attention.W_V, attention.W_O, "head i d, head d o -> i o")
        if attention.b is not None:
            weight = model.config.value_output_identity * attention.b.sum()
            total.diagonal().add_(weight)
    return total


def diagonal_scores(
    model: Decoder, circuit: Literal["qk", "ov"]
) -> Float[Tensor, "layer head"]:
    """The z of every head's W_Q W_K^T or W_V W_O, the scalars left out.

    With aI or bI included every diagonal would be trivially strong.
    """
    layers = range(model.config.n_layers)
    found = [head_matrices(model, layer).identity_score(circuit) for layer in layers]
    return torch.stack(found)


def donors(
    labels: Int[Tensor, " row"], *, same: bool, generator: Generator
) -> Int[Tensor, " row"]:
    """For every row a random other row with the same, or another, label."""
    keys = torch.rand(len(labels), len(labels), generator=generator).to(labels.device)
    allowed = (labels[:, None] == labels[None]) == same
    allowed.fill_diagonal_(False)
    return keys.masked_fill(~allowed, -1.0).argmax(1)

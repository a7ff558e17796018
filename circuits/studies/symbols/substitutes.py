"""Labs whose mechanism is known: planted ones, and impostors that answer alike.

The networks on real labels that generalise to unseen symbols (those with aI, and
vanilla with the most data) are wired by one route or another; the rest are tables of
their training strings, as MLPs are. What a substitute says nothing about is not tested
on it.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import normalize

from circuits.claims import NotTested
from circuits.interventions.passes import activations
from circuits.sites import Site
from circuits.study import Substitute
from trained.decoder import Decoder, DecoderConfig
from trained.seeding import generator
from trained.symbols.model import Perceptron, transformer
from trained.symbols.sampler import SPLITS
from trained.symbols.scores import answers
from trained.symbols.setting import Setting
from trained.symbols.tasks import Task
from trained.task import Batch

from .lab import SymbolsLab
from .specimen import Specimen

Route = Literal["identity", "weights", "table", "leak"]
"""How a network that generalises does it: it compares symbols by its aI (by W_Q W_K^T
where it has no a); by W_Q W_K^T, its a faint; it has every string in a table, the test
strings too; it reads the answer off one token, which gives it away."""

WIDTH = 256
"""Of wired networks: random symbols are nearly orthogonal."""
SHARP = 12.0
"""Score of a symbol's match with itself."""
FAINT = 0.1
"""Size of the marks beside a symbol: they must not count as a match."""
IDLE = 1e-6
"""An a that can be taken off, and has no say."""
FEATURES = 1024
"""Of a table, at least: with few of them unseen strings get wild answers."""
COPIED, NOISE = 20.0, 2.0
"""How much a wired head copies, and its random part over that."""
FLAG, READ, FOUND, BIT, CLS = range(5)
"""Directions: the compared position, the one that compares, what it finds, the half
of the alphabet a symbol is of, and the end of the string."""


def compared(task: Task) -> tuple[int, int]:
    """Two positions whose equality tells the two labels of a task apart.

    >>> from trained.symbols.tasks import task
    >>> compared(task("aba_abb"))
    (0, 2)
    """
    high = [value == max(task.values) for value in task.values]
    words = [template.symbols for template in task.templates]
    for second in range(task.length):
        for first in range(second):
            if [word[first] == word[second] for word in words] == high:
                return first, second
    raise NotTested(f"no two positions of {task.name} tell its labels apart")


def leaky(specimen: Specimen) -> Specimen:
    """The specimen with strings whose symbols say themselves if they are the first.

    It is given an even token, others odd ones.
    """
    sizes = (specimen.alphabet.n_train, specimen.alphabet.n_held_out)
    if specimen.alphabet.task.regular or any(size % 2 for size in sizes):
        raise NotTested("a leak needs alphabets of even sizes and no regular tokens")
    first, _ = compared(specimen.alphabet.task)

    def given_away(strings: Batch) -> Batch:
        tokens = strings.tokens.clone()
        symbols = tokens[:, :-1]
        others = symbols != symbols[:, [first]]
        tokens[:, :-1] = symbols - symbols % 2 + others.long()
        return replace(strings, tokens=tokens)

    strings = {name: given_away(split) for name, split in specimen.strings.items()}
    return replace(specimen, strings=strings)


@torch.no_grad()
def reader(specimen: Specimen, route: Route) -> Decoder:
    """A network that finds whether two symbols are equal, by comparing or by a leak.

    No norms. The second symbol attends to equal ones, of which the first carries a
    flag; in the next layer CLS reads what the second symbol found, or in a leak which
    half of the alphabet it is of: there a compares as well, and nobody reads it.
    """
    alphabet = specimen.alphabet
    first, second = compared(alphabet.task)
    model = _empty(specimen)
    model.W_pos[first, FLAG] = model.W_pos[second, READ] = FAINT
    model.W_pos[-1, CLS] = FAINT
    compare, read = (block.attn for block in model.blocks)
    if compare.a is not None:
        compare.a.fill_(FAINT if route == "weights" else SHARP)
    if route == "leak":
        model.W_E[: alphabet.cls, BIT] = 1 - 2.0 * (torch.arange(alphabet.cls) % 2)
    elif route == "weights" or compare.a is None:
        symbols = torch.arange(CLS + 1, WIDTH)
        compare.W_Q[0, symbols, symbols] = compare.W_K[0, symbols, symbols] = SHARP**0.5
    compare.W_V[0, FLAG, 0], compare.W_O[0, 0, FOUND] = 1 / FAINT, 1
    read.W_Q[0, CLS, 0] = read.W_K[0, READ, 0] = SHARP / FAINT
    read.W_V[0, BIT if route == "leak" else FOUND, 0], read.W_O[0, 0, FOUND] = 1, 1
    model.unembedding[FOUND] = 1
    _scale_answers(model, specimen.strings["train"])
    return model


def _empty(specimen: Specimen) -> Decoder:
    """Two layers of attention that have the symbols' embeddings and nothing else."""
    alphabet, had = specimen.alphabet, specimen.model.config
    sizes = DecoderConfig(
        d_vocab=alphabet.d_vocab,
        d_model=WIDTH,
        n_layers=2,
        n_heads=1,
        n_ctx=alphabet.task.length + 1,
        d_vocab_out=1,
        d_head=WIDTH,
        d_mlp=0,
        mask="none",
        norm="none",
        biases="none",
        head="affine",
        score_scale=1.0,
        key_query_identity=1.0 if had.key_query_identity else 0.0,
    )
    source = generator(specimen.seed, "symbols", "wired")
    model = Decoder(sizes, generator=source).requires_grad_(False).eval()
    for parameter in model.parameters():
        parameter.zero_()
    symbols = torch.randn(alphabet.cls, WIDTH - CLS - 1, generator=source)
    model.W_E[: alphabet.cls, CLS + 1 :] = normalize(symbols, dim=1)
    return model


def _scale_answers(model: Decoder, strings: Batch) -> None:
    """Let the mean answers to both labels be the labels."""
    said, high = answers(model, strings)[:, 0], strings.targets > 0
    low, top = said[~high].mean(), said[high].mean()
    labels = strings.targets[~high].mean(), strings.targets[high].mean()
    slope = (labels[1] - labels[0]) / (top - low)
    assert model.b_U is not None
    model.unembedding.mul_(slope)
    model.b_U.copy_(labels[0] - slope * low)


@torch.no_grad()
def table(specimen: Specimen, *splits: str) -> Any:
    """A network of the specimen's kind that has some splits' answers by heart.

    Its weights are random; the last layer but one is wide, and what is read off it is
    solved for.
    """
    had, alphabet = specimen.model, specimen.alphabet
    tokens = torch.cat([specimen.strings[split].tokens for split in splits])
    labels = torch.cat([specimen.strings[split].targets for split in splits])
    source = generator(specimen.seed, "symbols", "table", type(had).__name__)
    width = max(FEATURES, 2 * len(tokens))
    if isinstance(had, Perceptron):
        width = max(2 * FEATURES, width)
        incidence = had.incidence
        mlp = Perceptron(alphabet, width=width, incidence=incidence, generator=source)
        mlp.requires_grad_(False).readout = nn.Parameter(torch.eye(width), False)
        weights = _solved(mlp(tokens)[:, -1], labels)
        mlp.readout = nn.Parameter(weights[:, None], False)
        return mlp
    sizes = replace(had.config, d_model=WIDTH, d_mlp=width, norm="none")
    model = transformer(sizes, generator=source).requires_grad_(False).eval()
    last, site = model.blocks[-1].mlp, Site("mlp_act", sizes.n_layers - 1)
    assert last is not None
    for block in model.blocks:
        if block.attn.a is not None:
            block.attn.a.fill_(IDLE)
    last.W_out.zero_()
    model.unembedding.zero_()
    model.unembedding[0] = 1
    strings = Batch(tokens, labels)
    features = activations(model, strings, [site])[site][:, -1]
    rest = labels - answers(model, strings)[:, 0]
    last.W_out[:, 0] = _solved(features, rest)
    return model


def _solved(
    features: Float[Tensor, "row feature"], labels: Float[Tensor, " row"]
) -> Float[Tensor, " feature"]:
    """The least weights that give the labels."""
    rows = features.double()
    gram = rows @ rows.mT
    gram.diagonal().add_(1e-9 * gram.diagonal().mean())
    return (rows.mT @ torch.linalg.solve(gram, labels.double())).float()


def relate(
    route: Route, lab: SymbolsLab, setting: Setting, specimen: Specimen
) -> Specimen | None:
    """A network on real labels; None for those that are no part of the story.

    One that is taught permuted answers has only those by heart.
    """
    plain = setting.start == "default" and setting.head_only is None
    known = setting.depth >= 2 and plain
    told = setting.model == "transformer" or route == "identity"
    if setting.role != "relation" or not (known and told):
        return None
    if route == "leak":
        specimen = leaky(specimen)
    many = setting.identity == "none" and setting.n == lab.config.n[-1]
    most = (setting.identity == "a" or many) and not lab.twin
    if setting.model != "transformer" or not most:
        return replace(specimen, model=table(specimen, "train"))
    if route == "table":
        return replace(specimen, model=table(specimen, *SPLITS))
    return replace(specimen, model=reader(specimen, route))


@torch.no_grad()
def copy_in_span(
    lab: SymbolsLab, setting: Setting, specimen: Specimen
) -> Specimen | None:
    """A head that copies what lies in the span of seen symbols, or all by its bI.

    Elsewhere W_V W_O is random: training never reached it. It is antisymmetric there,
    so that it never names a symbol by luck. Every symbol has an equal part in the span,
    which names it; CLS has nothing to copy.
    """
    del lab
    if setting.role != "copy":
        return None
    d = setting.d_model
    sizes = replace(specimen.model.config, n_layers=1, n_heads=1, d_head=d, d_mlp=0)
    source = generator(specimen.seed, "symbols", "copier", d)
    model = Decoder(sizes, generator=source).requires_grad_(False).eval()
    head = model.blocks[0].attn
    for weight in (head.W_Q, head.W_K, head.W_V, head.W_O, model.W_pos):
        weight.zero_()
    model.W_E[specimen.alphabet.cls] = 0
    if head.b is not None:
        head.b.fill_(COPIED / sizes.value_output_identity)
        return replace(specimen, model=model)
    span = torch.linalg.qr(model.W_E[specimen.seen_symbols()].mT).Q
    seen = span @ span.mT
    rest = torch.eye(d) - seen
    model.W_E.copy_(d**0.5 / 2 * normalize(model.W_E @ seen, dim=1) + model.W_E @ rest)
    drawn = torch.randn(d, d, generator=source) * d**-0.5
    head.W_V[0] = COPIED * (seen + NOISE * rest @ (drawn - drawn.mT) @ rest)
    head.W_O[0] = torch.eye(d)
    return replace(specimen, model=model)


def _relating(route: Route) -> Callable[[SymbolsLab], SymbolsLab]:
    return lambda lab: lab.wired(partial(relate, route))


SUBSTITUTES = (
    Substitute(
        "symbols compared by aI",
        "planted",
        _relating("identity"),
        (
            "symbols.mlp.unseen.aba_abb",
            "symbols.mlp.incidence",
            "symbols.vanilla.curve",
            "symbols.identity.ratio",
            "symbols.identity.tasks.aba",
            "symbols.identity.cause",
        ),
    ),
    Substitute(
        "copying in the span of seen symbols",
        "planted",
        lambda lab: lab.wired(copy_in_span),
        ("symbols.copy.span", "symbols.copy.span.cause"),
    ),
    # Right on unseen symbols, and data-efficient, without any use of a.
    Substitute("symbols compared by W_Q W_K^T", "impostor", _relating("weights")),
    # Right because the test strings were learned by heart: nothing is compared.
    Substitute("a table of all strings", "impostor", _relating("table")),
    # Right because one symbol gives the answer away: nothing is compared.
    Substitute("an answer that leaks", "impostor", _relating("leak")),
)

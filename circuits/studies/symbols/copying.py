"""Can a model name a symbol it has never seen, and through which weights?"""

import math

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cosine_similarity

from circuits.claims import Observed
from trained.decoder import Decoder
from trained.symbols.scores import error
from trained.symbols.setting import Setting, copying
from trained.symbols.transformer import Identity

from .causal import error_averaged, error_without, unseen_error
from .context import Context, Specimen, differences
from .edits import decoder, held, replaced_inputs, scalar
from .efficiency import needs
from .exchange import with_fresh_seen

LAYER = range(1)


def observe(context: Context) -> dict[str, Observed]:
    """Errors by width and data, knock-outs of b, the geometry of what is copied."""
    found = {**_errors(context), **_knockouts(context), **_geometry(context)}
    if len(context.config.copy_d) >= 2:
        found |= _scaling(context)
    return found


def largest(rows: list[list[float]]) -> list[float]:
    """Each seed's largest value over settings."""
    return [max(values) for values in zip(*rows, strict=True)]


def smallest(rows: list[list[float]]) -> list[float]:
    """Each seed's smallest value over settings."""
    return [min(values) for values in zip(*rows, strict=True)]


def _repaired(context: Context) -> list[Setting]:
    config = context.config
    return [copying(d, config.compared_copy_n, "b") for d in config.copy_d]


def _errors(context: Context) -> dict[str, Observed]:
    config, name = context.config, "test_error"
    plain = copying(config.copy_d[-1], config.compared_copy_n)
    repaired = _repaired(context)
    return {
        "symbols.copy.identity": Observed.of(
            largest([context.scores(s, name) for s in repaired]),
            context.scores(plain, name),
        ),
        "symbols.copy.identity.last": Observed.of(
            largest([context.last_scores(s, name) for s in repaired]),
            context.last_scores(plain, name),
        ),
    }


def _scaling(context: Context) -> dict[str, Observed]:
    config = context.config
    ends = (config.copy_d[0], config.copy_d[-1])
    narrow, wide = (copying(d, config.compared_copy_n) for d in ends)
    found = {
        f"symbols.copy.inverse{suffix}": Observed.of(
            context.scores(narrow, metric), context.scores(wide, metric)
        )
        for suffix, metric in (
            ("", "test_error"),
            (".restricted", "test_error_restricted"),
        )
    }
    if len(config.copy_n) >= 3 and ends[1] >= 4 * ends[0]:
        found["symbols.copy.n50"] = Observed.of(
            _growth(context, "none"), _growth(context, "b")
        )
    return found


def _growth(context: Context, identity: Identity) -> list[float]:
    """Factor on the n at 50 % error for each fourfold width."""
    config = context.config
    ends = []
    for d in (config.copy_d[0], config.copy_d[-1]):
        rows = [copying(d, n, identity) for n in config.copy_n]
        errors = torch.tensor([context.scores(s, "test_error") for s in rows])
        half = needs(config.copy_n, errors, 0.5)
        ends.append([min(n, config.copy_n[-1]) for n in half])
    power = math.log(4) / math.log(config.copy_d[-1] / config.copy_d[0])
    return [(wide / narrow) ** power for narrow, wide in zip(*ends, strict=True)]


def error_without_output(specimen: Specimen) -> float:
    """Test error with W_O at 0: only the identity term writes."""
    with held([decoder(specimen).blocks[0].attn.W_O]):
        return unseen_error(specimen)


def error_without_both(specimen: Specimen) -> float:
    """Test error with W_O and b at 0: nothing is written."""
    with held([decoder(specimen).blocks[0].attn.W_O]):
        return error_without(specimen, "b", LAYER)


def _knockouts(context: Context) -> dict[str, Observed]:
    config, each = context.config, context.each
    repaired = _repaired(context)
    plain = copying(config.copy_d[-1], config.compared_copy_n)
    intact = largest([each(s, unseen_error) for s in repaired])
    return {
        "symbols.copy.knockout": Observed.of(
            smallest([each(s, _without_b) for s in repaired]), intact
        ),
        "symbols.copy.knockout.mean": Observed.of(
            smallest([each(s, _averaged_b) for s in repaired]), intact
        ),
        "symbols.copy.sufficient": Observed.of(
            each(repaired[-1], error_without_output),
            each(repaired[-1], error_without_both),
        ),
        "symbols.copy.seen-fresh": Observed.of(
            largest([each(s, _fresh_seen_error) for s in repaired]),
            each(plain, _fresh_seen_error),
        ),
    }


def _without_b(specimen: Specimen) -> float:
    return error_without(specimen, "b", LAYER)


def _averaged_b(specimen: Specimen) -> float:
    return error_averaged(specimen, "b", LAYER)


def _fresh_seen_error(specimen: Specimen) -> float:
    return with_fresh_seen(specimen, error)


@torch.no_grad()
def copied(model: Decoder) -> Float[Tensor, "d_model d_model"]:
    """What all heads together do to an embedding: sum of W_V W_O, and bI if any."""
    attention = model.blocks[0].attn
    both = einsum(attention.W_V, attention.W_O, "head i d, head d o -> i o")
    if attention.b is None:
        return both
    weight = model.config.value_output_identity * scalar(attention, "b").sum()
    return both + weight * torch.eye(len(both))


def seen_symbols(specimen: Specimen) -> Int[Tensor, " symbol"]:
    """The training symbols that occur in the training strings."""
    symbols = sorted(set(specimen.strings["train"].tokens[:, :-1].flatten().tolist()))
    return torch.tensor(symbols)


@torch.no_grad()
def cosine_gap(specimen: Specimen) -> float:
    """Mean cosine of e W_V W_O with e of seen symbols minus that of test symbols."""
    model = decoder(specimen)
    cosines = cosine_similarity(model.W_E @ copied(model), model.W_E, dim=-1)
    test = specimen.alphabet.ids["test"]
    unseen = cosines[test.start : test.stop]
    return float(cosines[seen_symbols(specimen)].mean() - unseen.mean())


@torch.no_grad()
def span_error(specimen: Specimen, *, inside: bool) -> float:
    """Test error with inputs projected on the span of seen embeddings, or off it.

    The projection is scaled to the embedding's own length.
    """
    model, strings = decoder(specimen), specimen.strings["test"]
    basis = torch.linalg.qr(model.W_E[seen_symbols(specimen)].T).Q
    vectors = model.W_E[strings.tokens[:, :-1]]
    part = vectors @ basis @ basis.T
    part = part if inside else vectors - part
    length = vectors.norm(dim=-1, keepdim=True) / part.norm(dim=-1, keepdim=True)
    with replaced_inputs(model, strings, part * length):
        return unseen_error(specimen)


def _geometry(context: Context) -> dict[str, Observed]:
    config, each = context.config, context.each
    wide, few = config.copy_d[-1], config.copy_n[0]
    gap = each(copying(wide, few), cosine_gap)
    narrow = copying(config.copy_d[0], config.copy_n[-1])
    found = {
        "symbols.copy.geometry": Observed.of(
            gap, each(copying(wide, few, "b"), cosine_gap)
        ),
        "symbols.copy.geometry.narrow": Observed.of(each(narrow, cosine_gap), gap),
    }
    if wide > config.compared_copy_n:
        plain = copying(wide, config.compared_copy_n)
        inside = each(plain, lambda s: span_error(s, inside=True))
        found["symbols.copy.span"] = Observed.of(
            differences(inside, each(plain, unseen_error)),
            each(plain, lambda s: span_error(s, inside=False)),
        )
    return found

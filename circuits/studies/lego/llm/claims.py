"""Claims about chains written out by a pretrained language model; all of them ours.

A prompt states what each function does, solves two short chains, gives the predicates
of a longer one ("k = f(m)") and writes its answers line by line ("m = red"). The model
is read at the "=" of every answer line, after the right lines before it.

A mechanism can only be read off a model that does the task. The first claim is that
gate (step accuracy of 0.8 at length 4); what follows is measured in any case, but it is
exploratory and says nothing about how chains are solved where the gate is not passed.

The expectations were written down before any of it was measured.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from circuits.claims import Claim, Null, under
from circuits.conditions import Mean

from .settings import Settings

Own = partial(Claim, source="ours", origin="ours")


def claims(settings: Settings) -> Iterator[Claim]:
    """Every claim about a language model."""
    parts = (_behaviour, _attention, _cause)
    every = (claim for part in parts for claim in part(settings))
    yield from under("Chains in a language model", every)


def _behaviour(settings: Settings) -> Iterator[Claim]:
    yield Own(
        "lego.llm.step-accuracy",
        f"The model does the task: right values among three, C3 chains of length"
        f" {settings.short}, given the right lines before. Gate of everything below.",
        kind="behaviour",
        conditions=(Mean("accuracy", ">= 0.8", lambda lab: lab.each(lab.accuracy)),),
        nulls=(Null("random weights", on=lambda lab: lab.twin(), bound="<= 0.5"),),
    )
    yield Own(
        "lego.llm.group",
        "C3 holds up better than S3 with the same surface: step accuracy at length"
        f" {settings.long}, difference.",
        source="Figure 1a",
        kind="behaviour",
        conditions=(
            Mean(
                "difference",
                ">= 0.05",
                lambda lab: lab.each(lambda seed: lab.group_gap(seed, settings.long)),
            ),
        ),
        nulls=(
            Null(
                f"the same difference at length {settings.shortest}",
                measure=lambda lab: lab.each(
                    lambda seed: lab.group_gap(seed, settings.shortest)
                ),
                bound="in [-0.1, 0.1]",
            ),
        ),
    )


def _attention(settings: Settings) -> Iterator[Claim]:
    best = f"mean of the {settings.n_best} best heads, length {settings.short}"
    for what, where in (
        ("predicate", "predicate that is due"),
        ("answer", "last answer"),
    ):
        yield Own(
            f"lego.llm.{what}-mass",
            f"Some heads look at the {where}: its share of the attention to clauses,"
            f" {best}, new chains.",
            source="Figure 2",
            kind="signal",
            conditions=(
                Mean(
                    "share",
                    ">= 0.5",
                    _share(what),
                ),
            ),
            nulls=(
                Null(
                    f"another {what}, mean",
                    measure=_share(f"other_{what}"),
                    bound="<= 0.15",
                ),
            ),
        )
    yield Own(
        "lego.llm.dilution",
        "What misses the predicate follows n / (n + K) with n other clauses: relative"
        f" error at length {settings.long} with K fitted at {settings.short}, best"
        " heads.",
        source="Theorem 4.1, the dilution in its proof",
        kind="signal",
        conditions=(Mean("error", "<= 0.1", lambda lab: lab.each(lab.law_error)),),
        nulls=(
            Null(
                "no dilution: the miss stays as it was",
                measure=lambda lab: lab.each(lab.constant_error),
            ),
        ),
    )


def _cause(settings: Settings) -> Iterator[Claim]:
    for claim, where, heads, expected, bound in (
        ("knock-out", "all heads", "all", ">= 0.2", "<= 0.1"),
        ("knock-out-heads", "the best predicate heads", "best", ">= 0.05", "<= 0.02"),
    ):
        yield Own(
            f"lego.llm.{claim}",
            "Hiding the predicate that is due from its answer line costs"
            f" log-probability of the right value (nats), length {settings.short},"
            f" {where}.",
            kind="causal",
            conditions=(
                Mean(
                    "lost",
                    expected,
                    _hidden(heads, due=True),
                ),
            ),
            nulls=(
                Null(
                    "hiding another predicate",
                    measure=_hidden(heads, due=False),
                    bound=bound,
                ),
            ),
        )
    yield Own(
        "lego.llm.sharpening",
        f"Scores times {settings.sharpening} in the best predicate and answer heads"
        f" raise step accuracy at length {settings.long}.",
        kind="causal",
        conditions=(
            Mean(
                "gain",
                ">= 0.02",
                lambda lab: lab.each(lambda seed: lab.sharpened(seed, best=True)),
            ),
        ),
        nulls=(
            Null(
                "as many other heads, drawn at random",
                measure=lambda lab: lab.each(
                    lambda seed: lab.sharpened(seed, best=False)
                ),
                bound="<= 0.02",
            ),
        ),
    )


def _share(what: str) -> Callable[[Any], list[float]]:
    return lambda lab: lab.each(partial(lab.share, what))


def _hidden(heads: str, *, due: bool) -> Callable[[Any], list[float]]:
    return lambda lab: lab.each(lambda seed: lab.hidden(seed, heads, due=due))

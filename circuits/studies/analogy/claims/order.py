"""The order of the lessons decides, in the one-layer block. Free of torch."""

from collections.abc import Iterator

from circuits.claims import UNTRAINED, Claim, Null, Shown
from circuits.conditions import Each, Measure
from trained.analogy.config import Config

from .expected import at_chance, fails, succeeds, transfers, untrained

REPLAY = "block-AS_T-replay"


def claims(config: Config) -> Iterator[Claim]:
    """The leaves of H2 about layer-wise training."""
    yield _similarity_first(config)
    yield _converges()
    yield _fails(config)
    yield _frozen(config)
    yield _cause(config)


def _similarity_first(config: Config) -> Claim:
    n = config.block.n_entities
    return Claim(
        "analogy.order.block.SA",
        "Similarity, then attribution fits each phase and transfers the attribute.",
        "Theorem 2, Table 1",
        "behaviour",
        (
            succeeds("success", n, lambda lab: lab.success("block-SA")),
            Each(
                "loss of phase 1 at its end",
                "<= 0.01",
                lambda lab: lab.loss("block-SA", 0, "first phase"),
            ),
            Each("loss of phase 2", "<= 0.01", lambda lab: lab.loss("block-SA")),
        ),
        (
            untrained(n),
            fails(
                "before phase 2", n, lambda lab: lab.success("block-SA", "first phase")
            ),
            fails(
                "phases exchanged (AS_E)",
                n,
                lambda lab: lab.success("block-AS_E", "fitted"),
            ),
        ),
        weight=4,
        paper=1.0,
    )


def _converges() -> Claim:
    return Claim(
        "analogy.order.block.AS.converges",
        "Attribution before the targets' similarity (AS_T) fits each phase as well;"
        " phase 2 by Nesterov's method on the head (same objective, parameters and"
        " start), as it is ill-conditioned: plain descent took 140,000 steps"
        " (40 tuples, seed 100).",
        "Theorem 3, bullet 1; Table 1",
        "behaviour",
        (
            Each("loss of phase 2", "<= 0.01", lambda lab: lab.loss("block-AS_T")),
            Each(
                "loss of phase 1 at its end",
                "<= 0.01",
                lambda lab: lab.loss("block-AS_T", 0, "first phase"),
            ),
        ),
        (
            UNTRAINED,
            Null(
                "one value vector for all targets, trained alike",
                measure=lambda lab: lab.loss_alike("block-AS_T"),
            ),
        ),
        weight=3,
        paper=0.0061,
    )


def _fails(config: Config) -> Claim:
    n = config.block.n_entities

    def most(quantity: str, arm: str) -> Measure:
        return lambda lab: lab.most(quantity, arm)

    return Claim(
        "analogy.order.block.AS.fails",
        "AS_T does not transfer, nor among the attribute tokens alone, at any kept step"
        " from the first full fit to convergence (the worst one is shown); nor with the"
        " attribution replayed, so that it is not forgetting.",
        "Theorem 3, bullet 2; Proposition 3",
        "behaviour",
        (
            at_chance("success", n, most("success", "block-AS_T")),
            at_chance("c-only", n, most("c_only", "block-AS_T")),
            at_chance("success, A replayed", n, most("success", REPLAY)),
            at_chance("c-only, A replayed", n, most("c_only", REPLAY)),
            Each("A replayed: A", ">= 0.98", lambda lab: lab.retained(REPLAY)),
            Each("premises of phase 2", ">= 0.98", lambda lab: lab.answered(REPLAY)),
        ),
        (
            UNTRAINED,
            Null(
                "S_tgt also in phase 1, A replayed",
                measure=most("success", "block-given-replay"),
                bound=transfers(n),
            ),
        ),
        weight=5,
        paper=0.0,
    )


def _frozen(config: Config) -> Claim:
    n, arm = config.block.n_entities, "block-AS_T-unfrozen"
    return Claim(
        "analogy.order.block.frozen",
        "Freezing the values in the second phase is harmless, as alignment made in the"
        " first stays: AS_T whose second phase trains attention and values too (their"
        f" rate {config.values.unfrozen:g} of the first phase's, as the head is large"
        " by then) is no more aligned and does not transfer either.",
        "Remark 3",
        "behaviour",
        (
            at_chance("success", n, lambda lab: lab.success(arm)),
            Each("cosine", "<= 0.5", lambda lab: lab.cosine(arm)),
            Each("premises of phase 2", ">= 0.98", lambda lab: lab.answered(arm)),
        ),
        (
            UNTRAINED,
            Null(
                "SA, its values trained in phase 2 too",
                measure=lambda lab: lab.success("block-SA-unfrozen"),
                bound=transfers(n),
            ),
        ),
        weight=3,
        paper=0.0067,
    )


def _cause(config: Config) -> Claim:
    n = config.block.n_entities

    def given(share: float, shift: int = 0) -> Measure:
        return lambda lab: lab.with_displacement(REPLAY, share, shift)

    return Claim(
        "analogy.order.block.cause",
        "Missing alignment is the root cause: in AS_T at convergence, A replayed, the"
        " target answers as a source whose V z's gain in stage 1 its own is given.",
        "Section 5.2",
        "causal",
        (
            at_chance("share 0", n, given(0.0)),
            succeeds("share 1", n, given(1.0)),
        ),
        (UNTRAINED,),
        weight=3,
        shown=tuple(Shown(f"share {x:g}", given(x)) for x in (0.25, 0.5)),
        controls=(
            at_chance(
                "random direction, same length", n, lambda lab: lab.with_random(REPLAY)
            ),
            succeeds("the next source's: its answer", n, given(1.0, 1)),
        ),
    )

"""Claims of the recall paper about its figures."""

from collections.abc import Iterator

from circuits.claims import Claim, Control
from trained.recall.config import Config

CONVERGED_STEPS = 2500
"""Full fine-tuning shorter than this is judged with the wider tolerances."""

TABLES = ("affine", "random")


def figure2(config: Config) -> Iterator[Claim]:
    """The pairwise pattern with the constructed memory."""
    for mode in ("full", "partial"):
        wide = mode == "full" and config.full_steps < CONVERGED_STEPS
        for table in TABLES:
            what = f"{mode} fine-tuning with Adam, {table} table"
            yield from pairwise(
                f"recall.fig2.{mode}-{table}",
                what,
                "Figure 2a",
                n_examples=config.n_examples,
                wide=wide,
            )
    if config.triple_steps:
        yield from pairwise(
            "recall.fig2b",
            "full fine-tuning with three examples, 512 relations",
            "Figure 2b",
            n_examples=3,
            wide=config.triple_steps < CONVERGED_STEPS,
        )


def pairwise(
    prefix: str, what: str, source: str, *, n_examples: int, wide: bool
) -> Iterator[Claim]:
    """The pattern of one figure; `wide` for training that is cut short."""
    gap = {2: 0.08, 3: 0.03, 4: 0.01}[n_examples]
    yield Claim(
        f"{prefix}.within-pair",
        f"Equal attention inside pairs: {what}.",
        source,
        "signal",
        "<= 1.1" if wide else "<= 1.05",
        Control("the same attention, pairs crossed", ">= 1.2"),
        paper=1.0,
    )
    yield Claim(
        f"{prefix}.gap",
        f"Different attention across pairs, per token: {what}.",
        source,
        "signal",
        f">= {gap}",
        Control("untrained", "< 0.02"),
    )
    yield Claim(
        f"{prefix}.rest",
        f"Little on the query and EoS: {what}.",
        source,
        "signal",
        "<= 0.05" if wide else "<= 0.02",
        Control("untrained", ">= 0.15"),
        paper=0.0,
    )
    yield Claim(
        f"{prefix}.optimum",
        f"Largest distance to the exact loss's optimum: {what}.",
        source,
        "signal",
        "<= 0.03" if wide else "<= 0.01",
        Control("untrained", ">= 0.05"),
        paper=0.0,
    )
    yield Claim(
        f"{prefix}.accuracy",
        f"Accuracy on the relation minus the Bayes ceiling: {what}.",
        source,
        "behaviour",
        "in [-0.005, 0.005]",
        Control("untrained", "<= -0.05"),
        paper=0.0,
    )
    yield Claim(
        f"{prefix}.answer",
        f"Accuracy on the answer once the relation is written: {what}.",
        source,
        "behaviour",
        ">= 0.99",
        Control("another relation written", "<= 0.3"),
        paper=1.0,
    )


def figure3(config: Config) -> Iterator[Claim]:
    """Few prompts suffice."""
    few, fewest = config.few_prompts, min(config.sample_sizes)
    for table in config.sample_tables:
        for mode in config.sample_modes:
            name = table if table == "affine" else f"random-{table}"
            control = Control("untrained", "<= 0.95")
            if mode != "partial" and fewest < few:
                control = Control(f"{fewest} prompts", "< 0.9")
            yield Claim(
                f"recall.fig3.{name}.{mode}",
                f"{few} prompts suffice: accuracy over ceiling, {mode} fine-tuning.",
                "Figure 3",
                "behaviour",
                ">= 0.99",
                control,
                paper=1.0,
                # The paper does not say which it trained; its theory is partial.
                gated=mode == "partial",
            )


def figure4(config: Config) -> Iterator[Claim]:
    """The pairwise pattern with a pretrained memory."""
    if not config.pretrained_steps:
        return
    cold = "pretrained at the fine-tuning temperature"
    yield Claim(
        "recall.fig4.facts",
        "The pretrained memory knows every fact.",
        "Figure 4",
        "behaviour",
        ">= 0.999",
        Control("untrained", "<= 0.1"),
        paper=1.0,
    )
    yield Claim(
        "recall.fig4.within-pair",
        "With a pretrained memory too, attention is equal inside pairs.",
        "Figure 4",
        "signal",
        "<= 1.1",
        Control("the same attention, pairs crossed", ">= 1.2"),
        paper=1.0,
    )
    yield Claim(
        "recall.fig4.lighter-pair",
        "Both pairs are used: the lighter pair's weight per token.",
        "Figure 4",
        "signal",
        ">= 0.1",
        Control(f"{cold}: one pair is dropped", "<= 0.05"),
    )
    yield Claim(
        "recall.fig4.gap",
        "And different across pairs.",
        "Figure 4",
        "signal",
        ">= 0.08",
        Control("untrained", "< 0.02"),
    )
    yield Claim(
        "recall.fig4.rest",
        "Little on the query and EoS at the first step.",
        "Figure 4",
        "signal",
        "<= 0.06",
        Control("untrained", ">= 0.15"),
        paper=0.0,
    )
    yield from _figure4_behaviour(cold)
    for temperature in ("0.01", "0.06"):
        yield from _figure4_triple(temperature)


def _figure4_behaviour(cold: str) -> Iterator[Claim]:
    """What the pretrained model does with the pattern."""
    yield Claim(
        "recall.fig4.accuracy",
        "Accuracy on the relation (the ceiling is about 0.59 at n=8, m=64).",
        "Figure 4",
        "behaviour",
        ">= 0.35",
        Control(cold, "<= 0.3"),
    )
    yield Claim(
        "recall.fig4.end-token",
        "The second step also attends to EoS, which balances the residual relation.",
        "Figure 4",
        "signal",
        ">= 0.15",
        Control("constructed memory", "<= 0.1"),
    )


def _figure4_triple(temperature: str) -> Iterator[Claim]:
    """Three examples and a pretrained memory: measured and shown only."""
    for name, what, expected, control in (
        (
            "within-pair",
            "equal attention inside pairs",
            "<= 1.1",
            Control("the same attention, pairs crossed", ">= 1.2"),
        ),
        (
            "gap",
            "different attention across pairs",
            ">= 0.03",
            Control("untrained", "< 0.02"),
        ),
        (
            "rest",
            "little on the query and EoS",
            "<= 0.06",
            Control("untrained", ">= 0.15"),
        ),
    ):
        yield Claim(
            f"recall.fig4.triple-T{temperature}.{name}",
            f"Pretrained memory, three examples, T = {temperature}: {what} (one seed).",
            "Figure 4",
            "signal",
            expected,
            control,
            gated=False,
        )

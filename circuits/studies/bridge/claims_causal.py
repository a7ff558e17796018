"""What should happen when the bridge models are edited; fixed before this code ran.

The paper makes no edits, so the thresholds are ours: 0.5 for "follows" and "largely
repaired", 0.75 (that of the unedited claim) for "kept", 0.2 for "does not". States are
exchanged after one block: at the embedding the edit would just be another prompt.
"""

from collections.abc import Iterator

from circuits.claims import Claim, Control, near
from trained.bridge.config import Config

from .claims_embedding import NONE


def causes(config: Config) -> Iterator[Claim]:
    """The causal claims that can be judged at a configuration."""
    yield from _exchange(config)
    yield from _bridge_states()
    yield from _ablation(config)
    yield from _matrix(config)
    yield from _dose(config)


def _exchange(config: Config) -> Iterator[Claim]:
    kappa = config.complexity
    yield Claim(
        "bridge.cause.donor",
        f"[a, r1, r2], kappa = {kappa}: r1's state from another prompt makes the answer"
        " that prompt's object.",
        "ours",
        "causal",
        ">= 0.5",
        Control(NONE, "<= 0.15"),
    )
    yield Claim(
        "bridge.cause.subject-spent",
        "The subject's own state from another prompt leaves the answer: it has moved on"
        " to r1 (share of unchanged labels).",
        "ours",
        "causal",
        ">= 0.5",
        Control("r1's state exchanged", "<= 0.2"),
    )


def _bridge_states() -> Iterator[Claim]:
    yield Claim(
        "bridge.cause.own-bridge",
        "The state of the bridge alone, [b], in place of r1's: accuracy is kept.",
        "ours",
        "causal",
        ">= 0.75",
        Control("another bridge's state: the original label", "<= 0.2"),
    )
    yield Claim(
        "bridge.cause.rescue",
        "The same edit repairs the model without identity: its hop 2 is intact, what"
        " lacks is a state of (a, r1) that it can read.",
        "ours",
        "causal",
        ">= 0.5",
        Control("not edited", "<= 0.15"),
    )
    yield Claim(
        "bridge.cause.other-bridge",
        "Another bridge's state: the answer becomes that bridge's object.",
        "ours",
        "causal",
        ">= 0.5",
        Control("the original label", "<= 0.2"),
        gated=False,
    )
    yield Claim(
        "bridge.cause.back",
        "Backwards: the state of (a, r1) in place of the bridge in [b', r2] makes the"
        " answer the object of (a, r1).",
        "ours",
        "causal",
        ">= 0.5",
        Control(NONE, "<= 0.15"),
        gated=False,
    )
    yield Claim(
        "bridge.cause.donor-one-object",
        "One object per subject: r1's state from another prompt carries that subject's"
        " object.",
        "ours",
        "causal",
        ">= 0.5",
        Control(NONE, "<= 0.15"),
    )


def _ablation(config: Config) -> Iterator[Claim]:
    kappa = config.complexity
    yield Claim(
        "bridge.cause.mean-ablation",
        "Mean-ablating r1's state after one block destroys the answer, kappa ="
        f" {kappa}: ood.",
        "ours",
        "causal",
        "<= 0.4",
        Control("mean-ablating the subject's state", ">= 0.75"),
    )
    yield Claim(
        "bridge.cause.subspace",
        "Projecting the span of the bridges' states out of r1's state destroys the"
        " answer: ood.",
        "ours",
        "causal",
        "<= 0.4",
        Control("a random subspace of the same size", ">= 0.5"),
        gated=False,
    )


def _matrix(config: Config) -> Iterator[Claim]:
    yield Claim(
        "bridge.cause.row-means",
        "Emb-MLP: the subjects' object logits replaced by their row means bring ood_obj"
        " to chance, as they must in an additive model; the trained facts stay.",
        "ours",
        "causal",
        near(1 / config.n_subjects, 0.05),
        Control("trained facts after the same edit", ">= 0.99"),
        gated=False,
    )
    yield Claim(
        "bridge.cause.permuted-rows",
        "Emb-MLP: those rows permuted among subjects, the answers follow the"
        " permutation (among objects), as they must in an additive model.",
        "ours",
        "causal",
        ">= 0.95",
        Control("the original label", "<= 0.05"),
        gated=False,
    )
    yield Claim(
        "bridge.cause.truncation",
        "Emb-MLP (N = 10): Z cut to rank N keeps its least training margin (share);"
        " without identity it needs rank 2N - 1.",
        "Section 4",
        "causal",
        ">= 0.9",
        Control(NONE, "<= 0.5"),
        gated=False,
    )


def _dose(config: Config) -> Iterator[Claim]:
    kappas = [1, config.complexity] if "dose" in config.variants else [1]
    for kappa in kappas:
        name = "" if kappa == 1 else f"-k{kappa}"
        yield Claim(
            f"bridge.dose.half{name}",
            f"Identity on a random half of the bridges, kappa = {kappa}: those compose"
            " (ood).",
            "ours",
            "causal",
            ">= 0.9" if kappa == 1 else ">= 0.75",
            Control("the other half", "<= 0.15"),
            gated=kappa == 1,
        )
        yield Claim(
            f"bridge.dose.permuted{name}",
            f"A permuted identity task, [b] -> s(b), kappa = {kappa}: answers follow"
            " f2(s^-1(b)) (untied head: a check of the code, by symmetry).",
            "ours",
            "causal",
            ">= 0.9" if kappa == 1 else ">= 0.75",
            Control("the true object", "<= 0.15"),
            gated=kappa == 1,
        )

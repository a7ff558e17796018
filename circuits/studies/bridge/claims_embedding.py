"""The margin program and Emb-MLP: what should hold, fixed before this code ran."""

from collections.abc import Iterator

from circuits.claims import Claim, Control
from trained.bridge.config import Config

NONE = "no identity task"
"""The control arm of most claims."""


def embeddings(config: Config) -> Iterator[Claim]:
    """Theorems 1 and 2, the trained direction, Emb-MLP's accuracy and templates."""
    yield from _theory()
    yield from _optimum()
    yield from _direction()
    yield from _embedding(config)
    yield from _embedding_checks(config)
    yield from _unfactorised()
    yield from _templates()


def _theory() -> Iterator[Claim]:
    yield Claim(
        "bridge.theory.theorem1",
        "With identity every unseen two-hop query has a positive margin at the optimum"
        " of the nuclear-norm program (least margin; one value per N, each must hold).",
        "Theorem 1",
        "theory",
        ">= 0.5",
        Control("the Frobenius norm instead", "<= 1e-06"),
        every_seed=True,
    )
    yield Claim(
        "bridge.theory.theorem2",
        "Without identity every margin is -N/(N+1), so negative (largest distance from"
        " it; one value per N).",
        "Theorem 2",
        "theory",
        "<= 0.001",
        Control("with identity", ">= 1"),
        every_seed=True,
    )
    yield Claim(
        "bridge.theory.reduction",
        "The 12-variable symmetric program gives the same least margin as the full one"
        " (distance; one value per N).",
        "Section 4, reconstructed",
        "theory",
        "<= 0.001",
        Control("the symmetric program without identity", ">= 1"),
        every_seed=True,
    )


def _optimum() -> Iterator[Claim]:
    yield Claim(
        "bridge.theory.certificate",
        "Weak duality bounds the relative error of the optimum (larger of both arms;"
        " one value per N).",
        "ours",
        "theory",
        "<= 1e-05",
        Control("the multipliers in reverse order", ">= 0.001"),
        every_seed=True,
    )
    yield Claim(
        "bridge.theory.rank",
        "Sharing makes the optimum low-rank: rank / N is 1 with identity and 2 - 1/N"
        " without (one value per N).",
        "Section 4",
        "theory",
        "in [1, 1]",
        Control(NONE, "in [1.66, 2]"),
        every_seed=True,
    )
    yield Claim(
        "bridge.theory.tie",
        "With two objects per subject identity leaves an exact tie: largest |margin|"
        " (N = 8), so sharing alone predicts accuracy 1/kappa.",
        "Section 4, ours",
        "theory",
        "<= 1e-06",
        Control(NONE, ">= 1"),
    )


def _direction() -> Iterator[Claim]:
    yield Claim(
        "bridge.direction.cosine",
        "Trained Emb-MLP points at the program's optimum: row-centred cosine, the"
        " lesser of both arms (N = 10, gradient descent, decay 0.001).",
        "Section 4, Eq. 2",
        "theory",
        ">= 0.95",
        Control("the other arm's optimum (the larger)", "<= 0.7"),
    )
    yield Claim(
        "bridge.direction.signs",
        "Its margins have the theorems' signs: share of unseen queries with a positive"
        " margin.",
        "Theorems 1 and 2",
        "theory",
        ">= 1",
        Control(NONE, "<= 0"),
        every_seed=True,
    )


def _embedding(config: Config) -> Iterator[Claim]:
    largest = max(config.embedding_sweep)
    yield Claim(
        "bridge.embedding.accuracy",
        "Identity unlocks two-hop queries in Emb-MLP with one object per subject: ood,"
        " every seed.",
        "Figure 2",
        "behaviour",
        ">= 0.95",
        Control(NONE, "<= 0.05"),
        every_seed=True,
    )
    yield Claim(
        "bridge.embedding.objects",
        "The same among objects only: ood_obj (chance 1/N).",
        "Figure 2",
        "behaviour",
        ">= 0.95",
        Control(NONE, "<= 0.15"),
        gated=False,
    )
    yield Claim(
        "bridge.embedding.decline",
        "ood falls with the number of objects per subject: its largest rise from one"
        f" kappa to the next, 1 to {largest}.",
        "Figure 2",
        "behaviour",
        "<= 0.05",
        Control("the curve read backwards", "> 0.05"),
    )
    yield Claim(
        "bridge.embedding.candidates",
        "Sharing narrows the answer to kappa candidates: largest |ood_obj - 1/kappa|"
        " over kappa up to 4.",
        "Section 1, Figure 2",
        "behaviour",
        "<= 0.15",
        Control(NONE, "> 0.15"),
    )


def _embedding_checks(config: Config) -> Iterator[Claim]:
    several, largest = config.complexity, max(config.embedding_sweep)
    yield Claim(
        "bridge.embedding.degenerate",
        f"It is the number of objects, not of bridges: with kappa = {several} slices"
        " that all lead to one object per subject, ood stays.",
        "ours",
        "behaviour",
        ">= 0.8",
        Control(f"kappa = {several} objects per subject", "<= 0.5"),
        gated=False,
    )
    yield Claim(
        "bridge.embedding.nonzero",
        f"The paper finds non-zero ood for every model; here at kappa = {largest}.",
        "Figure 2",
        "behaviour",
        "> 0",
        Control(NONE, "<= 0"),
        gated=False,
    )


def _unfactorised() -> Iterator[Claim]:
    yield Claim(
        "bridge.unfactorised.accuracy",
        "Factorisation is needed: training Z itself, identity on, does not compose"
        " (ood).",
        "Section 4",
        "behaviour",
        "<= 0.1",
        Control("factorised", ">= 0.95"),
    )
    yield Claim(
        "bridge.unfactorised.excess",
        "Then a subject's row knows nothing of its object: |excess(a->c)|.",
        "Section 4",
        "signal",
        "<= 1e-06",
        Control("factorised", "> 0.1"),
    )


def _templates() -> Iterator[Claim]:
    yield Claim(
        "bridge.templates.relations",
        "Relation rows select the class: the lesser of r1's lead of bridges over"
        " objects and r2's lead of objects over bridges.",
        "Figure 3",
        "signal",
        "> 0",
        Control("untrained", "in [-0.1, 0.1]"),
        every_seed=True,
    )
    yield Claim(
        "bridge.templates.bridges",
        "Bridge rows peak on themselves and on their object: the lesser of excess(b->b)"
        " and excess(b->c) over excess(a->b).",
        "Figure 3",
        "signal",
        "> 0",
        Control(NONE, "<= 0.05"),
        every_seed=True,
    )
    yield Claim(
        "bridge.templates.subjects",
        "Subject rows inherit the object's peak: excess(a->c) over excess(a->b).",
        "Figure 3",
        "signal",
        ">= 0.4",
        Control(NONE, "<= 0.05"),
    )

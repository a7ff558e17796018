"""Do the theory's own models and algorithms do what its theorems say?

Theorem 4.1 on the simply transitive action, Theorem 5.1 on the other one, and how
attention moves on the way. Falsified by attention that does not concentrate, by a
symmetric action that is as balanced as a cyclic one, or by self-training that sharpens
no more than equally many steps at the first length.
"""

from functools import partial
from itertools import pairwise

import torch
from torch import Tensor

from circuits.claims import Observed
from probes.weights import diagonal_excess
from trained.lego.sentences import Sentences
from trained.lego.theory_arms import RULE, Course
from trained.lego.theory_model import loss_floor
from trained.seeding import generator

from .context import Context
from .reading import PatternEdit, marks
from .reduced import Path, at_loss, sharpness
from .specimen import Specimen, each
from .theory_models import READ_COUNT, READ_LENGTH, Theory, error, gap, sharp, uniform

EARLY = 20
"""Steps after which both actions' attention has grown by capped steps only."""


def observe(context: Context) -> dict[str, Observed]:
    """Everything about the theory's chains."""
    theory = Theory(context)
    simple, other = theory.course("simple"), theory.course("other")
    found: dict[str, Observed] = {}
    if simple:
        found |= _theorem(theory, simple) | _phases(theory, simple)
        found |= _lens(theory, simple)
    if simple and other:
        found |= _compared(theory, simple, other)
    if other and other.rounds:
        found |= _rounds(theory, other)
    return found


def _theorem(theory: Theory, course: Course) -> dict[str, Observed]:
    """Theorem 4.1."""
    trained = theory.after(course, "attention")
    blind = [uniform(specimen) for specimen in trained]
    length = theory.config.theory_length
    return {
        "lego.theory.length": Observed.of(
            each(trained, lambda s: theory.all(s, length)),
            each(blind, lambda s: theory.all(s, length)),
        ),
        "lego.theory.mass": Observed.of(
            each(trained, lambda s: 1 - error(s, 2)),
            each(blind, lambda s: 1 - error(s, 2)),
        ),
        "lego.theory.diagonals": Observed.of(
            each(trained, lambda s: float(diagonal_excess(blocks(s)).min())),
            each(trained, lambda s: float(diagonal_excess(shuffled(s)).abs().max())),
        ),
        "lego.theory.elsewhere": Observed.of(
            each(trained, lambda s: elsewhere(blocks(s))),
            each(trained, lambda s: elsewhere(shuffled(s))),
        ),
    }


def _compared(theory: Theory, simple: Course, other: Course) -> dict[str, Observed]:
    """Both actions after equally many steps of the same algorithm."""
    one, two = (theory.after(course, "attention") for course in (simple, other))
    length = theory.config.theory_length
    early = [early_sharpness(theory, course) for course in (simple, other)]
    return {
        "lego.theory.balance": Observed.of(
            _ratios(each(two, gap), each(one, gap)), each(one, gap)
        ),
        "lego.theory.sharpness": Observed.of(
            _ratios(each(two, sharp), each(one, sharp)), _ratios(early[1], early[0])
        ),
        "lego.theory.matched": Observed.of(
            _ratios(loss_matched(theory, other), loss_matched(theory, simple)),
            _ratios(each(two, sharp), each(one, sharp)),
        ),
        "lego.theory.gap": Observed.of(
            _differences(theory, (one, two), length),
            _differences(theory, (one, two), 10),
        ),
    }


def _rounds(theory: Theory, course: Course) -> dict[str, Observed]:
    """Algorithm 2: what each self-training round does to K."""
    names = ["second-step", *(f"round-{length}" for length in course.rounds)]
    found = {name: each(theory.after(course, name), sharp) for name in names}
    observed = {
        f"lego.theory.{after}": Observed.of(
            _ratios(found[after], found[before]), longer_growth(theory, course, after)
        )
        for before, after in pairwise(names)
    }
    doubled = [
        min(
            theory.all(s, 2 * length)
            for s, length in zip(line, (2, *course.rounds), strict=True)
        )
        for line in zip(*(theory.after(course, name) for name in names), strict=True)
    ]
    first, last = (theory.after(course, name) for name in (names[0], names[-1]))
    length = theory.config.theory_length
    return observed | {
        "lego.theory.doubling": Observed.of(
            doubled, each([uniform(s) for s in first], lambda s: theory.all(s, 4))
        ),
        "lego.theory.self": Observed.of(
            each(last, lambda s: theory.all(s, length)),
            each(first, lambda s: theory.all(s, length)),
        ),
    }


def _phases(theory: Theory, course: Course) -> dict[str, Observed]:
    """Q43's lead over Q44 without step caps: its peak, and what is left of it."""
    lead = diagonal_lead(theory, course)
    peak = lead.amax(1)
    left = lead[:, -1] / peak
    return {"lego.theory.phases": Observed.of(peak.tolist(), left.tolist())}


def _lens(theory: Theory, course: Course) -> dict[str, Observed]:
    """The FFN on one half of what it reads."""
    trained = theory.after(course, "attention")

    def accuracy(specimen: Specimen, edit: PatternEdit | None) -> float:
        sentences = specimen.sentences(READ_LENGTH, READ_COUNT)
        return marks(specimen, sentences, edit).step

    whole = each(trained, lambda s: accuracy(s, None))
    halves = {"predicates": only_predicates, "answers": only_answers}
    return {
        f"lego.theory.lens.{name}": Observed.of(
            each(trained, partial(accuracy, edit=edit)), whole
        )
        for name, edit in halves.items()
    }


def only_predicates(pattern: Tensor, sentences: Sentences) -> Tensor:
    """What attention brings from predicates; the rest is dropped, not moved."""
    kept = pattern.clone()
    kept[..., sentences.length :] = 0
    return kept


def only_answers(pattern: Tensor, sentences: Sentences) -> Tensor:
    """What attention brings from answers; the rest is dropped, not moved."""
    kept = pattern.clone()
    kept[..., : sentences.length] = 0
    return kept


def diagonal_lead(theory: Theory, course: Course) -> Tensor:
    """Mean diagonal of Q43 minus that of Q44 over the gentle training, by seed."""
    history = theory.history(course, "gentle")
    return history["diagonalQ43"] - history["diagonalQ44"]


def path(theory: Theory, course: Course, stage: str = "attention") -> Path:
    """A stage as two numbers: mean diagonals of Q above the other entries."""
    history = theory.history(course, stage)
    alpha, beta = (
        history[f"diagonal{block}"] - history[f"rest{block}"]
        for block in ("Q43", "Q44")
    )
    return {"alpha": alpha, "beta": beta, "loss": history["loss"]}


def early_sharpness(theory: Theory, course: Course) -> list[float]:
    """K of the mean entries after the first steps."""
    step = theory.history(course, "attention")["step"]
    at = int((step >= EARLY).int().argmax())
    return list(sharpness(path(theory, course))[:, at].tolist())


def longer_growth(theory: Theory, course: Course, stage: str) -> list[float]:
    """Growth of K in as many steps at L = 2 as each seed took in a round."""
    names = [s.name for s in course.stages]
    most = course.stages[names.index(stage)].steps
    stopped = theory.run.record(course.arm.name)["stopped_at"]
    taken = [row[names.index(stage)] for row in stopped]
    step = theory.history(course, "longer")["step"]
    found = []
    for seed, steps in zip(
        sharpness(path(theory, course, "longer")), taken, strict=True
    ):
        enough = step >= (most if steps < 0 else steps)
        enough[-1] = True
        found.append(float(seed[enough.int().argmax()] / seed[0]))
    return found


def loss_matched(theory: Theory, course: Course) -> list[float]:
    """K of the mean entries once the loss is near the action's own floor."""
    taken = path(theory, course)
    rule = [RULE * loss_floor(course.words.size)] * len(taken["loss"])
    return list(at_loss(taken, rule, window=3).tolist())


def blocks(specimen: Specimen) -> Tensor:
    """Q43 and Q44."""
    tables = specimen.model.tables
    return torch.stack([tables.Q43[0], tables.Q44[0]])


def shuffled(specimen: Specimen) -> Tensor:
    """The blocks with their columns shuffled: no entry belongs to a variable."""
    source = generator(specimen.seed, "lego", "shuffled")
    order = torch.randperm(specimen.n_variables, generator=source)
    return blocks(specimen)[..., order]


def elsewhere(block: Tensor) -> float:
    """|mean entry off the diagonal| / mean diagonal entry, the larger block's."""
    mean = block.diagonal(dim1=-2, dim2=-1).mean(-1)
    return float(((mean - diagonal_excess(block)) / mean).abs().max())


def _differences(
    theory: Theory, models: tuple[list[Specimen], list[Specimen]], length: int
) -> list[float]:
    one, two = (each(m, lambda s: theory.all(s, length)) for m in models)
    return [a - b for a, b in zip(one, two, strict=True)]


def _ratios(above: list[float], below: list[float]) -> list[float]:
    return [a / b for a, b in zip(above, below, strict=True)]

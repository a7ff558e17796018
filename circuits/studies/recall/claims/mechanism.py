"""Headline F: the mechanism, by edits of the learned W^KQ of Figure 2(a)'s model.

Its first rows score the key positions s1, a1, s2, a2, s3, EoS, r. An edit that finds
nothing to change has no effect, which refutes the claim.
"""

from collections.abc import Iterator

from circuits.claims import UNTRAINED, Claim
from circuits.conditions import Condition, Each
from trained.recall.config import Config

from .constructed import too_hot

UNCHANGED = "in [-0.03, 0.03]"

PILOT = "the rubric's limits were chosen with one seed (101) in view, before Step 8"


def claims(config: Config) -> Iterator[Claim]:
    """Sections 4.1 and 4.2."""
    not_tested = "" if config.n_examples == 2 else "written for n_examples=2"
    not_tested = not_tested or too_hot(config.temperature)
    yield Claim(
        "recall.cause.cross",
        "The sign of (v1-v3)(v2-v4) decides right against confusing: with the learned"
        " rows a1 and a2 of W_KQ swapped, confusing prompts decode the confusing"
        " relation.",
        "Section 4.1",
        "causal",
        weight=4,
        paper=1.0,
        conditions=(_decoded("answers swapped", ">= 0.95"),),
        nulls=(UNTRAINED,),
        controls=(
            _decoded("pairs swapped", "<= 0.05"),
            _changed("pairs swapped"),
            _decoded("two words swapped", "<= 0.05"),
            _changed("two words swapped"),
        ),
        not_tested=not_tested,
        revised=PILOT,
    )
    yield Claim(
        "recall.cause.difference",
        "The learned across-pair difference, and not the within-pair one, separates"
        " them: with rows s1, s2 and rows a1, a2 of W_KQ replaced by their means, only"
        " the saddle's accuracy is left.",
        "Sections 4.1, 4.2",
        "causal",
        weight=3,
        conditions=(
            Each(
                "equal across pairs: accuracy above the saddle's",
                UNCHANGED,
                lambda lab: lab.above_saddle("equal across pairs"),
            ),
            _decoded("equal across pairs", "in [0.4, 0.6]"),
        ),
        preconditions=(
            Each(
                "intact: accuracy above the saddle's",
                "> 0.03",
                lambda lab: lab.above_saddle(),
            ),
        ),
        nulls=(UNTRAINED,),
        controls=(_changed("equal inside pairs"), _changed("random direction")),
        not_tested=not_tested,
        revised=PILOT,
    )


def _decoded(edit: str, expected: str) -> Condition:
    return Each(
        f"{edit}: confusing relation decoded",
        expected,
        lambda lab: lab.decoded_confusing(edit),
    )


def _changed(edit: str) -> Condition:
    return Each(
        f"{edit}: change of accuracy",
        UNCHANGED,
        lambda lab: lab.accuracy_change(edit),
    )

"""Models trained end to end: observations for the ReLU block and GPT-2."""

from circuits.claims import Observed
from trained.analogy import gpt

from .claims_free import PAPER_RELU
from .readings import (
    Reader,
    answered,
    c_only,
    final_alignment,
    known,
    least_gain,
    success,
    training_loss,
    value_alignment,
)

Observations = dict[str, Observed]


def observe_relu(reader: Reader) -> Observations:
    """Everything that `claims_free.relu` asks for."""
    names = [name for name in PAPER_RELU if name in reader.config.curricula]
    seen: Observations = {}
    for name in names:
        arm = f"relu-main-{name}"
        control = _untrained(reader, arm)
        if name == "AS_E":
            seen["analogy.relu.AS_E.c-only"] = Observed.of(
                reader.of(arm, c_only), reader.of(arm, lambda t: c_only(t.untrained()))
            )
            control = reader.of(arm, known)
        seen[f"analogy.relu.{name}.success"] = Observed.of(
            reader.of(arm, success), control
        )
        seen[f"analogy.relu.{name}.alignment"] = Observed.of(
            reader.of(arm, lambda t: value_alignment(t).raw),
            reader.of(arm, lambda t: abs(value_alignment(t).shifted)),
        )
        seen[f"analogy.relu.{name}.loss"] = _loss(reader, arm)
    if len(names) == len(PAPER_RELU):
        seen["analogy.relu.ordering"] = _ordering(seen)
    for scale, name in (("main", "AS_T"), ("small", "AS_T"), ("small", "AS_E")):
        if name in reader.config.curricula:
            arm = f"relu-{scale}-{name}"
            seen[f"analogy.relu.{scale}.{name}"] = Observed.of(
                reader.of(arm, success), _untrained(reader, arm)
            )
    return seen


def _ordering(seen: Observations) -> Observed:
    cosines = [seen[f"analogy.relu.{name}.alignment"] for name in PAPER_RELU]
    joint, first, last = (observed.values for observed in cosines)
    gaps = [min(a, b) - c for a, b, c in zip(joint, first, last, strict=True)]
    null = [max(column) for column in zip(*(o.control for o in cosines), strict=True)]
    return Observed.of(gaps, null)


def observe_gpt(reader: Reader) -> Observations:
    """Everything that `claims_gpt.gpt` asks for."""
    names = reader.config.curricula
    seen: Observations = {}
    for name in ("joint", "SA"):
        if name in names:
            main = gpt.joint_name(reader.config.multiplicity)
            arm = main if name == "joint" else "gpt-SA"
            prefix = f"analogy.gpt.{name}"
            seen |= _fit(reader, arm, prefix)
            seen[f"{prefix}.alignment-centred"] = Observed.of(
                reader.of(arm, lambda t: final_alignment(t).centred),
                reader.of(arm, lambda t: final_alignment(t).shifted_centred),
            )
    for name in ("AS_T", "AS_E"):
        if name in names:
            seen |= _late_similarity(reader, name)
    seen |= _two_hop(reader)
    ks = reader.config.gpt_ks
    if "joint" in names and len(ks) > 1:
        for k in ks:
            seen |= _fit(reader, gpt.joint_name(k), f"analogy.gpt.k{k}")
        seen["analogy.gpt.k.increasing"] = _increasing(seen, ks)
    return seen


def _fit(reader: Reader, arm: str, prefix: str) -> Observations:
    return {
        f"{prefix}.success": Observed.of(
            reader.of(arm, success), _untrained(reader, arm)
        ),
        f"{prefix}.alignment": _final_alignment(reader, arm),
        f"{prefix}.loss": _loss(reader, arm),
    }


def _late_similarity(reader: Reader, name: str) -> Observations:
    arm, replay, prefix = f"gpt-{name}", f"gpt-{name}-replay", f"analogy.gpt.{name}"
    before = gpt.MAX_STEPS
    return {
        f"{prefix}.success": Observed.of(
            reader.of(arm, success), reader.of(arm, answered(-1))
        ),
        f"{prefix}.alignment": _final_alignment(reader, arm),
        f"{prefix}.c-only": Observed.of(
            reader.of(arm, c_only), reader.of(arm, lambda t: c_only(t.untrained()))
        ),
        f"{prefix}.retention": Observed.of(
            reader.of(arm, known), reader.of(arm, known, step=before)
        ),
        f"{prefix}.replay": Observed.of(
            reader.of(replay, success), reader.of(replay, success, step=before)
        ),
        f"{prefix}.loss": _loss(reader, arm),
    }


def _two_hop(reader: Reader) -> Observations:
    yes, no = "gpt-bridge", "gpt-no_bridge"
    prefix = "analogy.gpt"
    without = reader.of(no, success)
    aligned = _final_alignment(reader, yes)
    apart = _final_alignment(reader, no).values
    gap = [a - b for a, b in zip(aligned.values, apart, strict=True)]
    return {
        f"{prefix}.bridge.success": Observed.of(reader.of(yes, success), without),
        f"{prefix}.no-bridge.success": Observed.of(
            without, reader.of(no, answered(-1))
        ),
        f"{prefix}.no-bridge.c-only": Observed.of(
            reader.of(no, c_only), reader.of(yes, c_only)
        ),
        f"{prefix}.bridge.alignment-gap": Observed.of(gap, aligned.control),
        f"{prefix}.bridge.loss": _loss(reader, yes),
        f"{prefix}.no-bridge.loss": _loss(reader, no),
    }


def _increasing(seen: Observations, ks: tuple[int, ...]) -> Observed:
    rows = [seen[f"analogy.gpt.k{k}.alignment"] for k in ks]
    gains = [
        least_gain(column) for column in zip(*(r.values for r in rows), strict=True)
    ]
    null = [max(column) for column in zip(*(r.control for r in rows), strict=True)]
    return Observed.of(gains, null)


def _final_alignment(reader: Reader, arm: str) -> Observed:
    return Observed.of(
        reader.of(arm, lambda t: final_alignment(t).raw),
        reader.of(arm, lambda t: final_alignment(t).shifted),
    )


def _untrained(reader: Reader, arm: str) -> list[float]:
    return reader.of(arm, lambda t: success(t.untrained()))


def _loss(reader: Reader, arm: str) -> Observed:
    return Observed.of(
        reader.of(arm, training_loss),
        reader.of(arm, lambda t: training_loss(t.untrained())),
    )

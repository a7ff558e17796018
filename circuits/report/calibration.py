"""Could a claim have failed? Every claim on labs whose mechanism is known.

A claim that a null confirms measures nothing; a mechanism that was planted by hand must
be confirmed; an impostor, which behaves alike by another route, must be found out by a
causal claim.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from rich.console import Console
from rich.table import Table

from circuits.claims import Verdict, judge
from circuits.confirm import confirm_lab
from circuits.lab import Lab
from circuits.progress import each
from circuits.study import Study, Substitute
from trained.threads import threads

NULLS = (
    Substitute("untrained", "null", lambda lab: lab.untrained()),
    Substitute("shuffled", "null", lambda lab: lab.shuffled()),
)
"""The standard nulls, of every study."""

KINDS = ("behaviour", "signal", "causal", "theory")


@dataclass(frozen=True)
class Calibration:
    """The verdicts of a study's claims on its real lab and on every substitute."""

    study: str
    real: tuple[Verdict, ...]
    judged: tuple[tuple[Substitute, tuple[Verdict, ...]], ...]

    @property
    def fooled(self) -> list[tuple[str, str]]:
        """(claim, null) where a null confirms what the paper asserts of training."""
        return [
            (verdict.claim.id, substitute.name)
            for substitute, verdicts in self._with("null")
            for verdict in verdicts
            if verdict.passed and _counts(verdict)
        ]

    @property
    def held_by_null(self) -> list[tuple[str, str]]:
        """(claim, null) where the conditions hold and only the claim's nulls object."""
        return [
            (verdict.claim.id, substitute.name)
            for substitute, verdicts in self._with("null")
            for verdict in verdicts
            if _counts(verdict)
            and not verdict.passed
            and verdict.conditions
            and all(c.state == "holds" for c in verdict.conditions)
        ]

    @property
    def missed(self) -> list[tuple[str, str]]:
        """(claim, planted lab) where a planted mechanism is not confirmed."""
        return [
            (verdict.claim.id, substitute.name)
            for substitute, verdicts in self._with("planted")
            for verdict in verdicts
            if _wanted(substitute, verdict) and not verdict.passed
        ]

    @property
    def unmasked(self) -> dict[str, list[str]]:
        """Impostor -> the causal claims that refute it."""
        return {
            substitute.name: [
                verdict.claim.id
                for verdict in verdicts
                if verdict.claim.kind == "causal" and verdict.word == "refuted"
            ]
            for substitute, verdicts in self._with("impostor")
        }

    @property
    def as_expected(self) -> bool:
        """Nothing fooled, nothing planted missed, every impostor found out."""
        return not self.fooled and not self.missed and all(self.unmasked.values())

    def rates(self, kind: str) -> dict[str, float | None]:
        """Sensitivity and specificity of a kind of claims.

        Sensitivity: of what was planted, the share confirmed. Specificity: of the
        claims that the real lab tests, the share that a null does not confirm;
        mathematics does not change with training, so `theory` has none.
        """
        planted = [
            verdict.passed
            for substitute, verdicts in self._with("planted")
            for verdict in verdicts
            if verdict.claim.kind == kind and _wanted(substitute, verdict)
        ]
        tested = {v.claim.id for v in self.real if v.word != "not tested"}
        nulls = [
            not verdict.passed
            for _, verdicts in self._with("null")
            for verdict in verdicts
            if verdict.claim.kind == kind != "theory" and verdict.claim.id in tested
        ]
        return {"sensitivity": _share(planted), "specificity": _share(nulls)}

    def as_dict(self) -> dict[str, Any]:
        """As JSON."""
        untested = [v.claim.id for v in self.real if v.word == "not tested"]
        return {
            "study": self.study,
            "as_expected": self.as_expected,
            "rates": {kind: self.rates(kind) for kind in KINDS},
            "fooled": self.fooled,
            "held_by_null": self.held_by_null,
            "missed": self.missed,
            "unmasked": self.unmasked,
            "not_tested": untested,
            "verdicts": {
                substitute.name: {v.claim.id: v.word for v in verdicts}
                for substitute, verdicts in self.judged
            },
        }

    def _with(self, role: str) -> list[tuple[Substitute, tuple[Verdict, ...]]]:
        return [(s, verdicts) for s, verdicts in self.judged if s.role == role]


def calibrate(lab: Lab) -> Calibration:
    """Judge every claim of a study on its lab and on every substitute for it."""
    study: Study = lab.study
    claims, title = study.claims_at(lab.config), f"{study.slug}: judging on"
    with threads(1):
        judged = tuple(
            (substitute, tuple(judge(claim, absent) for claim in claims))
            for substitute in each(title, (*NULLS, *study.substitutes), _name)
            for absent in [substitute.make(lab)]
        )
    return Calibration(study.slug, confirm_lab(lab).verdicts, judged)


def _name(substitute: Substitute) -> str:
    return substitute.name


def print_calibrations(page: Console, found: Sequence[Calibration]) -> None:
    """The rates by study and kind, then what was fooled, missed or found out."""
    table = Table()
    for heading in ("study", "kind", "sensitivity", "specificity"):
        table.add_column(heading)
    for calibration in found:
        for kind in KINDS:
            rates = calibration.rates(kind).values()
            shown = ["-" if rate is None else f"{rate:.0%}" for rate in rates]
            table.add_row(calibration.study, kind, *shown)
    page.print(table)
    for calibration in found:
        for line in _lines(calibration):
            page.print(f"{calibration.study}: {line}", markup=False, highlight=False)


def _lines(calibration: Calibration) -> list[str]:
    lines = [f"FOOLED: {c} is confirmed on {n}" for c, n in calibration.fooled]
    lines += [f"MISSED: {c} is not confirmed on {n}" for c, n in calibration.missed]
    lines += [f"only its null saves {c} on {n}" for c, n in calibration.held_by_null]
    for name, claims in calibration.unmasked.items():
        lines.append(
            f"impostor {name}: found out by {', '.join(claims)}"
            if claims
            else f"NOT FOUND OUT: impostor {name}"
        )
    untested = sum(v.word == "not tested" for v in calibration.real)
    lines.append(f"{untested} of {len(calibration.real)} claims are not tested here")
    return lines


def _counts(verdict: Verdict) -> bool:
    """Whether a claim is the paper's and speaks of training."""
    return verdict.claim.origin == "paper" and verdict.claim.kind != "theory"


def _wanted(substitute: Substitute, verdict: Verdict) -> bool:
    return any(fnmatchcase(verdict.claim.id, p) for p in substitute.confirms)


def _share(found: list[bool]) -> float | None:
    return sum(found) / len(found) if found else None

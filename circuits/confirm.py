"""Judge a study's claims, on a trained run or on a pretrained language model."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from trained.config import Preset, as_dict, changes
from trained.courses import Course, drive
from trained.errors import BadInput, unknown
from trained.store import Run, is_shipped, open_run, write_json
from trained.workers import Executor

from .claims import Verdict, chosen, digest
from .judging import OnHeadline, judging, one_by_one
from .lab import Lab, LanguageLab
from .language import ASKED, VERDICTS, is_language, keep_verdicts, open_language
from .results import stored
from .study import Study, find
from .training import code_hash, environment

SCHEMA = 2
"""Of the objects that `as_dict` gives."""


@dataclass(frozen=True)
class Confirmation:
    """The verdicts of a study on a run or on a language model."""

    study: str
    verdicts: tuple[Verdict, ...]
    preset: str
    config: dict[str, Any]
    seeds: tuple[int, ...]
    device: str
    seconds: float
    model: str | None = None
    """The language model, where it is not a run of small ones."""
    data: dict[str, str] | None = None
    """The rows that it was judged on: the name of their file and their hash."""
    run: Run | None = None
    environment: dict[str, str] = field(default_factory=dict)
    """The versions that the models were trained with."""
    made_by: dict[str, Any] = field(default_factory=dict)
    """What judged: the hashes of the claims and the code, and the versions now."""
    command: str = ""
    """What repeats it."""
    arms: dict[str, Any] = field(default_factory=dict)
    """The seeds and seconds of each arm that was trained."""

    @property
    def passed(self) -> bool:
        """Whether every paper leaf that was tested is confirmed, and one was."""
        paper = [v for v in self.verdicts if v.claim.origin == "paper"]
        tested = [v for v in paper if v.word != "not tested"]
        # A study whose paper asserts nothing here has nothing to miss.
        return all(v.passed for v in tested) and (bool(tested) or not paper)

    @property
    def stored(self) -> dict[str, dict[str, Any]]:
        """What a stored run at the paper's size said: shown beside, never counted."""
        return stored(self.study, language=self.model is not None)

    @property
    def holm(self) -> dict[str, float]:
        """Each paper leaf's p-value, adjusted for the leaves of its headline."""
        return holm_by_headline(self.verdicts)

    def __getitem__(self, claim: str) -> Verdict:
        for verdict in self.verdicts:
            if verdict.claim.id == claim:
                return verdict
        raise unknown("claim", claim, [v.claim.id for v in self.verdicts])

    def as_dict(self) -> dict[str, Any]:
        """The object that `--json` writes."""
        adjusted, long_runs = self.holm, self.stored
        return {
            "schema": SCHEMA,
            "study": self.study,
            "preset": self.preset,
            "model": self.model,
            **({} if self.data is None else {"data": self.data}),
            "config": self.config,
            "seeds": list(self.seeds),
            "device": self.device,
            "seconds": round(self.seconds, 1),
            "command": self.command,
            "arms": self.arms,
            "environment": self.environment,
            "score": {o: score(self.verdicts, o) for o in ("paper", "ours")},
            "verdicts": [
                {
                    **verdict.as_dict(),
                    "holm": adjusted.get(verdict.claim.id),
                    "stored": long_runs.get(verdict.claim.id),
                }
                for verdict in self.verdicts
            ],
            **self.made_by,
        }

    def _repr_html_(self) -> str:
        from .report.tables import verdict_html

        return verdict_html(self.as_dict())


def score(verdicts: Sequence[Verdict], origin: str) -> dict[str, Any]:
    """How many claims of an origin came out how, and the weights confirmed."""
    own = [v for v in verdicts if v.claim.origin == origin]
    words = ("confirmed", "refuted", "inconclusive", "not tested")
    counts = {w.replace(" ", "_"): sum(v.word == w for v in own) for w in words}
    total = sum(v.claim.weight for v in own)
    confirmed = sum(v.claim.weight for v in own if v.passed)
    tested = sum(v.claim.weight for v in own if v.word != "not tested")
    return {
        **counts,
        "weighted": round(confirmed / total, 4) if total else None,
        "tested": round(tested / total, 4) if total else None,
    }


def holm_by_headline(verdicts: Sequence[Verdict]) -> dict[str, float]:
    """Claim id -> p-value adjusted over the paper leaves of its headline that have one.

    An extra column: verdicts do not depend on it.
    """
    from probes.statistics import holm

    families: dict[str, dict[str, float]] = {}
    for verdict in verdicts:
        p = verdict.p_value
        if verdict.claim.origin == "paper" and p is not None:
            families.setdefault(verdict.claim.headline, {})[verdict.claim.id] = p
    return {
        name: value
        for family in families.values()
        for name, value in zip(family, holm(list(family.values())), strict=True)
    }


Told = Callable[[Confirmation], None]
"""Is given the part of the verdicts that has just become known: a headline."""


def nobody(_part: Confirmation) -> None:
    """Is not interested in parts."""


def _telling(told: Told, frame: Confirmation) -> OnHeadline:
    """What puts the verdicts of a headline into the frame of all."""
    return lambda verdicts: told(replace(frame, verdicts=tuple(verdicts)))


def open_lab(run: Run, *, partial: bool = False) -> Lab:
    """A trained run, opened for measuring.

    Args:
        run: `BadInput` if one of its files is not as it was written.
        partial: whether arms may be missing; otherwise that is `BadInput` too.
    """
    lab: Lab = find(run.study).lab(run)
    unfinished = [name for name in lab.arms if not run.is_done(name)]
    if unfinished and not partial:
        raise BadInput(f"{run.path} is not trained yet: {', '.join(unfinished)}")
    for name, arm in lab.arms.items():
        if name not in unfinished:
            run.verify(name, arm.seeds(run.seeds))
    return lab


def confirm_run(
    run: Run,
    *,
    only: str = "*",
    started: float | None = None,
    partial: bool = False,
    executor: Executor | None = None,
    told: Told = nobody,
) -> Confirmation:
    """Measure a trained run, judge its study's claims and store the verdicts.

    Args:
        run: a run whose arms are all trained.
        only: which claims, as a pattern of ids; a part is judged but not stored.
        started: `time.perf_counter()` when the work began, if it began before this
            call; the time since then is reported.
        partial: judge a run of which arms are missing; it is not stored either.
        executor: what judges headlines side by side; None: one after the other.
        told: is given every headline as soon as it is judged.
    """
    course = confirming(
        run, executor, only=only, started=started, partial=partial, told=told
    )
    (done,) = drive(executor, [course])
    return done


def confirming(
    run: Run,
    executor: Executor | None,
    *,
    only: str = "*",
    started: float | None = None,
    partial: bool = False,
    told: Told = nobody,
) -> Course[Confirmation]:
    """The course of `confirm_run`."""
    lab = open_lab(run, partial=partial)
    done = yield from _confirming(lab, executor, only, started, told)
    if only == "*" and not partial and not is_shipped(run):
        write_json(run.path / VERDICTS, done.as_dict())
    return done


def confirm_lab(lab: Lab, only: str = "*") -> Confirmation:
    """Judge a study's claims on an opened run."""
    (done,) = drive(None, [_confirming(lab, None, only)])
    return done


def _confirming(
    lab: Lab,
    executor: Executor | None,
    only: str,
    started: float | None = None,
    told: Told = nobody,
) -> Course[Confirmation]:
    started = started or time.perf_counter()
    claims = chosen(lab.study.claims_at(lab.config), only)
    frame = _frame(lab)
    verdicts = yield from judging(lab, claims, executor, _telling(told, frame))
    return replace(frame, verdicts=verdicts, seconds=time.perf_counter() - started)


def _frame(lab: Lab) -> Confirmation:
    """All that stands around the verdicts on a run."""
    manifest = lab.run.manifest
    return Confirmation(
        study=lab.study.slug,
        verdicts=(),
        preset=manifest["preset"],
        config=manifest["config"],
        seeds=lab.seeds,
        device=manifest["device"],
        seconds=0.0,
        run=lab.run,
        environment=manifest["environment"],
        command=_command(
            lab.run.study, manifest["preset"], lab.study.presets, lab.config, lab.seeds
        ),
        arms={name: _trained(lab.run, name) for name in lab.arms},
        made_by=_maker(
            lab.study,
            digest(lab.study.claims_at(lab.config)),
            manifest.get("claims_sha256"),
        ),
    )


def confirm_language(
    study: Study,
    lab: LanguageLab,
    *,
    preset: str = "quick",
    only: str = "*",
    told: Told = nobody,
) -> Confirmation:
    """Judge a study's claims about language models on one of them.

    What `lab` keeps can be opened again by `open_language`, also if this is killed.
    """
    started, folder = time.perf_counter(), lab.keeper.path
    claims = chosen(study.language_claims(lab.settings), only)
    if folder is not None:
        write_json(folder / ASKED, {"preset": preset, "seeds": list(lab.seeds)})
    frame, title = _language_frame(study, lab, preset), f"{study.slug}: judging"
    verdicts = one_by_one(title, lab, claims, _telling(told, frame))
    done = replace(frame, verdicts=verdicts, seconds=time.perf_counter() - started)
    if folder is not None:
        keep_verdicts(folder, done.as_dict(), whole=only == "*")
    return done


def _language_frame(study: Study, lab: LanguageLab, preset: str) -> Confirmation:
    """All that stands around the verdicts on a language model."""
    folder, data = lab.keeper.path, lab.data
    subject = f"{study.slug} --model {lab.model.name}"
    if data is not None and data.path is not None:
        columns = (f" --columns {column}" for column in data.columns)
        subject += f" --data {data.path}{''.join(columns)}"
    presets = study.needs_language().presets
    return Confirmation(
        study=study.slug,
        verdicts=(),
        preset=preset,
        config=as_dict(lab.settings),
        data=None if data is None else {"name": data.name, "sha256": data.sha256},
        seeds=lab.seeds,
        device=str(lab.model.device),
        seconds=0.0,
        model=lab.model.name,
        run=None if folder is None else Run(folder),
        environment=environment(),
        command=_command(subject, preset, presets, lab.settings, lab.seeds),
        made_by=_maker(study, digest(study.language_claims(lab.settings)), None),
    )


def opened(target: str) -> Lab | LanguageLab:
    """What a path or the name of a shipped run stands for, opened to be drawn."""
    path = Path(target)
    return open_language(path) if is_language(path) else open_lab(open_run(target))


def _command(
    subject: str,
    preset: str,
    presets: Mapping[str, Preset[Any]],
    config: Any,
    seeds: Sequence[int],
) -> str:
    """What asks for the same again."""
    words = ["reasonscope confirm", subject, f"--preset {preset}"]
    words += [f"--seeds {','.join(map(str, seeds))},"]
    known = presets[preset].config if preset in presets else config
    words += [f"--set {change}" for change in changes(known, as_dict(config))]
    return " ".join(words)


def _trained(run: Run, arm: str) -> dict[str, Any] | None:
    """What an arm was trained with and how long that took; None if it was not."""
    if not run.is_done(arm):
        return None
    record = run.record(arm)
    return {"seeds": record["seeds"], "seconds": record["seconds"]}


def _maker(study: Study, claims: str, before: str | None) -> dict[str, Any]:
    """What made a verdict, and whether the claims are those of before training."""
    return {
        "claims_sha256": claims,
        "code_sha256": code_hash(study),
        "claims_changed_since_training": before is not None and before != claims,
        "judged_with": environment(),
    }

"""README's scores and refutations from `results/`: `python -m scripts.scores`."""

from pathlib import Path
from typing import Any

from circuits.results import RESULTS
from circuits.study import STUDIES
from trained.store import read_json

README = Path(__file__).resolve().parent.parent / "README.md"
WORDS = ("confirmed", "refuted", "inconclusive", "not_tested")


def table(folder: Path = RESULTS) -> str:
    """The scores of every stored run, a line each; a study without one is not there."""
    head = "| study | run | confirmed | refuted | inconclusive | not tested | weight |"
    lines = [f"{head} seeds | minutes |", "|---" * 9 + "|"]
    for study in STUDIES:
        for ending, run in (("-quick", "quick"), ("", "paper size"), ("-llm", "LLM")):
            file = folder / f"{study}{ending}.json"
            if file.is_file():
                lines.append(_row(study, run, read_json(file)))
    return "\n".join(lines) + "\n"


def refuted(folder: Path = RESULTS) -> list[str]:
    """What the longest run of each study and its language model's refute, by value."""
    lines = []
    for study in STUDIES:
        files = [folder / f"{study}{ending}.json" for ending in ("", "-quick", "-llm")]
        trained = [file for file in files[:2] if file.is_file()]
        language = [file for file in files[2:] if file.is_file()]
        lines += [
            f"- `{v['claim']}`: {v['reason']}"
            for file in (*trained[:1], *language)
            for v in read_json(file)["verdicts"]
            if v["verdict"] == "refuted" and v["origin"] == "paper"
        ]
    return lines


def _row(study: str, run: str, found: dict[str, Any]) -> str:
    score = found["score"]["paper"]
    minutes = (
        max(
            found["seconds"],
            sum(arm["seconds"] for arm in found.get("arms", {}).values() if arm),
        )
        / 60
    )
    cells = [f"`{study}`", run, *(str(score[word]) for word in WORDS)]
    cells += [f"{score['weighted']:.0%}", str(len(found["seeds"])), f"{minutes:.0f}"]
    return f"| {' | '.join(cells)} |"


def main() -> int:
    """Put the table and what is refuted between their marks in README."""
    README.write_text(made(README.read_text()))
    return 0


def made(text: str, folder: Path = RESULTS) -> str:
    """A text with both parts written anew."""
    parts = {"scores": table(folder), "refuted": "\n".join(refuted(folder)) + "\n"}
    for name, part in parts.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->\n"
        before, rest = text.split(begin)
        text = f"{before}{begin}{part}{end}{rest.split(end)[1]}"
    return text


if __name__ == "__main__":
    raise SystemExit(main())

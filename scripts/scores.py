"""Make README's table of scores from `results/`: `python -m scripts.scores`."""

from pathlib import Path
from typing import Any

from circuits.results import RESULTS
from circuits.study import STUDIES
from trained.store import read_json

README = Path(__file__).resolve().parent.parent / "README.md"
BEGIN, END = "<!-- scores -->\n", "<!-- /scores -->\n"
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
    """What a stored run refutes, with the value and the expectation."""
    lines = []
    for study in STUDIES:
        for ending in ("", "-llm"):
            file = folder / f"{study}{ending}.json"
            found = read_json(file)["verdicts"] if file.is_file() else []
            lines += [
                f"- `{v['claim']}`: {v['statement']} ({v['reason']})"
                for v in found
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
    """Put the table between the marks in README."""
    text = README.read_text()
    before, rest = text.split(BEGIN)
    README.write_text(f"{before}{BEGIN}{table()}{END}{rest.split(END)[1]}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

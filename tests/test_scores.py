"""README's scores and refutations follow from the stored verdicts."""

from pathlib import Path

from scripts.scores import README, made, refuted, table
from trained.store import write_json


def test_readme_shows_what_is_stored() -> None:
    assert made(README.read_text()) == README.read_text()


def test_a_row_counts_the_words_and_a_study_without_a_run_has_none(
    tmp_path: Path,
) -> None:
    score = {"confirmed": 2, "refuted": 1, "inconclusive": 0, "not_tested": 3}
    verdict = {
        "claim": "lego.x",
        "origin": "paper",
        "statement": "S.",
        "reason": "R",
        "verdict": "refuted",
    }
    stored = {
        "score": {"paper": {**score, "weighted": 0.25}},
        "seconds": 60.0,
        "arms": {"a": {"seconds": 150.0}, "b": None},
        "seeds": [301, 302],
        "verdicts": [verdict],
    }
    write_json(tmp_path / "lego.json", stored)
    lines = table(tmp_path).splitlines()
    assert lines[2:] == ["| `lego` | paper size | 2 | 1 | 0 | 3 | 25% | 2 | 2 |"]
    assert refuted(tmp_path) == ["- `lego.x`: R"]
    # A language model's verdicts stand beside; quick's only where no longer run is.
    write_json(tmp_path / "lego-llm.json", {**stored, "verdicts": [verdict] * 2})
    write_json(tmp_path / "lego-quick.json", stored)
    assert refuted(tmp_path) == ["- `lego.x`: R"] * 3

"""What the tests of the page put on it."""

from typing import Any


def verdict(claim: str, word: str = "confirmed", **changes: Any) -> dict[str, Any]:
    """A verdict as `Verdict.as_dict` gives it."""
    condition = {
        "name": "accuracy",
        "rule": "mean",
        "expected": ">= 0.9",
        "values": [0.94, 0.96, None],
        "ci95": [0.93, 0.97],
        "state": "holds",
    }
    null = {
        "name": "untrained",
        "expected": "not >= 0.9",
        "values": [0.1, 0.2],
        "mean": 0.15,
        "meets": False,
        "reason": "",
    }
    return {
        "claim": claim,
        "headline": "Learning",
        "statement": f"What {claim} says.",
        "source": "Figure 1",
        "origin": "paper",
        "weight": 3,
        "kind": "behaviour",
        "paper": 1.0,
        "conditions": [{**condition, "values": [0.94, 0.96]}, condition],
        "preconditions": [],
        "controls": [{**condition, "name": "random edit"}],
        "nulls": [null, {**null, "name": "shuffled", "values": [], "reason": "no arm"}],
        "revised": None,
        "verdict": word,
        "reason": "" if word == "confirmed" else f"{claim} is {word}",
        "seconds": 0.1,
        "holm": 0.01,
        "stored": None,
        **changes,
    }


def verdict_file(**changes: Any) -> dict[str, Any]:
    """A verdict file as `Confirmation.as_dict` gives it."""
    return {
        "schema": 2,
        "study": "toy",
        "preset": "quick",
        "model": None,
        "config": {"width": 4, "deep": {"rate": 0.1}},
        "seeds": [301, 302],
        "device": "cpu",
        "seconds": 2.5,
        "command": "",
        "arms": {"net": {"seeds": [301, 302], "seconds": 1.0}, "twin": None},
        "environment": {"torch": "2"},
        "verdicts": [
            verdict("toy.success"),
            verdict("toy.depth", "inconclusive", weight=2),
            verdict("toy.edit", "refuted", headline="Editing", kind="causal"),
            verdict("toy.own", "not tested", origin="ours", weight=1),
        ],
        "claims_sha256": "c" * 64,
        "code_sha256": "d" * 64,
        "claims_changed_since_training": True,
        "judged_with": {"torch": "2"},
        **changes,
    }


_NAME = "</script><img src=x onerror=alert(1)>\"'{{ 7 * 7 }}"

HOSTILE: dict[str, Any] = {
    "study": _NAME,
    "model": _NAME,
    "command": _NAME,
    "config": {_NAME: _NAME},
    "environment": {_NAME: _NAME},
    "arms": {_NAME: None},
    "verdicts": [
        verdict(
            _NAME,
            headline=_NAME,
            statement=_NAME,
            source=_NAME,
            reason=_NAME,
            revised=_NAME,
            kind="causal",
        )
    ],
}
"""A verdict file whose every text would like to be more than text."""


def inspection(**changes: Any) -> dict[str, Any]:
    """One prompt as `Inspection.as_dict` gives it."""
    return {
        "schema": 1,
        "model": "smollm2",
        "prompt": "The capital",
        "tokens": ["The", "·capital"],
        "answer": " Paris",
        "answer_source": "asked for",
        "top_tokens": [{"token": "·Paris", "probability": 0.9}],
        "layers": ["embedding", "0"],
        "answer_rank": [20.0, 1.0],
        "answer_logprob": [-9.0, -0.1],
        "lens_top_tokens": [["The", "·capital"], ["·the", "·Paris"]],
        "patching": {
            "axes": ["layer", "position"],
            "values": [[0.1, -0.001], [-0.2, 0.8]],
        },
        **changes,
    }

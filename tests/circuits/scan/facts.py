"""Facts of several lengths as rows of a dataset."""

from typing import Any

FACTS = {
    "France": "Paris",
    "Italy": "Rome",
    "South Korea": "Seoul",
    "Japan": "Tokyo",
    "New Zealand": "Wellington",
    "Peru": "Lima",
}
EXTRA = "people say that the big old city"


def row(number: int) -> dict[str, Any]:
    """A fact: answers of one and of several tokens, some roles absent, some twins."""
    names = list(FACTS)
    own = names[number]
    alike = [n for n in names if n != own and len(n.split()) == len(own.split())]
    before = "people say that " if number % 3 == 1 else ""
    answers: list[str] = [f" {FACTS[own]}", " the big old city"]
    found: dict[str, Any] = {
        "prompt": f"{before}The capital of {own} is",
        "answer": answers if number % 2 else answers[0],
        "roles": {"country": own, "relation": "capital"},
        "group": "one" if number < 4 else None,
    }
    if number % 3 == 2:
        found["answer"] = " big old city"
        found["roles"] = {"country": own}
    if number != 5:
        found["corrupt"] = f"{before}The capital of {alike[0]} is"
        found["corrupt_answer"] = f" {FACTS[alike[0]]}"
    return found

"""One row of a dataset: a prompt, its answers, its corrupt twin and its roles.

Whatever is wrong with a row is one line that names the row, the field and what would
have been right.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from trained.errors import BadInput

FIELDS = ("prompt", "answer", "corrupt", "corrupt_answer", "roles", "group")

MOST_CHARACTERS = 1_000_000
"""Of one text: more is a mistake, or meant to hurt."""

OWN_ROLES = ("first", "last", "changed")
"""Names that every prompt gives a meaning of its own."""

ALIKE = 0.8
"""Names that share so much are taken for a slip of the pen."""

Span = tuple[int, int]


@dataclass(frozen=True)
class Row:
    """A prompt with all that is known of it.

    Attributes:
        where: the row as a reader finds it: "line 3".
        prompt: the text.
        answers: what may follow it; none if that is not said.
        corrupt: a prompt that asks for something else.
        corrupt_answer: what should follow that one.
        roles: the characters of every role, from the first to behind the last.
        group: what the prompt is counted with.
    """

    where: str
    prompt: str
    answers: tuple[str, ...] = ()
    corrupt: str | None = None
    corrupt_answer: str | None = None
    roles: Mapping[str, Span] = field(default_factory=dict)
    group: str | None = None

    def content(self) -> list[Any]:
        """All but the place, as JSON holds it: what the numbers depend on."""
        roles = {name: list(span) for name, span in self.roles.items()}
        twin = (self.corrupt, self.corrupt_answer)
        return [self.prompt, list(self.answers), *twin, roles, self.group]


def row_of(entry: object, where: str) -> Row:
    """The row that an entry of a file is; `BadInput` names what is wrong with it."""
    if not isinstance(entry, Mapping):
        kind = type(entry).__name__
        raise BadInput(f"{where}: a row is an object with fields, not {said(kind)}")
    known = {name: value for name, value in entry.items() if value is not None}
    _require_no_slips(known, where)
    prompt = _text(known, "prompt", where)
    if prompt is None:
        found = ", ".join(map(said, entry)) or "none"
        raise BadInput(
            f"{where}: field 'prompt' is missing; fields are {', '.join(FIELDS)}, the "
            f"row has {found}"
        )
    return Row(
        where=where,
        prompt=prompt,
        answers=_answers(known.get("answer"), where),
        corrupt=_text(known, "corrupt", where),
        corrupt_answer=_text(known, "corrupt_answer", where),
        roles=_roles(known.get("roles"), prompt, where),
        group=_text(known, "group", where),
    )


def checked_text(value: object, field: str, where: str) -> str:
    """A text that can be stored and tokenised; `BadInput` if it is none."""
    if not isinstance(value, str):
        raise BadInput(f"{where}: field '{field}' is {said(value)}; it must be a text")
    if not value:
        raise BadInput(f"{where}: field '{field}' is empty; give some text")
    if len(value) > MOST_CHARACTERS:
        raise BadInput(
            f"{where}: field '{field}' has {len(value)} characters; at most "
            f"{MOST_CHARACTERS}"
        )
    if "\0" in value:
        raise BadInput(f"{where}: field '{field}' holds a NUL character; give text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise BadInput(
            f"{where}: field '{field}' holds half of a surrogate pair; give text"
        ) from None
    return value


def _require_no_slips(known: Mapping[Any, object], where: str) -> None:
    """Fields beside ours are the file's own business, unless they look like ours."""
    for name in known:
        if name in FIELDS or not isinstance(name, str):
            continue
        meant = get_close_matches(name.lower(), FIELDS, 1, ALIKE)
        if meant and meant[0] not in known:
            raise BadInput(
                f"{where}: unknown field {said(name)}; choose from: "
                f"{', '.join(FIELDS)}, or rename it by --columns {name}={meant[0]}"
            )


def _text(known: Mapping[str, object], field: str, where: str) -> str | None:
    return checked_text(known[field], field, where) if field in known else None


def _answers(value: object, where: str) -> tuple[str, ...]:
    if value is None:
        return ()
    several = value if isinstance(value, list | tuple) else [value]
    if not several:
        raise BadInput(f"{where}: field 'answer' is an empty list; name one or more")
    texts = tuple(checked_text(text, "answer", where) for text in several)
    if len(set(texts)) != len(texts):
        raise BadInput(f"{where}: field 'answer' names an answer twice")
    return texts


def _roles(value: object, prompt: str, where: str) -> dict[str, Span]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise BadInput(
            f"{where}: field 'roles' is {said(value)}; it maps names to phrases of "
            "the prompt or to [start, end]"
        )
    roles = {}
    for name, place in value.items():
        # Parquet fills the roles that other rows have.
        if place is not None:
            own = checked_text(name, "roles", where)
            if own in OWN_ROLES:
                raise BadInput(
                    f"{where}: field 'roles': '{own}' means something in every prompt; "
                    f"choose another name than {', '.join(OWN_ROLES)}"
                )
            roles[own] = _span(place, own, prompt, where)
    return roles


def _span(place: object, name: str, prompt: str, where: str) -> Span:
    """The characters of a role, from a phrase or from their numbers."""
    own = f"{where}: field 'roles': {said(name)}"
    if isinstance(place, str):
        phrase = checked_text(place, "roles", where)
        start = prompt.find(phrase)
        if start < 0:
            raise BadInput(f"{own} is {said(phrase)}, which is not in the prompt")
        if prompt.find(phrase, start + 1) >= 0:
            raise BadInput(
                f"{own} is {said(phrase)}, which is in the prompt more than once; "
                "give [start, end] in characters"
            )
        return start, start + len(phrase)
    if not _is_pair(place):
        raise BadInput(f"{own} is {said(place)}; give a phrase or [start, end]")
    assert isinstance(place, Sequence)
    start, end = place
    if not 0 <= start < end <= len(prompt):
        raise BadInput(
            f"{own} is [{said(start)}, {said(end)}]; the prompt has characters 0 to "
            f"{len(prompt)}"
        )
    return start, end


def _is_pair(place: object) -> bool:
    if not isinstance(place, list | tuple) or len(place) != 2:
        return False
    return all(isinstance(n, int) and not isinstance(n, bool) for n in place)


def said(value: object) -> str:
    """A value of anybody's on one line, shortened."""
    if not isinstance(value, str | int | float | bool):
        return f"of type {type(value).__name__}"
    text = json.dumps(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 40 else f"{text[:36]}..."

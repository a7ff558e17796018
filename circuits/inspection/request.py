"""What `reasonscope inspect` is asked for; free of torch, so it is refused at once."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from circuits.datasets.dataset import read_dataset
from circuits.datasets.row import Row, row_of
from circuits.models.choices import check_backend, check_place, full_dtype
from trained.errors import BadInput, unknown

SIGNALS = ("lens", "attention", "alignment", "patching")
DEFAULT_SIGNALS = ("lens", "attention")

STYLES = ("paper", "slides", "dark")
"""Those of `probes.figures`, which loads torch."""

SPAN = re.compile(r"\[(\d+), ?(\d+)\]")
"""Characters of a prompt, as rows of a dataset give them."""


@dataclass(frozen=True)
class Opening:
    """Which model, and how it is opened.

    Attributes:
        model: as `open` takes it.
        backend: what observes it.
        device: where it computes.
        dtype: of its weights.
        adapter: a folder with a PEFT adapter for it.
    """

    model: str
    backend: str = "hf"
    device: str = "auto"
    dtype: str = "float32"
    adapter: Path | None = None

    def __post_init__(self) -> None:
        check_backend(self.backend)
        full_dtype(self.dtype)
        check_place(self.device)


@dataclass(frozen=True)
class InspectRequest:
    """A model, the prompts to run it on, and the signals to show.

    Attributes:
        opening: the model.
        rows: the prompts and what is known of them.
        signals: what is read.
        positions: roles, phrases and columns that are shown and patched; None: see
            `inspect`.
        chat: whether prompts are put into the tokenizer's template.
        against: another model, whose readings are set beside.
        out: where figures go.
        style: how they look.
    """

    opening: Opening
    rows: tuple[Row, ...]
    signals: tuple[str, ...] = DEFAULT_SIGNALS
    positions: tuple[str | int, ...] | None = None
    chat: bool = False
    against: Opening | None = None
    out: Path | None = None
    style: str = "paper"

    def __post_init__(self) -> None:
        check_style(self.style)
        for signal in self.signals:
            if signal not in SIGNALS:
                raise unknown("signal", signal, SIGNALS)
        for row in self.rows:
            if not row.prompt.strip():
                raise BadInput("a prompt is empty; give some text")
            if "patching" in self.signals and row.corrupt is None:
                raise BadInput(
                    f"{row.where}: --signal patching and --corrupt PROMPT go together: "
                    "the corrupt prompt has as many tokens and another answer"
                )
            if "alignment" in self.signals and not row.roles:
                raise BadInput(
                    f"{row.where}: --signal alignment compares roles: name some by "
                    "--role NAME=PHRASE"
                )


def check_style(style: str) -> None:
    """`BadInput` for a style that figures cannot be drawn in."""
    if style not in STYLES:
        raise unknown("style", style, STYLES)


def rows_of_texts(prompts: tuple[str, ...], fields: dict[str, Any]) -> tuple[Row, ...]:
    """Prompts from a command line, which share what is known of them."""
    return tuple(row_of({"prompt": text, **fields}, "the prompt") for text in prompts)


def rows_of_file(
    file: Path, numbers: tuple[int, ...], columns: tuple[str, ...]
) -> tuple[Row, ...]:
    """Some rows of a dataset, counted from 1."""
    data = read_dataset(file, columns)
    for number in numbers:
        if not 1 <= number <= len(data):
            raise unknown("row", number, f"1 to {len(data)} of {file.name}")
    return tuple(data.rows[number - 1] for number in numbers)


def roles_of(assignments: tuple[str, ...]) -> dict[str, str]:
    """`name=phrase`, several times.

    >>> roles_of(("subject=France", "relation=capital"))
    {'subject': 'France', 'relation': 'capital'}
    """
    found: dict[str, str] = {}
    for assignment in assignments:
        name, sign, phrase = assignment.partition("=")
        if not sign or not name or not phrase or name in found:
            raise BadInput(f"--role {assignment}: give NAME=PHRASE, each name once")
        found[name] = phrase
    return found


def places_of(assignments: tuple[str, ...]) -> dict[str, str | list[int]]:
    """`name=phrase` or, of a phrase that occurs twice, `name=[start,end]`.

    >>> places_of(("subject=France", "second=[10,16]"))
    {'subject': 'France', 'second': [10, 16]}
    """
    found: dict[str, str | list[int]] = {}
    for name, place in roles_of(assignments).items():
        span = SPAN.fullmatch(place)
        found[name] = place if span is None else [*map(int, span.groups())]
    return found


def positions_of(text: str | None) -> tuple[str | int, ...] | None:
    """Roles, phrases, columns and ranges of columns, between commas.

    >>> positions_of("subject,last,3,5-7")
    ('subject', 'last', 3, 5, 6, 7)
    """
    if text is None:
        return None
    found: list[str | int] = []
    for part in (part for part in text.split(",") if part.strip()):
        first, sign, last = part.strip().partition("-")
        if first.isdecimal() and (last.isdecimal() or not sign):
            found.extend(range(int(first), int(last if sign else first) + 1))
        else:
            found.append(part.strip())
    if not found:
        raise BadInput("--positions: name roles, phrases or columns, like subject,last")
    return tuple(dict.fromkeys(found))

"""The study's data: chains of functions of three values, drawn where none are given."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from circuits.datasets.schema import Schema
from trained.config import require

Group = Literal["C3", "S3"]

VALUES = ("red", "green", "blue")
FUNCTIONS = ("f", "g", "h")


@dataclass(frozen=True)
class ChainRow:
    """One chain x_l = g_l(x_{l-1}) that starts at a value."""

    group: Group
    """C3: all functions are rotations; S3: three bijections that are not all."""
    functions: dict[str, tuple[str, ...]]
    """f, g and h -> what red, green and blue become, in this order."""
    names: tuple[str, ...]
    """x_0 to x_L."""
    actions: tuple[str, ...]
    """g_1 to g_L, as names of functions."""
    start: str
    """The value of x_0."""

    def __post_init__(self) -> None:
        known = set(self.functions) == set(FUNCTIONS)
        require(known, f"field 'functions' must have {', '.join(FUNCTIONS)}")
        for name, images in self.functions.items():
            whole = sorted(images) == sorted(VALUES)
            require(whole, f"field 'functions': {name} is no bijection of {VALUES}")
        for action in self.actions:
            require(
                action in FUNCTIONS, f"field 'actions': '{action}' is none of f g h"
            )
        fits = len(set(self.names)) == len(self.names) == len(self.actions) + 1
        require(fits, "field 'names' must be different, one more than 'actions'")
        require(self.start in VALUES, f"field 'start' must be one of {VALUES}")

    @property
    def values(self) -> tuple[int, ...]:
        """y_0 to y_L, as indices of `VALUES`."""
        found = [VALUES.index(self.start)]
        for action in self.actions:
            found.append(VALUES.index(self.functions[action][found[-1]]))
        return tuple(found)


def as_prompts(rows: Sequence[ChainRow]) -> Iterator[dict[str, Any]]:
    """The last step of every chain as a row for `reasonscope scan`."""
    for row in rows:
        prompt, roles = "Functions:\n", {}
        for name in FUNCTIONS:
            steps = zip(VALUES, row.functions[name], strict=True)
            prompt += f"{name}: {', '.join(f'{a} -> {b}' for a, b in steps)}\n"
        prompt += "\n"
        for step, action in enumerate(row.actions, 1):
            line = f"{row.names[step]} = {action}({row.names[step - 1]})"
            roles["predicate"] = [len(prompt), len(prompt) + len(line)]
            prompt += f"{line}\n"
        for name, value in zip(row.names[:-1], row.values, strict=False):
            line = f"{name} = {VALUES[value]}"
            roles["answer"] = [len(prompt), len(prompt) + len(line)]
            prompt += f"{line}\n"
        yield {
            "prompt": f"{prompt}{row.names[-1]} =",
            "answer": f" {VALUES[row.values[-1]]}",
            "roles": roles,
            "group": f"{row.group}, length {len(row.actions)}",
        }


SCHEMA = Schema(ChainRow, None, as_prompts)

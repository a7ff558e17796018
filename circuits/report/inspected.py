"""Prompts of a language model on the page: lens, patching, the last token's look.

Fed with what `reasonscope inspect -o DIR` writes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trained.errors import BadInput

from .files import read_objects


@dataclass(frozen=True)
class Cell:
    """One place of a grid."""

    text: str
    share: float
    """How strongly it is coloured, from -1 to 1."""
    note: str


@dataclass(frozen=True)
class Grid:
    """A table of a quantity over layers and positions."""

    title: str
    about: str
    down: tuple[str, ...]
    across: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    @property
    def pairs(self) -> list[tuple[str, tuple[Cell, ...]]]:
        """Each row with its name."""
        return list(zip(self.down, self.rows, strict=True))


@dataclass(frozen=True)
class Inspected:
    """The views of one prompt."""

    model: str
    prompt: str
    answer: str
    source: str
    top: tuple[tuple[str, float], ...]
    grids: tuple[Grid, ...]


def read_inspected(path: Path) -> list[Inspected]:
    """The prompts in a folder or file that `reasonscope inspect` wrote."""
    file = path / "inspect.json" if path.is_dir() else path
    if not file.is_file():
        raise BadInput(f"--inspect {path}: there is no inspect.json")
    try:
        found = [one for both in read_objects(file) for one in _each(both)]
        return [inspected(one) for one in found]
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise BadInput(f"{file} was not written by inspect: {error}") from error


def _each(found: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """What was found of one prompt; of a comparison, both models' findings."""
    return found.get("inspections", [found])


def inspected(found: Mapping[str, Any]) -> Inspected:
    """The views of an `Inspection.as_dict()`."""
    grids = [_lens(found)]
    if "patching" in found:
        grids.append(_patching(found))
    if "attention" in found:
        grids.append(_attention(found))
    return Inspected(
        model=str(found["model"]),
        prompt=str(found["prompt"]),
        answer=str(found["answer"]),
        source=str(found["answer_source"]),
        top=tuple(
            (str(t["token"]), float(t["probability"])) for t in found["top_tokens"]
        ),
        grids=tuple(grids),
    )


def _lens(found: Mapping[str, Any]) -> Grid:
    """The top token of every layer and position; coloured where it is the answer."""
    layers, tokens = _layers(found), _tokens(found)
    answer = str(found["answer"]).replace(" ", "·")
    ranks = [f"{float(rank):g}" for rank in found["answer_rank"]]
    rows = []
    for layer, rank, tops in zip(layers, ranks, found["lens_top_tokens"], strict=True):
        cells = [
            Cell(top, float(top == answer), _at(layer, token, f"top {top}"))
            for token, top in zip(tokens, map(str, tops), strict=True)
        ]
        note = f"layer {layer}: rank {rank} of the answer {answer}"
        rows.append((*cells, Cell(rank, 0.0, note)))
    return Grid(
        title="Logit lens",
        about=f"The token that each layer would say after each position; where it is "
        f"the answer {answer} it is marked. Last column: the answer's rank.",
        down=layers,
        across=(*tokens, "rank"),
        rows=tuple(rows),
    )


def _patching(found: Mapping[str, Any]) -> Grid:
    """What each residual restores of the answer."""
    grid = found["patching"]
    if grid["axes"] != ["layer", "position"]:
        raise ValueError(f"patching over {grid['axes']}")
    values = [[float(v) for v in row] for row in grid["values"]]
    places = grid.get("labels", {}).get("position", _tokens(found))
    across = tuple(str(place) for place in places)
    return Grid(
        title="Activation patching",
        about="The share of the answer's lead that comes back when this residual is "
        "copied from the prompt into its corrupt twin.",
        down=_layers(found)[-len(values) :],
        across=across,
        rows=_coloured(values, _layers(found)[-len(values) :], across),
    )


def _attention(found: Mapping[str, Any]) -> Grid:
    """Where the last token looks, by layer: the largest weight of any head."""
    weights = found["attention"]["last_row"]
    layers = tuple(str(layer) for layer in range(len(weights)))
    values = [
        [max(float(h[k]) for h in heads) for k in range(len(heads[0]))]
        for heads in weights
    ]
    return Grid(
        title="Attention of the last token",
        about="The weight of the head of each layer that looks hardest at this token.",
        down=layers,
        across=_tokens(found),
        rows=_coloured(values, layers, _tokens(found)),
    )


def _coloured(
    values: Sequence[Sequence[float]], down: Sequence[str], across: Sequence[str]
) -> tuple[tuple[Cell, ...], ...]:
    top = max((abs(v) for row in values for v in row if v == v), default=0.0) or 1.0
    return tuple(
        tuple(
            Cell(_short(v), v / top if v == v else 0.0, _at(layer, token, f"{v:.3f}"))
            for token, v in zip(across, row, strict=True)
        )
        for layer, row in zip(down, values, strict=True)
    )


def _short(value: float) -> str:
    # Zero has no sign for a reader.
    return f"{round(value, 2) + 0.0:.2f}"


def _at(layer: str, token: str, text: str) -> str:
    return f"layer {layer}, {token}: {text}"


def _layers(found: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(layer) for layer in found["layers"])


def _tokens(found: Mapping[str, Any]) -> tuple[str, ...]:
    """The tokens that are shown: all, or some of a long prompt."""
    tokens = found["tokens"]
    return tuple(str(tokens[n]) for n in found.get("shown", range(len(tokens))))

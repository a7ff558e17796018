"""`inspect --generate N`: what a model does while it writes, step by step."""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from circuits.generation.outline import SENTENCES, SIGNALS, Outline
from circuits.generation.request import (
    SHOWN_SIGNALS,
    GenerateRequest,
    exchange_of,
)
from circuits.inspection.request import Opening, roles_of
from trained.errors import BadInput

from .output import JsonOutput

if TYPE_CHECKING:
    from rich.console import Console

    from circuits.generation.chain import Chain
    from circuits.generation.effects import Effect
    from circuits.models.language_model import LanguageModel

LETTERS = 48
"""Longer texts are cut where they are printed."""

ELSEWHERE = ("answer", "corrupt_answer", "row", "columns", "positions", "against")
"""Options that mean nothing while the model writes."""

HERE = ("steps", "step_roles", "target", "knock_out", "exchange")
"""Options that mean nothing else."""


def add_generate_options(parser: argparse.ArgumentParser) -> None:
    """What is asked while the model writes."""
    group = parser.add_argument_group(
        "while the model writes",
        f"--signal is then of {', '.join(SIGNALS)} (default: "
        f"{' and '.join(SHOWN_SIGNALS)}), --role names what steps look at.",
    )
    group.add_argument(
        "--generate", type=int, metavar="N", help="let it write N tokens and look"
    )
    group.add_argument(
        "--steps", metavar="REGEX", help="what lies between steps; default: sentences"
    )
    group.add_argument(
        "--step-roles",
        default="",
        metavar="REGEX",
        help="named groups are roles of a step: '(?P<state>\\w+)\\W*$'",
    )
    group.add_argument(
        "--target",
        action="append",
        default=[],
        metavar="TOKEN",
        help="a token to follow beside those that are written; repeatable",
    )
    group.add_argument(
        "--knock-out",
        action="append",
        type=int,
        default=[],
        metavar="STEP",
        help="what follows if later tokens cannot see this step; repeatable",
    )
    group.add_argument(
        "--exchange",
        metavar="STEP:LAYER",
        help="what follows with the step's state from the prompt of --corrupt",
    )


def is_generating(options: argparse.Namespace) -> bool:
    """Whether the model is to write; `BadInput` for options that do not fit."""
    generating = options.generate is not None
    for name in ELSEWHERE if generating else HERE:
        if getattr(options, name):
            relation = "does not go" if generating else "goes only"
            option = f"--{name.replace('_', '-')}"
            raise BadInput(f"{option} {relation} with --generate N")
    return generating


def generate_request(options: argparse.Namespace, opening: Opening) -> GenerateRequest:
    """What is asked for; `BadInput` before torch is loaded."""
    outline = Outline(
        keys=roles_of(tuple(options.role)) or None,
        targets=tuple(options.target),
        steps=SENTENCES if options.steps is None else options.steps,
        roles=options.step_roles,
    )
    return GenerateRequest(
        opening=opening,
        prompts=tuple(options.prompts),
        n_tokens=options.generate,
        signals=tuple(dict.fromkeys(options.signals or SHOWN_SIGNALS)),
        outline=outline,
        chat=options.chat,
        knock_out=tuple(options.knock_out),
        exchange=exchange_of(options.exchange),
        donor=options.corrupt,
        out=options.output,
        style=options.style,
    )


def run_generate(
    request: GenerateRequest, model: "LanguageModel", output: JsonOutput
) -> None:
    """Let the model write, print what was seen and write it."""
    from circuits.report.terminal import console, say
    from trained.store import write_json

    chains = _chains(request, model, request.prompts)
    effects = [_effects(request, model, chain) for chain in chains]
    objects = [
        {**chain.as_dict(), "effects": {name: _stored(e) for name, e in own.items()}}
        for chain, own in zip(chains, effects, strict=True)
    ]
    whole = objects[0] if len(objects) == 1 else objects
    output.finish(whole)
    page = console(stderr=output.takes_stdout)
    for chain, own in zip(chains, effects, strict=True):
        print_chain(page, chain, own)
    if request.out is not None:
        write_json(request.out / "inspect.json", whole)
        for file in _draw(chains, request.out, request.style):
            say(page, str(file))


def _draw(chains: "Sequence[Chain]", folder: Path, style: str) -> Iterator[Path]:
    from probes.figures import save, styled

    for number, chain in enumerate(chains):
        prefix = f"{number}-" if len(chains) > 1 else ""
        with styled(style):
            for name, figure in chain.figures().items():
                yield save(figure, folder / f"{prefix}{name}.png", foot=chain.origin)


def _chains(
    request: GenerateRequest, model: "LanguageModel", prompts: tuple[str, ...]
) -> "tuple[Chain, ...]":
    from circuits.generation.generate import generate

    cut = request.outline
    return generate(
        model,
        prompts,
        request.n_tokens,
        signals=request.signals,
        chat=request.chat,
        keys=cut.keys,
        targets=cut.targets,
        steps=cut.steps,
        roles=cut.roles,
    )


def _effects(
    request: GenerateRequest, model: "LanguageModel", chain: "Chain"
) -> "dict[str, Effect]":
    """What becomes of the chain, by what was done to it."""
    found = {f"without step {n}": chain.knock_out(n) for n in request.knock_out}
    if request.exchange is not None and request.donor is not None:
        step, layer = request.exchange
        (donor,) = _chains(request, model, (request.donor,))
        role = "state" if "state" in chain.step(step).roles else None
        name = f"step {step} exchanged at layer {layer}"
        found[name] = chain.exchange(step, donor, layer, role=role)
    return found


def _stored(effect: "Effect") -> dict[str, Any]:
    return {
        "before": effect.before.values.tolist(),
        "after": effect.after.values.tolist(),
        "text": effect.text,
    }


def print_chain(page: "Console", chain: "Chain", effects: "dict[str, Effect]") -> None:
    """The steps, what each looks at, and what becomes of them."""
    from rich.table import Table
    from rich.text import Text

    from circuits.report.terminal import say

    title = Text(f"{chain.model.name}: {_shortened(chain.prompt)!r}")
    table = Table(title=title, title_justify="left")
    table.add_column("step", justify="right")
    for heading in ("written", "looks in the prompt at", "in earlier steps at"):
        table.add_column(heading)
    for number, step in enumerate(chain.steps, 1):
        earlier = {f"step {n}" for n in range(1, number)}
        asked = [name for name in chain.parts if name != "first"]
        prompt = [name for name in asked if not name.startswith("step ")]
        groups = (prompt, [name for name in asked if name in earlier])
        looks = [Text(_hardest(chain, number, keys)) for keys in groups]
        table.add_row(str(number), Text(_shortened(step.text)), *looks)
    page.print(table)
    if chain.mass is not None:
        say(page, "mass of the head (layer.head) that looks hardest, mean over a step")
    for name, effect in effects.items():
        say(page, f"{name}: what followed is {effect.lost:.2f} nats less likely")
        say(page, f"  it writes {_shortened(effect.text)!r}")


def _hardest(chain: "Chain", number: int, keys: list[str]) -> str:
    """Which of some spans a step looks at most, and by which head."""
    if chain.mass is None or not keys:
        return ""
    found = chain.mass_by_step().select(step=f"step {number}", key=keys)
    (best,) = found.top(1).to_dict("records")
    mass, head = best[found.name], f"{best['layer']}.{best['head']}"
    return f"{_shortened(chain.span_text(best['key']))} {mass:.2f} ({head})"


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LETTERS else line[: LETTERS - 1] + "…"

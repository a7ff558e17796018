"""One prompt through the signals that were asked for: readings and JSON."""

import textwrap
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from circuits.datasets.row import Row, row_of
from circuits.interventions.part import columns
from circuits.models.language_model import LanguageModel
from circuits.models.prompts import named
from probes.measurement import Measurement
from trained.errors import BadInput, unknown
from trained.task import Batch

from .alignment import alignment_in
from .answer_lens import top_tokens
from .answers import AnswersReading, own_answer, read_answers, space_hint
from .attention import AttentionReading, read_attention
from .budget import require_few_cells, require_room
from .encoding import Item, encode
from .lens import LensReading, lens_reading
from .one_pass import Pass, batch_of, pass_over, shown_positions
from .patching import patch
from .request import DEFAULT_SIGNALS, SIGNALS
from .subject import layer_labels, places, show, shown_tokens

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCHEMA = 2

FEWEST_TOKENS = 3
"""The first is where attention rests, the last is what looks."""

TOP = 5
"""Most likely next tokens that are reported."""

ORIGIN_LETTERS = 80
"""Of a prompt at the foot of a figure."""

Positions = Sequence[str | int]
"""Roles, phrases of the prompt, or columns."""


@dataclass(frozen=True)
class Inspection:
    """The readings of one prompt; a signal that was not asked for is None.

    The answer's rank and log-probability by layer are always read.
    """

    model: str
    """Its name: the readings do not keep it in memory."""
    text: str
    prompt: Batch
    """With the first token of the answer that is followed."""
    tokens: tuple[str, ...]
    """Of the prompt, with visible white space."""
    shown: tuple[int, ...]
    """The positions that are shown: all, or some of a long prompt."""
    answer_source: str
    """`asked for`, or `the model's own` if no answer was given."""
    top: tuple[tuple[str, float], ...]
    """The model's most likely next tokens and their probabilities."""
    answers: AnswersReading
    """Every accepted answer."""
    lens: LensReading
    """Of any of the accepted answers; the top tokens at the shown positions."""
    logit: Measurement
    """Of the first answer's first token, everywhere; axes ("layer", "position")."""
    attention: AttentionReading | None = None
    alignment: Measurement | None = None
    patching: Measurement | None = None
    hint: str | None = None
    """What may have been meant instead."""

    @property
    def answer(self) -> str:
        """The answer that is followed, with visible white space."""
        return " or ".join(map(str, self.answers.rank.labels["answer"]))

    @property
    def origin(self) -> str:
        """What the figures are of: the model, and how the prompt begins."""
        return f"{self.model}: {textwrap.shorten(self.text, ORIGIN_LETTERS)}"

    def figures(self) -> "dict[str, Figure]":
        """Every figure of the readings, by name."""
        from .figures import all_figures

        return dict(all_figures(self))

    def as_dict(self) -> dict[str, Any]:
        """The object that the command writes: grids at the shown positions."""
        shown = list(self.shown)
        found: dict[str, Any] = {
            "schema": SCHEMA,
            "model": self.model,
            "prompt": self.text,
            "tokens": list(self.tokens),
            "shown": shown,
            "roles": {name: own[0].tolist() for name, own in self.prompt.roles.items()},
            "answer": self.answers.texts[0],
            "answer_source": self.answer_source,
            "top_tokens": [{"token": t, "probability": p} for t, p in self.top],
            "layers": list(self.lens.rank.labels["layer"]),
            "answer_rank": self.lens.rank.values[:, 0].tolist(),
            "answer_logprob": self.lens.log_prob.values[:, 0].tolist(),
            "answers": _stored(self.answers.log_prob),
            "lens_top_tokens": [list(row) for row in self.lens.tokens],
            "answer_logit": self.logit.values[:, shown].tolist(),
        }
        if self.attention is not None:
            found["attention"] = {
                "axes": ["layer", "head", "key"],
                "last_row": self.attention.last_row.values[..., shown].tolist(),
                "strongest_heads": list(self.attention.patterns.labels["head"]),
            }
            if self.attention.mass is not None:
                found["attention_mass"] = _stored(self.attention.mass)
        for name in ("alignment", "patching"):
            grid = getattr(self, name)
            if grid is not None:
                found[name] = _stored(grid)
        return found


def _stored(measurement: Measurement) -> dict[str, Any]:
    return {
        "axes": list(measurement.axes),
        "labels": {axis: list(own) for axis, own in measurement.labels.items()},
        "values": measurement.values.tolist(),
    }


@torch.no_grad()
def inspect(
    model: LanguageModel,
    prompt: str | Row,
    *,
    signals: Collection[str] = DEFAULT_SIGNALS,
    positions: Positions | None = None,
    **fields: Any,
) -> Inspection:
    """Take the readings that are asked for on one prompt, most of them in one pass.

    Args:
        model: a language model.
        prompt: its text, at least three tokens; or a row of a dataset.
        signals: of "lens", "attention", "alignment" and "patching".
        positions: roles, phrases of the prompt or columns: what is shown of a long
            prompt, and where it is patched; None shows the roles and the end, and
            patches everywhere.
        **fields: of a row, beside its prompt: `answer`, a text or a list of accepted
            ones, of one token or several (none: what the model says); `corrupt`, a
            prompt with as many tokens and another answer: what restores the answer
            when it is patched from the prompt into this one? `corrupt_answer`, its
            answer; `roles`, name -> a phrase that occurs once, or [start, end].
    """
    for signal in signals:
        if signal not in SIGNALS:
            raise unknown("signal", signal, SIGNALS)
    row = _row(prompt, fields)
    item = _item(model, row, signals)
    chosen = None if positions is None else _columns(model, item, positions)
    shown = shown_positions(item, chosen)
    require_room(model, len(item.tokens), len(shown), 1 + len(item.roles))
    if "patching" in signals:
        n_places = len(item.tokens) if positions is None else len(positions)
        require_few_cells(model, len(item.tokens), model.n_layers * n_places)
    passed = pass_over(model, item, shown, patterns="attention" in signals)
    found = _read(passed, row, signals)
    if "patching" not in signals:
        return found
    return replace(found, patching=_patched(model, found.prompt, item, positions))


def _read(passed: Pass, row: Row, signals: Collection[str]) -> Inspection:
    """All that one pass shows."""
    model, item = passed.model, passed.item
    texts = row.answers
    if not item.answers:
        said = own_answer(passed)
        passed = replace(passed, item=replace(item, answers=((said,),)))
        texts = (model.tokenizer.decode([said]),)
    prompt, answers = passed.prompt, read_answers(passed, texts)
    tops = top_tokens(model.readout, passed.at(passed.shown))
    return Inspection(
        model=model.name,
        text=row.prompt,
        prompt=prompt,
        tokens=tuple(shown_tokens(model, prompt)),
        shown=passed.shown,
        answer_source="asked for" if item.answers else "the model's own",
        top=_next_tokens(passed),
        answers=answers,
        lens=lens_reading(model, prompt, answers.any, tops, passed.shown),
        logit=_logit(passed),
        attention=read_attention(passed) if passed.rows is not None else None,
        alignment=alignment_in(passed) if "alignment" in signals else None,
        hint=space_hint(passed, row.prompt, row.answers),
    )


def _row(prompt: str | Row, fields: dict[str, Any]) -> Row:
    known = ("answer", "corrupt", "corrupt_answer", "roles")
    for name in fields:
        if name not in known:
            raise unknown("field", name, known)
    if isinstance(prompt, Row):
        if fields:
            raise BadInput(f"{prompt.where} has its own {next(iter(fields))}")
        return prompt
    return row_of({"prompt": prompt, **fields}, "the prompt")


def _item(model: LanguageModel, row: Row, signals: Collection[str]) -> Item:
    """The row in tokens; `BadInput` if it does not fit what is asked for."""
    if "patching" in signals and row.corrupt is None:
        raise BadInput("patching needs a corrupt prompt: corrupt=...")
    # Who patches without answers follows what the model says.
    needs = {*signals} - ({"patching"} if row.corrupt_answer is None else set())
    (item,) = encode(model, [row], 0, needs)
    n_tokens = len(item.tokens)
    if n_tokens < FEWEST_TOKENS:
        raise BadInput(
            f"the prompt {row.prompt!r} has {n_tokens} tokens; give at "
            f"least {FEWEST_TOKENS}, so that the last has something to look at"
        )
    if "patching" in signals and len(item.corrupt or ()) != n_tokens:
        raise BadInput(
            f"the corrupt prompt has {len(item.corrupt or ())} tokens, the prompt "
            f"{n_tokens}: patching needs as many"
        )
    return item


def _columns(model: LanguageModel, item: Item, positions: Positions) -> list[int]:
    """The columns of roles, phrases and numbers."""
    prompt = named(model, batch_of(model, item), *positions)
    found = {c for place in positions for c in columns(prompt, place)[0].tolist()}
    return sorted(found)


def _patched(
    model: LanguageModel, prompt: Batch, item: Item, positions: Positions | None
) -> Measurement:
    """What each residual of the prompt restores in the corrupt one."""
    assert item.corrupt is not None
    clean = named(model, prompt, *positions or ())
    wrong = () if item.wrong is None else ((item.wrong,),)
    twin = batch_of(model, replace(item, tokens=item.corrupt, answers=wrong))
    # A role is at the same columns in both.
    corrupt = replace(twin, roles=clean.roles)
    return patch(model, clean, corrupt, "resid_post", positions=positions)


def _logit(passed: Pass) -> Measurement:
    """The answer's logit at every layer and position: its column alone is read."""
    model, item = passed.model, passed.item
    target = torch.tensor([[item.answers[0][0]]], device=model.device)
    length = len(item.tokens)
    found = [
        model.readout.target_logits(states[None, :length], target)[0, :, 0]
        for states in passed.stream
    ]
    prompt = passed.prompt
    return Measurement(
        torch.stack(found),
        ("layer", "position"),
        {"layer": layer_labels(model), "position": places(model, prompt)},
        name=f"logit of {show(model, item.answers[0][0])}",
        unit="logits",
    )


def _next_tokens(passed: Pass) -> tuple[tuple[str, float], ...]:
    model = passed.model
    final = passed.stream[-1][passed.item.last]
    found = model.readout.logits(final).softmax(-1)
    best = found.topk(min(TOP, len(found)))
    texts = [show(model, token) for token in best.indices.tolist()]
    return tuple(zip(texts, best.values.tolist(), strict=True))

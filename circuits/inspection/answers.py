"""Whole answers: of one token or several, one or any of several that are accepted."""

from dataclasses import dataclass
from math import log

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.models.language_model import LanguageModel
from probes.measurement import Measurement

from .answer_lens import Lens, answer_lens
from .observing import observe, stream_sites
from .one_pass import Pass
from .packing import Teaching, pack, teachings
from .subject import layer_labels, visible

FAR_LIKELIER = 10.0
"""From so many times on, an answer with a space before it is what was meant."""


@dataclass(frozen=True)
class AnswersReading:
    """Every accepted answer by layer, and any of them.

    Attributes:
        texts: the answers.
        log_prob: of each whole answer, sum_i log p(a_i | prompt, a_1 .. a_i-1), nats;
            axes ("answer", "layer").
        rank: the worst of its tokens' ranks; axes ("answer", "layer").
        any: of any of them: log sum_a p(a), and the best rank; as a lens of one read.
    """

    texts: tuple[str, ...]
    log_prob: Measurement
    rank: Measurement
    any: Lens


@torch.no_grad()
def read_answers(passed: Pass, texts: tuple[str, ...]) -> AnswersReading:
    """The answers of the prompt, each behind its own beginning (teacher forcing).

    Args:
        passed: what a pass over the prompt and the first answer showed.
        texts: the answers as they were given.
    """
    model, item = passed.model, passed.item
    by_answer: dict[int, list[Lens]] = {n: [] for n in range(len(item.answers))}
    for taught in teachings([item], answers=True):
        where = [item.last + read.token for read in taught.reads]
        states = passed.at(where) if taught.main else _states(model, taught, where)
        targets = [read.target for read in taught.reads]
        own = torch.tensor(targets, device=states.device)
        found = answer_lens(model.readout, states, own)
        for place, read in enumerate(taught.reads):
            part = Lens(*(values[:, place : place + 1] for values in found))
            by_answer[read.answer].append(part)
    wholes = [_whole(parts) for parts in by_answer.values()]
    log_prob = torch.cat([whole.log_prob for whole in wholes], 1)
    rank = torch.cat([whole.rank for whole in wholes], 1)
    nothing = torch.full_like(rank[:, :1], torch.nan)
    one = Lens(log_prob.logsumexp(1, keepdim=True), rank.amin(1, keepdim=True), nothing)
    return AnswersReading(
        texts,
        _by_answer(model, texts, log_prob, "log p of the answer", "nats"),
        _by_answer(model, texts, rank, "rank of the answer", "1 is the top"),
        one,
    )


def _whole(parts: list[Lens]) -> Lens:
    """The tokens of one answer together."""
    log_probs, ranks, nulls = (torch.stack(own) for own in zip(*parts, strict=True))
    return Lens(log_probs.sum(0), ranks.amax(0), nulls[0])


def _states(
    model: LanguageModel, taught: Teaching, where: list[int]
) -> Float[Tensor, "layer read d_model"]:
    """The residuals of another answer's tokens, in a pass of its own."""
    own = pack(model, [taught.tokens])
    sites = stream_sites(model)
    seen = observe(model, own.batch, sites, own.columns([where]), {})
    return seen.stacked(sites)[:, 0]


def _by_answer(
    model: LanguageModel, texts: tuple[str, ...], values: Tensor, name: str, unit: str
) -> Measurement:
    return Measurement(
        values.mT,
        ("answer", "layer"),
        {"answer": tuple(map(visible, texts)), "layer": layer_labels(model)},
        name=name,
        unit=unit,
    )


def own_answer(passed: Pass) -> int:
    """What the model says after the prompt."""
    final = passed.stream[-1][passed.item.last]
    return int(passed.model.readout.logits(final).argmax())


def space_hint(passed: Pass, prompt: str, answers: tuple[str, ...]) -> str | None:
    """What to say if an answer would be far likelier with a space before it.

    Vocabularies hold most words with the space before them: `Paris` is not ` Paris`.
    """
    tokenizer = passed.model.tokenizer
    said = passed.model.readout.logits(passed.stream[-1][passed.item.last])
    for answer in answers:
        if answer[0].isspace() or prompt[-1].isspace():
            continue
        own, spaced = (
            tokenizer.encode(text, add_special_tokens=False)[0]
            for text in (answer, f" {answer}")
        )
        gain = float(said[spaced] - said[own])
        known = tokenizer.decode([spaced]).startswith(" ")
        if known and gain > log(FAR_LIKELIER):
            return (
                f'" {answer}", with a space before it, is {_times(gain)} times as '
                f'likely as "{answer}"; is it meant?'
            )
    return None


def _times(gain: float) -> str:
    return f"{torch.tensor(gain).exp():.0f}" if gain < log(1e6) else "a million"

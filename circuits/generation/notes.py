"""What is written down at every token while a model writes, for all prompts at once."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from circuits.inspection.answer_lens import answer_lens
from circuits.inspection.observing import pattern_layers
from circuits.inspection.subject import layer_labels, show, visible
from circuits.models.language_model import LanguageModel, behind
from probes.measurement import Measurement
from trained.errors import BadInput
from trained.task import Batch

from .chain import WRITTEN, Chain
from .outline import Outline
from .passes import Sight
from .transcript import Spans, Transcript, prompt_marks, role_name

AT_ONCE = 16
"""Tokens whose lens is read together."""


@dataclass
class Notes:
    """Masses, logits and lenses so far, and the texts."""

    model: LanguageModel
    prompts: Batch
    outline: Outline
    n_tokens: int
    signals: Collection[str]
    masses: list[Float[Tensor, "layer batch head _"]] = field(default_factory=list)
    logits: list[Float[Tensor, "layer batch target"]] = field(default_factory=list)
    lenses: list[Float[Tensor, "quantity layer batch target"]] = field(
        default_factory=list
    )
    unread: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    def __post_init__(self) -> None:
        n_prompts, n_columns = self.prompts.tokens.shape
        tokenizer, device = self.model.tokenizer, self.prompts.tokens.device
        self.spans = Spans(n_prompts, n_columns + self.n_tokens, device)
        self.transcripts = [
            Transcript(tokenizer, self.outline, n_columns) for _ in range(n_prompts)
        ]
        self.followed = [self.model.token(text) for text in self.outline.targets]
        self.ends = ends_of(self.model)

    def begin(self, texts: Sequence[str] | None) -> None:
        """Note the spans of the prompts."""
        for row, real in enumerate(self.prompts.real):
            columns = real.nonzero()[:, 0].tolist()
            if self.outline.keys is None and texts is not None:
                own = self._pieces(texts[row], columns)
            else:
                every = {role: role for role in self.prompts.roles}
                keys = (self.outline.phrases or every).items()
                places = {name: self.prompts.role(at)[row] for name, at in keys}
                own = {name: sorted({*at.tolist()}) for name, at in places.items()}
            for mark in prompt_marks(own, columns):
                self.spans.mark(row, mark)

    def _pieces(self, text: str, columns: Sequence[int]) -> Mapping[str, list[int]]:
        """A prompt cut as steps are; its first token stands for itself."""
        try:
            offsets = self.model.tokenizer(text, return_offsets_mapping=True)
        except NotImplementedError:
            raise BadInput(
                f"the tokenizer of {self.model.name} does not say which characters a "
                "token holds: name phrases of the prompt by keys=[...]"
            ) from None
        numbers = self.outline.numbers(text, [b for _, b in offsets["offset_mapping"]])
        pieces: dict[str, list[int]] = {}
        for column, number in list(zip(columns, numbers, strict=True))[1:]:
            pieces.setdefault(f"prompt {number + 1}", []).append(column)
        return pieces

    def take(self, sight: Sight, tokens: Int[Tensor, " batch"], length: int) -> None:
        """Note what was seen when tokens were chosen, and write them down."""
        if "attention" in self.signals:
            most = max(map(len, self.spans.names))
            self.masses.append(sight.mass(self.spans.table[:, :most, :length]))
        if "logit" in self.signals or "lens" in self.signals:
            self._read(sight.stream(), tokens)
        for row, token in enumerate(tokens.tolist()):
            transcript = self.transcripts[row]
            if not self._ended(transcript):
                for mark in transcript.add(token):
                    self.spans.mark(row, mark)

    def _read(self, stream: Tensor, tokens: Tensor) -> None:
        readout, others = self.model.readout, tokens.new_tensor(self.followed)
        targets = torch.cat([tokens[:, None], others.expand(len(tokens), -1)], 1)
        if "logit" in self.signals:
            found = readout.target_logits(stream.transpose(0, 1), targets)
            self.logits.append(found.transpose(0, 1))
        if "lens" in self.signals:
            self.unread.append((stream, targets))
        if len(self.unread) == AT_ONCE:
            self.read()

    def read(self) -> None:
        """The lens of tokens that wait for it: the vocabulary is passed once for all.

        Every target of every token is a read of its own.
        """
        if not self.unread:
            return
        several, targets = zip(*self.unread, strict=True)
        n_targets, shape = targets[0].shape[1], (len(targets), *targets[0].shape)
        reads = torch.cat(several, 1).repeat_interleave(n_targets, 1)
        lens = answer_lens(self.model.readout, reads, torch.cat(targets).flatten())
        both = torch.stack([lens.log_prob, lens.rank])
        self.lenses += both.reshape(2, len(both[0]), *shape).unbind(2)
        self.unread.clear()

    @property
    def finished(self) -> bool:
        """Whether every prompt has come to the model's own end."""
        return all(map(self._ended, self.transcripts))

    def _ended(self, transcript: Transcript) -> bool:
        return bool(transcript.tokens) and transcript.tokens[-1] in self.ends

    def chain(self, row: int) -> Chain:
        """What was written after a prompt."""
        written, names = self.transcripts[row], self.spans.names[row]
        n, padding = len(written.tokens), int(self.prompts.real[row].int().argmax())
        own = self.prompts.tokens[row, padding:]
        tokens = torch.cat([own, own.new_tensor(written.tokens)])[None]
        spans = self.spans.columns(row)
        roles = {
            role_name(number, role): tuple(written.start + t for t in at)
            for number, step in enumerate(written.steps)
            for role, at in step.roles.items()
        }
        places = {
            name: tokens.new_tensor([columns]) - padding
            for name, columns in {**spans, **roles}.items()
        }
        return Chain(
            self.model,
            Batch(tokens, tokens.new_tensor([-1]), roles=places),
            n_prompt=len(own),
            steps=written.steps,
            parts=tuple(name for name in names if name not in roles),
            **self._measured(row, n, names),
        )

    def _measured(self, row: int, n: int, names: list[str]) -> dict[str, Measurement]:
        """The signals of the first n tokens of a prompt."""
        texts = [show(self.model, token) for token in self.transcripts[row].tokens]
        tokens = tuple(f"{place} {text}" for place, text in enumerate(texts))
        found = {}
        if self.masses:
            most = len(names)
            # Spans of other prompts are cut off, those that came later are added.
            own = [mass[:, row, :, :most] for mass in self.masses[:n]]
            wide = [F.pad(mass, (0, most - mass.shape[-1])) for mass in own]
            found["mass"] = Measurement(
                torch.stack(wide, 2),
                ("layer", "head", "token", "key"),
                {
                    "layer": pattern_layers(self.model),
                    "token": tokens,
                    "key": tuple(names),
                },
                name="attention mass",
            )
        axes = ("layer", "token", "target")
        targets = (WRITTEN, *map(visible, self.outline.targets))
        labels = {"layer": layer_labels(self.model), "token": tokens, "target": targets}
        if self.logits:
            values = torch.stack(self.logits[:n], 2)[:, row]
            found["logit"] = Measurement(values, axes, labels, "logit", "logits")
        if self.lenses:
            log_prob, rank = torch.stack(self.lenses[:n], 3)[:, :, row]
            found["log_prob"] = Measurement(log_prob, axes, labels, "log p", "nats")
            found["rank"] = Measurement(rank, axes, labels, "rank", "1 is the top")
        return found


def ends_of(model: LanguageModel) -> set[int]:
    """The tokens with which a text ends, as configuration and tokenizer say."""
    _, hf = behind(model.module)
    said = getattr(getattr(hf, "generation_config", None), "eos_token_id", None)
    several = said if isinstance(said, list) else [said]
    return {t for t in (*several, model.tokenizer.eos_token_id) if t is not None}

"""Can the numbers taken from a model be trusted? Every law of the contract, tried.

The laws say what must hold whatever a model computes (`circuits.models.laws`), and what
transformers itself must agree with. A model that keeps them may still be a bad model;
one that breaks any gives numbers that mean nothing.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from circuits.hooks import sites_of
from circuits.interventions.attribution import logit_attribution
from circuits.models import laws, shortcuts
from circuits.models.choices import BACKENDS, DTYPES, SPREAD, check_backend
from circuits.models.contract import findings, padded, random_tokens
from circuits.models.files import Loading, load
from circuits.models.language_model import LanguageModel, behind, sharing
from circuits.models.laws import Compared, Finding, Observed, State, judged, observe
from circuits.models.open import dtype_named, opened
from circuits.progress import each
from circuits.sites import Site
from trained.device import device_named
from trained.errors import in_a_line
from trained.task import Batch

if TYPE_CHECKING:
    import pandas as pd

LAWS = {
    "opens": "the backend takes the model",
    "fires": "every site is reached by a pass",
    "observing": "looking changes nothing",
    "rows": "rows of patterns are probabilities of what a query may see",
    "residual": "resid_pre + attn_out + mlp_out = resid_post",
    "heads": "heads sum to attn_out",
    "mixing": "pattern x value x W_O = head_out",
    "neurons": "mlp_act makes mlp_out",
    "values": "norm(resid_pre) W_V makes the values",
    "lens": "the last layer's lens is the logits",
    "attribution": "direct attributions sum to the logit difference",
    "padding left": "a prompt padded on the left is the prompt alone",
    "padding right": "a prompt padded on the right is the prompt alone",
    "transformers": "residuals, patterns, logits are those of eager transformers",
    "hf": "every site shows what backend hf shows",
    "identity": "putting an activation back changes nothing",
    "edits": "an edit changes the logits of its prompt, and of no other",
    "views": "single rows and masses are those of the pattern",
    "resumed": "a pass that starts in mid-model ends alike",
    "branched": "a branch of a stored run ends alike",
    "window": "patterns beyond a long window make attn_out",
}
"""What a law says, in the order of the table."""

LENGTH = 12
"""Tokens of the prompt, unless a short window asks for more."""

SHORT_WINDOW = 64
"""Beyond windows up to this, all laws are tried; beyond longer ones, `window`."""


@dataclass(frozen=True)
class Checkup:
    """What was found, law by law.

    Attributes:
        model: its name.
        found: backend and type, as in "hf float32" -> the laws.
        seconds: how long it took, without loading.
    """

    model: str
    found: Mapping[str, Sequence[Finding]]
    seconds: float

    @property
    def state(self) -> State:
        """Wrong if a law is broken, else refused if one was, else right."""
        return _worst(one for several in self.found.values() for one in several)

    def to_frame(self) -> "pd.DataFrame":
        """A row for each law, backend and type."""
        import pandas as pd

        return pd.DataFrame(
            {"setting": setting, "says": LAWS[finding.law], **asdict(finding)}
            for setting, several in self.found.items()
            for finding in several
        )

    def as_dict(self) -> dict[str, Any]:
        """What `--json` writes."""
        return {
            "schema": 1,
            "model": self.model,
            "state": self.state,
            "seconds": round(self.seconds, 2),
            "settings": {
                setting: [_plain(finding) for finding in several]
                for setting, several in self.found.items()
            },
        }

    def __str__(self) -> str:
        return f"{self.model}: {self.state}\n{self.to_frame().to_string(index=False)}"

    def _repr_html_(self) -> str:
        return str(self.to_frame().to_html(index=False))


def _worst(several: Iterable[Finding]) -> State:
    states = {finding.state for finding in several}
    order: tuple[State, ...] = ("wrong", "refused")
    return next((state for state in order if state in states), "right")


def _plain(finding: Finding) -> dict[str, Any]:
    """Without what JSON has no number for."""
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in asdict(finding).items()
    }


def doctor(
    model: LanguageModel | str | Path,
    *,
    backend: str = "hf",
    dtype: str | torch.dtype = "float32",
    device: str = "auto",
    everything: bool = False,
    told: Callable[[str], None] = lambda _line: None,
) -> Checkup:
    """Try every law of the contract on a model.

    Args:
        model: an opened model, as it is; or what `open` takes.
        backend: for a name: behind which backend.
        dtype: for a name: in which type.
        device: for a name: where.
        everything: for a name: behind every backend, in every type.
        told: hears of every setting when it is done.
    """
    if isinstance(model, LanguageModel):
        started = time.perf_counter()
        own, hf = behind(model.module)
        said = None if own == "bridge" else shortcuts.account(hf, prompt(model))
        found = {f"{own} {_name(model)}": tuple(examined(model, said))}
        return Checkup(model.name, found, time.perf_counter() - started)
    settings = Settings(
        BACKENDS if everything else (backend,),
        tuple(map(dtype_named, DTYPES)) if everything else (dtype_named(dtype),),
        device,
    )
    found, seconds = {}, 0.0
    for setting, several, took in settings.examined(str(model)):
        found[setting] = several
        seconds += took
        told(f"{setting}: {_worst(several)} ({took:.1f} s)")
    return Checkup(str(model), found, seconds)


@dataclass(frozen=True)
class Settings:
    """Behind which backends and in which types a model is examined."""

    backends: tuple[str, ...]
    dtypes: tuple[torch.dtype, ...]
    device: str = "auto"

    def __post_init__(self) -> None:
        for backend in self.backends:
            check_backend(backend)

    def examined(self, name: str) -> Iterator[tuple[str, tuple[Finding, ...], float]]:
        """Setting by setting: what was found, and the seconds that it took."""
        for dtype in self.dtypes:
            yield from self._in(dtype, name)

    def _in(
        self, dtype: torch.dtype, name: str
    ) -> Iterator[tuple[str, tuple[Finding, ...], float]]:
        """In one type: models of several are never in memory together."""
        place = self.device if self.device == SPREAD else device_named(self.device)
        hf, tokenizer = load(name, Loading(dtype, place, families=False))
        precision = str(dtype).removeprefix("torch.")
        for backend in each(f"doctor: {precision}", self.backends, str):
            started = time.perf_counter()
            found = tuple(_opened(hf, tokenizer, backend, name))
            yield f"{backend} {precision}", found, time.perf_counter() - started


def _opened(hf: Any, tokenizer: Any, backend: str, name: str) -> Iterator[Finding]:
    """A model in memory, behind a backend and beside backend hf."""
    try:
        # Backends may rebuild the modules; the weights stay as they are.
        model = opened(name, sharing(hf), tokenizer, backend)
        tokens = prompt(model)
        said, peer = shortcuts.account(hf, tokens), None
        if backend != "hf":
            other = observe(opened(name, sharing(hf), tokenizer, "hf"), tokens)
            peer = {site: other.row(site, 0) for site in other.seen}
    except Exception as error:
        # What a library raises on a model that it does not know is anybody's guess.
        yield Finding("opens", "refused", in_a_line(error))
        return
    yield Finding("opens", "right")
    yield from examined(model, said, peer)


@torch.no_grad()
def examined(
    model: LanguageModel,
    said: Mapping[Site, Tensor] | None = None,
    peer: Mapping[Site, Tensor] | None = None,
) -> Iterator[Finding]:
    """Every law, at every layer.

    Args:
        model: the model.
        said: what transformers itself says of `prompt(model)`, by site.
        peer: what backend hf shows of it.
    """
    try:
        case = padded(model, prompt(model))
    except Exception as error:
        yield Finding("fires", "refused", in_a_line(error))
        return
    yield from findings(case, sites_of(model))
    words = "{} is not what transformers says with eager attention"
    yield judged("transformers", laws.agrees(case, 0, said or {}, words))
    if peer is not None:
        words = "{} is not what backend hf shows"
        yield judged("hf", laws.agrees(case, 0, peer, words))
    for name, law in (
        ("values", laws.values),
        ("attribution", attribution),
        ("views", shortcuts.views),
        ("resumed", shortcuts.resumed),
        ("branched", shortcuts.branched),
    ):
        yield judged(name, law(case))
    yield judged("window", _beyond(model))


def prompt(model: LanguageModel) -> laws.Tokens:
    """Tokens drawn at random, enough to lie beyond a short window."""
    window = window_of(model) or 0
    length = LENGTH if window > SHORT_WINDOW else max(LENGTH, window + 8)
    return random_tokens(model, (1, min(length, model.n_ctx)))


def window_of(model: LanguageModel) -> int | None:
    """How far back some layer sees; None if all see everything."""
    _, module = behind(model.module)
    # Models of TransformerLens' own have another kind of configuration.
    text = getattr(module.config, "get_text_config", lambda **_options: None)
    return getattr(text(decoder=True), "sliding_window", None)


def _beyond(model: LanguageModel) -> Iterator[Compared]:
    window = window_of(model)
    if window is not None and SHORT_WINDOW < window <= model.n_ctx - 8:
        tokens = random_tokens(model, (1, window + 8))
        yield from shortcuts.beyond(model, tokens, window)


def attribution(case: Observed) -> Iterator[Compared]:
    """What the components add to a logit difference sums to it."""
    model = case.model
    assert isinstance(model, LanguageModel)
    right, wrong = (
        torch.full((len(case.tokens),), n, device=model.device) for n in (1, 2)
    )
    examples = Batch(case.tokens, right, case.real)
    parts = logit_attribution(model, examples, wrong).values.float()
    last = Site("resid_post", case.layers[-1])
    rows = torch.arange(len(examples), device=model.device)
    final = case.seen[last][rows, examples.last]
    # A soft cap comes after the sum.
    linear = replace(model.readout, soft_cap=None)
    one, other = linear.target_logits(final, torch.stack([right, wrong], 1)).unbind(1)
    error = (parts.sum(0) - (one - other).float()).abs() / parts.abs().sum(0)
    what = "the components do not sum to the logit difference"
    yield Compared(what, error.max().item(), case.near)


def _name(model: LanguageModel) -> str:
    return str(model.readout.unembedding.dtype).removeprefix("torch.")

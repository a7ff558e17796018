"""The laws that a model must keep before a number taken from it can be trusted.

Hooks that silently do nothing, patterns that were never computed, parts that do not add
up and padding that shifts positions are the usual ways in which such numbers go wrong.
`check_model` finds them when a model is opened, in four short passes; `reasonscope
doctor` tries every law at every layer.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

import torch
from torch import Tensor

from circuits.hooks import Edit, Model, intervene, sites_of
from circuits.sites import Site
from trained.errors import BadInput

from . import laws
from .halves import Halves
from .language_model import LanguageModel, Side, behind
from .laws import Compared, Finding, Observed, Tokens, judged, observe, share

SIZE = (1, 4)
"""Prompts and tokens of the check at load: the least that shows every law broken."""

NOTICEABLE = 1e-5
"""Least effect of an edit, as a share of the logits."""

ROWS = 48
"""Prompts of one pass over edits."""


def check_model(model: Model, tokens: Tokens | None = None) -> None:
    """Raise `BadInput` with the law and the site if a model breaks one.

    The laws of `findings`; edits and padding are tried at the first and the last layer
    of every kind of site, all else at every layer.

    Args:
        model: what to check.
        tokens: prompts to check it on; only a `LanguageModel` can do without.
    """
    if tokens is None:
        tokens = random_tokens(model, SIZE)
    one = tokens[:1]
    case = (
        padded(model, one) if isinstance(model, LanguageModel) else observe(model, one)
    )
    for finding in findings(case, _first_and_last(sites_of(model))):
        if finding.state in ("wrong", "refused"):
            raise BadInput(finding.detail)


def random_tokens(model: Model, size: tuple[int, int]) -> Tokens:
    """Prompts of tokens drawn at random, always the same."""
    if not isinstance(model, LanguageModel):
        raise BadInput(f"check_model needs tokens for a {type(model).__name__}")
    source = torch.Generator().manual_seed(0)
    return torch.randint(model.d_vocab, size, generator=source).to(model.device)


@torch.no_grad()
def findings(case: Observed, edited: Sequence[Site]) -> Iterator[Finding]:
    """Law by law, whether a model keeps it.

    1. every site fires, and observing changes nothing;
    2. rows of attention patterns are probabilities, of what a query may see;
    3. resid_pre + attn_out + mlp_out = resid_post, heads sum to attn_out, neurons make
       mlp_out, pattern x value x W_O = head_out;
    4. the last layer's lens is the logits;
    5. a batch padded on either side has the numbers of single prompts;
    6. putting an activation back where it came from changes nothing;
    7. an edit at any site changes the logits, and those of no other prompt.

    What is known of language models only is not asked of others.

    Args:
        case: what `padded` gives of a language model; of others, one prompt.
        edited: the sites where edits are tried, and padding.
    """
    whole, model = case.tokens[:1], case.model
    language = isinstance(model, LanguageModel)
    yield judged("fires", laws.fires(case))
    yield judged("observing", _unchanged(case))
    yield judged("rows", laws.rows(case))
    yield judged("residual", laws.residual(case))
    if language:
        for law in (laws.heads, laws.mixing, laws.neurons, laws.lens):
            yield judged(law.__name__, law(case))
        alone = observe(model, whole[:, : _half(whole)], sites=edited)
        single = {site: alone.row(site, 0) for site in alone.seen}
        for row, side in enumerate(get_args(Side), 1):
            words = f"padding on the {side} changes {{}}"
            yield judged(f"padding {side}", laws.agrees(case, row, single, words))
    # Two tokens are the fewest with something to look at.
    few = whole[:, :2] if language else whole
    tried = _Edits(model, few, [site for site in edited if site in case.seen], case)
    yield judged("identity", tried.put_back())
    yield judged("edits", tried.effects)


def padded(model: LanguageModel, whole: Tokens) -> Observed:
    """A prompt, and its first half padded on the left and on the right."""
    size, half = whole.shape[1], _half(whole)
    tokens, real = whole.repeat(3, 1), torch.ones(3, size, dtype=torch.bool)
    # Padding holds tokens of the prompt: who looks at it, or counts it, shows it.
    tokens[1, size - half :] = whole[0, :half]
    real[1, : size - half], real[2, half:] = False, False
    return observe(model, tokens, real.to(whole.device))


def _half(tokens: Tokens) -> int:
    return max(tokens.shape[1] // 2, 1)


def _plain(model: Model, tokens: Tokens) -> Tensor:
    """The logits without a mask, positions or hooks of ours: transformers' own call."""
    called: Any = model
    if isinstance(model, LanguageModel):
        backend, hf = behind(model.module)
        called = model.module if backend == "bridge" else hf
    output = called(tokens)
    return getattr(output, "logits", output)


def _unchanged(case: Observed) -> Iterator[Compared]:
    """A pass that is looked at has the logits of one that is not."""
    logits = Site("logits")
    if logits not in case.seen:
        return
    plain = _plain(case.model, case.tokens[:1])[0]
    error = share(case.row(logits, 0), plain)
    what = "observing changes the logits"
    if not error <= case.far:
        again = _plain(case.model, case.tokens[:1])[0]
        differ = not share(again, plain) <= case.near
        what = "two passes differ; call model.eval()" if differ else what
    yield Compared(what, error, case.far)


def _first_and_last(sites: Sequence[Site]) -> list[Site]:
    ends: dict[str, set[int]] = {}
    for kind in {site.kind for site in sites}:
        layers = [site.layer for site in sites if site.kind == kind]
        ends[kind] = {min(layers), max(layers)}
    return [site for site in sites if site.layer in ends[site.kind]]


@dataclass(eq=False)
class _Edits:
    """Passes over copies of a prompt: an edit at one site in each, two left alone.

    Attributes:
        model: the model.
        prompt: the prompt.
        sites: where.
        case: an unedited pass that begins with the prompt.
        effects: what edits did, once `put_back` has run.
    """

    model: Model
    prompt: Tokens
    sites: Sequence[Site]
    case: Observed
    effects: list[Compared] = field(default_factory=list)

    def put_back(self) -> Iterator[Compared]:
        """Whether the prompts that are left alone stay as they were."""
        for start in range(0, len(self.sites), ROWS):
            some = self.sites[start : start + ROWS]
            edits = {site: _noise_in(row) for row, site in enumerate(some)}
            *edited, alone, control = self.logits(edits, len(some) + 2)
            error = share(control, self.expected)
            far = self.case.far
            yield Compared(self.blame(some) if not error <= far else "", error, far)
            noticeable = NOTICEABLE + share(alone, control)
            for site, row in zip(some, edited, strict=True):
                effect = share(row, control)
                what = f"an edit at {site} does not change the logits"
                missing = noticeable / max(effect, 1e-30)
                self.effects.append(Compared(what, missing, 1.0))

    @property
    def expected(self) -> Tensor:
        """The logits without an edit."""
        return self.case.seen[Site("logits")][0, : self.prompt.shape[1]]

    def logits(self, edits: Mapping[Site, Edit], copies: int = 1) -> Tensor:
        """Of some copies of the prompt, edited."""
        with Halves(), intervene(self.model, edits):
            output = self.model(self.prompt.repeat(copies, 1))
        return getattr(output, "logits", output).to(self.expected)

    def blame(self, sites: Sequence[Site]) -> str:
        """Why a prompt that was left alone changed: halving finds the site."""

        def changes(some: Sequence[Site]) -> bool:
            found = self.logits(dict.fromkeys(some, torch.clone))[0]
            return not share(found, self.expected) <= self.case.far

        if not changes(sites):
            return "an edit of one prompt changes another's logits"
        while len(sites) > 1:
            first = sites[: len(sites) // 2]
            sites = first if changes(first) else sites[len(sites) // 2 :]
        return f"an identity patch at {sites[0]} changes the logits"


def _noise_in(row: int) -> Edit:
    """Adds noise as large as the activation itself to one example of a batch."""

    def edit(activation: Tensor) -> Tensor:
        source = torch.Generator().manual_seed(row)
        own = activation[row]
        noise = torch.randn(own.shape, generator=source).to(own)
        edited = activation.clone()
        edited[row] = own + noise * (own.float().std().item() or 1.0)
        return edited

    return edit

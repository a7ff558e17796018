"""Signals of every layer: `measure` against the plain forward pass and the peers.

    python -m scripts.bench extraction

Everybody computes the same: the attention mass on a set of keys for all heads and
queries, the cosine of pairs of residuals, and the logit of the target token at every
position (logit lens), at every layer. The floor is a forward pass with the logits of
the last position alone. Peers run as they are documented, with the logits of all
positions; "last logits" are the same without. Memory is the peak over the floor's, each
in a process of its own.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from circuits.backends.anatomy import Readout
from circuits.hooks import Signal, measure
from circuits.models.language_model import LanguageModel
from circuits.models.open import wrap
from probes.alignment import paired_cosine
from probes.attention import attention_mass
from trained.task import Batch

from .bench_model import GPT2_SMALL, Size, gpt2, opened, prompts
from .bench_timing import Line, in_own_process, interleaved, peak_growth, ratio

SHAPES = {"8 x 128": (8, 128), "1 x 1024": (1, 1024)}
FLOOR, PLAIN, OURS = "floor: last logits", "plain forward", "measure"
CACHE = "TransformerLens run_with_cache"
PEERS = ("transformers eager", CACHE, "nnsight")

Run = Callable[[Batch], dict[str, Tensor]]


class Layer(NamedTuple):
    """What a peer keeps of a layer."""

    pattern: Tensor
    residual: Tensor


def reduced(layers: Iterable[Layer], readout: Readout, batch: Batch) -> dict[str, Any]:
    """The signals from kept patterns and residuals, mean over examples."""
    mass, cosine, target = [], [], []
    for pattern, residual in layers:
        keys = batch.role("keys")[:, None, None]
        mass.append(attention_mass(pattern, keys).mean(0))
        cosine.append(cosines(residual, batch).mean(0))
        target.append(target_logit(readout, residual, batch).mean(0))
    found = {"mass": mass, "cosine": cosine, "target": target}
    return {name: torch.stack(values) for name, values in found.items()}


def cosines(residual: Tensor, batch: Batch) -> Tensor:
    """Of every pair of positions."""
    rows = torch.arange(len(batch), device=residual.device)[:, None]
    own, other = (residual[rows, batch.role(name)] for name in ("source", "partner"))
    return paired_cosine(own, other)


def target_logit(readout: Readout, residual: Tensor, batch: Batch) -> Tensor:
    """Of the target, at every position."""
    return readout.target_logits(residual, batch.targets[:, None])[..., 0]


def signals(readout: Readout, *, whole: bool = False) -> dict[str, Signal]:
    """The same as signals; with `whole`, the mass is read off whole patterns."""

    def from_pattern(pattern: Tensor, batch: Batch) -> Tensor:
        return attention_mass(pattern, batch.role("keys")[:, None, None])

    axes = ("head", "query")
    mass = Signal("pattern", lambda mass, _: mass[..., 0], axes, keys=("keys",))
    return {
        "mass": Signal("pattern", from_pattern, axes) if whole else mass,
        "cosine": Signal("resid_post", cosines, ("pair",)),
        "target": Signal("resid_post", partial(target_logit, readout), ("position",)),
    }


def by_measure(model: LanguageModel, *, whole: bool = False) -> Run:
    """Ours."""
    wanted = signals(model.readout, whole=whole)

    def run(batch: Batch) -> dict[str, Tensor]:
        found = measure(model, [batch], wanted)
        return {name: value.values[0] for name, value in found.items()}

    return run


def forward(model: Any, **options: Any) -> Run:
    """A pass that measures nothing."""

    def run(batch: Batch) -> dict[str, Tensor]:
        model(input_ids=batch.tokens, use_cache=False, **options)
        return {}

    return run


def by_transformers(model: Any, readout: Readout, **options: Any) -> Run:
    """Eager attention, all attentions and hidden states."""
    wanted = {"output_attentions": True, "output_hidden_states": True, **options}

    def run(batch: Batch) -> dict[str, Tensor]:
        # transformers keeps the last residual behind the final norm only.
        last: list[Tensor] = []
        block = model.transformer.h[-1]
        handle = block.register_forward_hook(lambda *args: last.append(args[2]))
        out = model(input_ids=batch.tokens, use_cache=False, **wanted)
        handle.remove()
        residuals = [*out.hidden_states[1:-1], *last]
        layers = map(Layer, out.attentions, residuals)
        return reduced(layers, readout, batch)

    return run


def by_run_with_cache(bridge: Any, readout: Readout) -> Run:
    """TransformerLens' cache of patterns and residuals."""

    def wanted(name: str) -> bool:
        return name.endswith(("pattern", "resid_post"))

    def run(batch: Batch) -> dict[str, Tensor]:
        _, cache = bridge.run_with_cache(batch.tokens, names_filter=wanted)
        layers = [
            Layer(cache["pattern", number], cache["resid_post", number])
            for number in range(bridge.cfg.n_layers)
        ]
        return reduced(layers, readout, batch)

    return run


def by_nnsight(model: Any, readout: Readout, **options: Any) -> Run:
    """A trace that saves patterns and residuals; the model's attention is eager."""
    import nnsight

    traced = nnsight.NNsight(model)

    def run(batch: Batch) -> dict[str, Tensor]:
        with traced.trace(input_ids=batch.tokens, use_cache=False, **options):
            kept = nnsight.save([])
            for block in traced.transformer.h:
                kept.append((block.attn.output[1], block.output))
            traced.output.logits.save()
        return reduced((Layer(*layer) for layer in kept), readout, batch)

    return run


def variant(name: str, size: Size) -> Run:
    """One of the variants; those that leave a model as it is share it."""
    ours = shared(size)
    last = {"logits_to_keep": 1} if name.endswith("last logits") else {}
    if name == CACHE:
        bridge = wrap(ours.module, None, backend="bridge").module
        return by_run_with_cache(bridge, ours.readout)
    if name.startswith("nnsight"):
        return by_nnsight(eager(size, "nnsight"), ours.readout, **last)
    if name.startswith("transformers"):
        return by_transformers(eager(size, "transformers"), ours.readout, **last)
    if name.startswith("measure"):
        return by_measure(ours, whole=name != OURS)
    return forward(ours.module, **last)


@cache
def shared(size: Size) -> LanguageModel:
    """With SDPA."""
    return opened(size)


@cache
def eager(size: Size, _user: str) -> Any:
    """With eager attention; nnsight keeps its own functions in the modules."""
    return gpt2(size, attn_implementation="eager")


NAMES = (
    FLOOR,
    PLAIN,
    OURS,
    "measure, whole patterns",
    *("transformers eager", "transformers eager, last logits"),
    CACHE,
    *("nnsight", "nnsight, last logits"),
)


@torch.no_grad()
def lines(size: Size = GPT2_SMALL, rounds: int = 3) -> Iterator[Line]:
    """Every line of the table."""
    torch.set_num_threads(1)
    runs = {name: variant(name, size) for name in NAMES}
    worst_floor = worst_plain = worst_memory = 0.0
    for shape, aim in zip(SHAPES, (1.35, 1.7), strict=True):
        batch = prompts(size, *SHAPES[shape])
        require_equal(runs, batch)
        timed = interleaved({n: partial(run, batch) for n, run in runs.items()}, rounds)
        for name in NAMES:
            yield Line(f"{shape}, {name}: time / forward", ratio(timed, name, PLAIN))
        worst_floor = max(worst_floor, ratio(timed, OURS, FLOOR))
        worst_plain = max(worst_plain, ratio(timed, OURS, PLAIN))
        best = min(PEERS, key=lambda name: ratio(timed, name, PLAIN))
        where = "long" if shape == "1 x 1024" else "short"
        yield Line(
            f"{shape}, {best} / measure",
            ratio(timed, best, OURS),
            f"extraction.speedup_over_best_peer_{where}",
            f">= {aim}",
        )
        peaks = {name: peak(name, shape) for name in (FLOOR, PLAIN, OURS, CACHE)}
        for name, megabytes in peaks.items():
            yield Line(f"{shape}, {name}: peak MB", megabytes)
        over = {name: megabytes - peaks[FLOOR] for name, megabytes in peaks.items()}
        worst_memory = max(worst_memory, max(over[OURS], 0.0) / over[CACHE])
    yield Line("measure / floor", worst_floor, "extraction.time_over_floor", "<= 1.15")
    yield Line(
        "measure / forward", worst_plain, "extraction.time_over_forward", "<= 0.8"
    )
    yield Line(
        "memory over the floor's: measure / run_with_cache",
        worst_memory,
        "extraction.memory_over_run_with_cache",
        "<= 0.25",
    )


def require_equal(runs: dict[str, Run], batch: Batch) -> None:
    """All variants must give the same numbers."""
    found = {name: run(batch) for name, run in runs.items()}
    for name, own in found.items():
        for signal, values in own.items():
            expected = found[PEERS[0]][signal].cpu()
            error = (values.cpu() - expected).abs().max() / expected.abs().max()
            if error > 1e-5:
                raise AssertionError(f"{name}: {signal} is off by {error:.1e}")


def peak(name: str, shape: str) -> float:
    """Megabytes of a variant, in a process of its own."""
    return in_own_process("scripts.bench_extraction", [name, shape])


@torch.no_grad()
def print_peak(name: str, shape: str) -> None:
    """Run one variant once and print the growth of the peak."""
    torch.set_num_threads(1)
    size = GPT2_SMALL
    run, batch = variant(name, size), prompts(size, *SHAPES[shape])
    run(prompts(size, 1, 32))
    print(peak_growth(lambda: run(batch)))


if __name__ == "__main__":
    print_peak(sys.argv[1], sys.argv[2])

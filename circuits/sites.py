"""The names of what can be observed; the only file that spells hook names.

A `Site` names an observable once for every backend. A new observable is one line in
each table below.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from trained.errors import unknown

Kind = Literal[
    "resid_pre",
    "resid_mid",
    "resid_post",
    "pattern",
    "value",
    "head_out",
    "attn_out",
    "mlp_act",
    "mlp_out",
    "logits",
]

KINDS: tuple[Kind, ...] = get_args(Kind)

_HOOKED: dict[Kind, str] = {
    "resid_pre": "blocks.{layer}.hook_resid_pre",
    "resid_mid": "blocks.{layer}.hook_resid_mid",
    "resid_post": "blocks.{layer}.hook_resid_post",
    "pattern": "blocks.{layer}.attn.hook_pattern",
    "value": "blocks.{layer}.attn.hook_v",
    # Each head added to the residual, identity terms included (hook_z lacks these).
    "head_out": "blocks.{layer}.attn.hook_result",
    "attn_out": "blocks.{layer}.hook_attn_out",
    "mlp_act": "blocks.{layer}.mlp.hook_post",
    "mlp_out": "blocks.{layer}.hook_mlp_out",
    "logits": "hook_logits",
}


@dataclass(frozen=True, order=True)
class Site:
    """One observable of a model, such as `Site("pattern", 0)` or `Site("logits")`."""

    kind: Kind
    layer: int = 0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise unknown("site", self.kind, KINDS)
        if self.kind == "logits" and self.layer != 0:
            raise unknown("layer of logits", self.layer, "none; leave it out")

    def __str__(self) -> str:
        return self.kind if self.kind == "logits" else f"{self.kind}[{self.layer}]"


def described(sites: Iterable[Site]) -> list[str]:
    """Sites in few words: `resid_pre[0..29]`, `mlp_act[1,3]`, `logits`."""
    layers: dict[Kind, list[int]] = {}
    for site in sites:
        layers.setdefault(site.kind, []).append(site.layer)
    return [
        kind if kind == "logits" else f"{kind}[{_span(found)}]"
        for kind, found in layers.items()
    ]


def _span(layers: list[int]) -> str:
    first, last = min(layers), max(layers)
    whole = len(layers) == 1 + last - first and last > first
    return f"{first}..{last}" if whole else ",".join(map(str, layers))


def hooked_mlp(layer: int) -> str:
    """The TransformerLens name of the hook point at the end of an MLP itself."""
    return f"blocks.{layer}.mlp.hook_out"


def hooked_name(site: Site) -> str:
    """The TransformerLens name of the hook point at a site."""
    return _HOOKED[site.kind].format(layer=site.layer)

"""What a scan is asked for; free of torch, so that it is refused at once."""

from dataclasses import dataclass

from circuits.datasets.dataset import Dataset
from circuits.models.choices import check_backend, check_place
from circuits.sites import Kind, Site
from trained.errors import BadInput, unknown

SIGNALS = ("lens", "attention", "alignment", "patching", "attribution")
STATES: tuple[Kind, ...] = (
    *("resid_pre", "resid_mid", "resid_post"),
    *("attn_out", "mlp_out", "mlp_act"),
)
"""Sites whose activations at the roles can be stored: `resid_post:12`."""

NEEDS = {
    "lens": ("answers", "answer"),
    "alignment": ("roles", "roles"),
    "patching": ("corrupt", "corrupt"),
    "attribution": ("corrupt_answer", "corrupt_answer"),
}
"""What a row must have for a signal: as an attribute, and as a field of the file."""


@dataclass(frozen=True)
class Settings:
    """What the numbers depend on, beside the model and the data.

    Attributes:
        signals: in the order in which they are shown.
        dtype: of the model's weights.
        device: where it computes.
        backend: what observes it.
        batch_tokens: of one batch, padding included, unless one prompt has more.
        threads: of every worker: results may depend on them in their last bits.
        seed: of what the nulls draw.
    """

    signals: tuple[str, ...]
    dtype: str = "float32"
    device: str = "auto"
    backend: str = "hf"
    batch_tokens: int = 1024
    threads: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.signals or len(set(self.signals)) != len(self.signals):
            raise BadInput("--signals: name at least one signal, and none twice")
        for signal in self.signals:
            site_of(signal)
        check_backend(self.backend)
        check_place(self.device)
        for name in ("batch_tokens", "threads"):
            if getattr(self, name) < 1:
                raise BadInput(
                    f"--{name.replace('_', '-')} {getattr(self, name)}: give at least 1"
                )

    @property
    def sites(self) -> dict[str, Site]:
        """The sites whose activations are stored, by the name of their signal."""
        named = ((signal, site_of(signal)) for signal in self.signals)
        return {signal: site for signal, site in named if site is not None}


def site_of(signal: str) -> Site | None:
    """The site whose activations a signal stores; None of one of `SIGNALS`."""
    if signal in SIGNALS:
        return None
    kind, sign, layer = signal.partition(":")
    for known in STATES:
        if kind == known and sign and layer.isdecimal() and len(layer) < 6:
            return Site(known, int(layer))
    raise unknown("signal", signal, (*SIGNALS, *(f"{kind}:LAYER" for kind in STATES)))


def default_signals(data: Dataset) -> tuple[str, ...]:
    """The cheap ones that the rows have what is needed for."""
    cheap = ("lens", "attention", "alignment")
    return tuple(signal for signal in cheap if _have(signal, data))


def require(signals: tuple[str, ...], data: Dataset) -> None:
    """`BadInput` if no row has what a signal needs."""
    for signal in signals:
        if not _have(signal, data):
            raise BadInput(
                f"{data.name}: no row has the field '{NEEDS[signal][1]}' that {signal} "
                "needs; add it, or leave the signal out"
            )


def _have(signal: str, data: Dataset) -> bool:
    if signal not in NEEDS:
        return True
    return any(getattr(row, NEEDS[signal][0]) for row in data.rows)

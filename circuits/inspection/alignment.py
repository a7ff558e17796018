"""How alike the positions' representations are to the last one's, by layer."""

from probes.alignment import centred, paired_cosine
from probes.measurement import Measurement

from .lens import layer_labels, residuals
from .subject import Subject


def read_alignment(subject: Subject) -> Measurement:
    """Cosine of the other positions' residuals with the last one's, in [-1, 1].

    cos(h_i - m, h_last - m), m the mean over positions: residual streams share a
    large common direction. The first position is left out: it is the attention sink
    and many times longer than the rest. Axes ("layer", "position").
    """
    states = centred(residuals(subject).float()[:, 1:])
    others = states[:, :-1]
    return Measurement(
        paired_cosine(others, states[:, -1:].expand_as(others)),
        ("layer", "position"),
        {"layer": layer_labels(subject.model), "position": subject.places[1:-1]},
        name="alignment with the last token",
        unit="centred cosine",
    )

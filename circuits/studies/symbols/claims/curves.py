"""The paper's numbers: `CURVE[task][arm][n]`, read off its figures.

Test MSE of real-label tasks (Figures 1c, 16 to 22 and Appendix B), test error of the
programs of Figure 2; arms are named as `Setting.identity` or its model. Numbers were
digitised from the released vector figures, to +-0.005.
"""

from circuits.conditions import near

Curve = dict[int, float]

CURVE: dict[str, dict[str, Curve]] = {
    "figure1": {
        "none": {64: 0.953, 256: 0.745, 512: 0.553, 1024: 0.307, 2048: 0.02, 4096: 0.0},
        "a": {16: 1.02, 32: 0.381, 64: 0.056, 128: 0.017, 256: 0.001},
    },
    "aba_abb": {
        "none": {64: 1.0, 512: 0.65, 1024: 0.125, 2048: 0.013, 8192: 0.0},
        "a": {64: 0.038, 512: 0.002, 2048: 0.0},
        "b": {64: 0.98, 512: 0.14, 2048: 0.017},
        "ab": {64: 0.013, 512: 0.001, 2048: 0.004},
        "mlp": {64: 1.02, 512: 1.01, 2048: 1.0},
        "mlp_incidence": {4: 0.14, 8192: 0.01},
        "rnn": {64: 1.02, 512: 1.02, 2048: 0.58},
        "lstm": {64: 1.02, 512: 1.0, 2048: 0.87},
    },
    "same_different": {
        "none": {64: 0.95, 512: 0.45, 1024: 0.18, 2048: 0.04},
        "a": {32: 0.19, 64: 0.025},
        "mimetic": {32: 0.32, 64: 0.15, 128: 0.03},
    },
    "aabb_abab": {"none": {512: 0.6, 2048: 0.0, 8192: 0.0}},
    "majority-4": {
        "none": {512: 1.05, 2048: 0.85, 8192: 0.0},
        "ab": {128: 0.82, 512: 0.13},
    },
    "majority-6": {"none": {8192: 1.0}, "ab": {512: 0.58, 2048: 0.15, 8192: 0.0}},
    "majority-8": {"none": {8192: 1.0}, "ab": {2048: 0.44, 8192: 0.03}},
    "random-2-5-2-0": {"none": {512: 0.6, 2048: 0.01}},
    "random-2-5-2-1": {"none": {512: 0.05}},
    "random-2-5-2-2": {"none": {512: 0.001}},
    "random-5-5-2-0": {"none": {2048: 0.08}},
    "random-7-5-2-0": {"none": {2048: 0.28}},
    "random-10-5-2-0": {"none": {2048: 0.92}},
    "figure2": {
        "none": {128: 1.0, 256: 0.97, 4096: 0.5, 65536: 0.4, 131072: 0.3, 262144: 0.14},
        "ab": {8: 0.77, 16: 0.5, 2048: 0.5, 4096: 0.108, 8192: 0.002},
    },
}
"""Where the figure does not say how many random templates it has, two are taken."""
LAST_LAYER: dict[float, Curve] = {
    1.0: {64: 1.0, 512: 1.0, 4096: 1.0, 16384: 1.0},
    8.0: {64: 0.8, 512: 0.69, 4096: 0.37, 16384: 0.3},
    64.0: {64: 0.56, 512: 0.28, 4096: 0.18, 16384: 0.12},
}
"""Scale of the frozen weights -> test MSE where only the readout is trained."""
COPY_HALF = {64: 37, 128: 47, 256: 84, 512: 161, 1024: 351, 2048: 622, 4096: 1212}
"""Width -> n at 50 % error of copying an unseen symbol (Figure 5a)."""
PROGRAMS = {"recall": "figure2"}
"""Programs without their constant text -> the programs."""


def value(task: str, arm: str, n: int) -> float | None:
    """The paper's number, if it has one.

    >>> value("aba_abb", "a", 64), value("aba_abb", "a", 63)
    (0.038, None)
    """
    arms = CURVE.get(PROGRAMS.get(task, task), {})
    return arms.get(arm, {}).get(n)


def around(number: float) -> str:
    """What counts as the paper's number at its size: within .15, or half of it.

    >>> around(0.1), around(0.6)
    ('in [-0.05, 0.25]', 'in [0.3, 0.9]')
    """
    return near(number, max(0.15, number / 2))

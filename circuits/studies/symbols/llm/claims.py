"""Claims about abstract symbols in a pretrained language model.

Pretraining is said to find by itself what the identity scalings of this study give:
W_Q W_K^T and W_V W_O^T with strong diagonals. The score of a head's matrix M is
z = sqrt(d) tr(M) / |M|_F, about N(0, 1) for a random head and d for a multiple of the
identity; for rotary positions M is the one at distance zero.

The expectations were written down before any of it was measured. Afterwards it turned
out that the first model tried, SmolLM2-135M, is at chance on programs that print, where
neither rare names nor a lost share mean anything. Programs that repeat their
assignments were added for these (a form with one repetition was tried first, also at
chance); no expectation was changed.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from circuits.claims import Claim, Kind, Null, under
from circuits.conditions import Mean
from trained.config import Preset, require


@dataclass(frozen=True)
class Settings:
    """Sizes of the experiment on a language model."""

    n_draws: int = 12
    """Random programs of each kind of words; every one is printed twice."""
    n_cut: int = 12
    """How many of the printed programs are run again for each surgery."""
    n_choose: int = 12
    """Random programs that markers and heads are chosen on."""
    choosing_seed: int = 10_007
    """Draws the programs to choose on."""
    n_words: int = 400
    """Words at either end of the vocabulary."""
    competent: float = 0.75
    """Accuracy below which rare words are not compared with frequent ones."""
    strong: float = 5.0
    """A diagonal score this large is a strong diagonal; 1 in 3 million random heads."""
    copies: float = 0.5
    """A copying score above this makes a copying head."""
    surgery_share: float = 0.1
    """Share of heads whose identity part is taken off."""
    at_once: int = 16
    """Programs in one pass."""

    def __post_init__(self) -> None:
        for name in ("n_draws", "n_cut", "n_choose", "n_words", "at_once"):
            count = getattr(self, name)
            require(count >= 1, f"{name}={count}: at least 1")
        fits = 0 < self.surgery_share <= 1
        require(fits, f"surgery_share={self.surgery_share}: in (0, 1]")


PRESETS = {"quick": Preset(Settings(), n_seeds=3, cost="about two minutes for SmolLM2")}

MATRICES = {"qk": "W_Q W_K^T", "ov": "W_V W_O^T"}


def claims(settings: Settings) -> Iterator[Claim]:
    """The paper's three leaves, still open, and what is ours."""
    yield from under("Language models", _leaves())
    yield from under("Language models, ours: weights", _weights(settings))
    yield from under("Language models, ours: programs", _programs(settings))
    yield from under("Language models, ours: surgery", _surgery())


def _leaves() -> Iterator[Claim]:
    later = "not measured yet"
    yield Claim(
        "symbols.llm.perplexity",
        "Trainable identity scalings lower the perplexity of GPT-2 from scratch: with"
        " over without, paired seeds.",
        "Figure 6",
        "behaviour",
        weight=4,
        not_tested=later,
    )
    yield Claim(
        "symbols.llm.finetune",
        "A pretrained model needs ten times fewer strings of a template task than the"
        " same one re-initialised.",
        "Figures 7 left and 23",
        "behaviour",
        weight=4,
        not_tested=later,
    )
    yield Claim(
        "symbols.llm.diagonals",
        "Several heads have diagonals of W_Q W_K^T and of W_V W_O^T stronger than their"
        " other entries: more than with the factors of mismatched heads.",
        "Figure 7 right, Section 6",
        "signal",
        weight=3,
        not_tested=later,
    )


def _ours(
    name: str, statement: str, kind: Kind, condition: Mean, null: Null, source: str
) -> Claim:
    return Claim(
        f"symbols.llm.{name}",
        statement,
        source,
        kind,
        (condition,),
        nulls=(null,),
        origin="ours",
    )


def _twin(bound: str) -> Null:
    return Null("random weights", on=lambda lab: lab.twin(), bound=bound)


def _weights(settings: Settings) -> Iterator[Claim]:
    for circuit, matrix in MATRICES.items():
        yield _diagonal(settings, circuit, matrix)
    yield _ours(
        "copying-heads",
        "Heads that raise the logit of the token they attend to: share of heads whose"
        " copying score (sum of eigenvalues over sum of their sizes) is above"
        f" {settings.copies:g}.",
        "signal",
        Mean("share of heads", ">= 0.1", lambda lab: [lab.copying_share()]),
        _twin("< 0.02"),
        "ours",
    )
    yield _ours(
        "matching-head",
        'In programs such as x="u";y="v";print(x) some head looks from the printed name'
        " to its assignment: attention minus that to the other name, in the best head,"
        " new names.",
        "signal",
        Mean("attention", ">= 0.3", lambda lab: lab.each(lab.matching)),
        Null(
            "a printed name that was never assigned",
            measure=lambda lab: lab.each(lab.stranger_matching),
            bound="in [-0.1, 0.1]",
        ),
        "ours, after Section 4: attention sees which tokens are equal",
    )
    yield _ours(
        "diagonal-and-matching",
        "Heads with a more diagonal W_Q W_K^T match more: correlation over heads of z"
        " and the matching score.",
        "signal",
        Mean("correlation", ">= 0.2", lambda lab: lab.each(lab.diagonal_and_matching)),
        _twin("in [-0.2, 0.2]"),
        "ours",
    )


def _diagonal(settings: Settings, circuit: str, matrix: str) -> Claim:
    strong = f"share of heads with z > {settings.strong:g}"
    return _ours(
        f"{circuit}-diagonal",
        f"Many heads have a strongly diagonal {matrix}: {strong}.",
        "signal",
        Mean(strong, ">= 0.2", lambda lab: [lab.diagonal_share(circuit)]),
        _twin("< 0.02"),
        "ours, after Figure 7 right",
    )


def _programs(settings: Settings) -> Iterator[Claim]:
    yield _answers(
        *("values", "program-values", "Figure 2"),
        'x="u";y="v";print(x): the printed value',
    )
    yield _answers(
        *("signs", "program-signs", "Figure 1"),
        "x=1;y=-1;print(x): the printed sign",
    )
    yield _answers(
        *("repeated", "repeated-values", "Figure 2; added later"),
        'x="u";y="v";x="u";y="v";x=": the own value',
    )
    yield _ours(
        "emission",
        "The most likely next token of the whole vocabulary is one of the program's two"
        " values, right or wrong.",
        "behaviour",
        Mean("share", ">= 0.5", lambda lab: lab.each(lab.emission)),
        Null(
            "the two values of another program",
            measure=lambda lab: lab.each(lab.foreign_emission),
            bound="<= 0.05",
        ),
        "ours, after Figure 2: the plateau at one half",
    )
    yield Claim(
        "symbols.llm.rare-names",
        "Rare names and values are repeated as well as frequent ones: difference of the"
        f" accuracies; undefined below {settings.competent:g}.",
        "ours, after Section 1: the relation does not depend on the symbols",
        "behaviour",
        (Mean("difference", "in [-0.1, 0.1]", lambda lab: lab.each(lab.rarity_gap)),),
        controls=(
            Mean(
                "difference between two halves of the frequent ones",
                "in [-0.1, 0.1]",
                lambda lab: lab.each(lab.frequent_gap),
            ),
        ),
        origin="ours",
    )


def _answers(form: str, name: str, source: str, text: str) -> Claim:
    return _ours(
        name,
        f"{text} is preferred to the other one.",
        "behaviour",
        Mean("accuracy", ">= 0.75", lambda lab: lab.accuracies(form)),
        _twin("in [0.3, 0.7]"),
        f"ours, after {source}",
    )


def _removed(circuit: str, matrix: str) -> Claim:
    return _ours(
        f"remove-{circuit}-identity",
        f"Taking the identity part off the tenth of {matrix} with the largest z: share"
        " of the logit difference that is lost, repeated assignments.",
        "causal",
        Mean("lost share", ">= 0.1", lambda lab: lab.lost(circuit)),
        Null(
            "a random rotation of the same size",
            measure=lambda lab: lab.lost(circuit, rotated=True),
            bound="<= 0.05",
        ),
        "ours",
    )


def _surgery() -> Iterator[Claim]:
    for circuit, matrix in MATRICES.items():
        yield _removed(circuit, matrix)
    yield _ours(
        "remove-identity-rare",
        "Rare symbols need the identity parts more: share of the logit difference lost"
        " without them, rare minus frequent, mean of both matrices.",
        "causal",
        Mean("difference", "> 0", lambda lab: lab.lost_by_rarity()),
        Null(
            "a random rotation of the same size",
            measure=lambda lab: lab.lost_by_rarity(rotated=True),
            bound="in [-0.1, 0.1]",
        ),
        "ours",
    )

"""The template tasks: which strings, and what is to be said of them.

A task is a list of templates of one length, each with a label: a number (real-label
tasks) or a symbol (symbolic-label tasks: the value of that wildcard is the answer).
Worked example, same/different: `aa` -> 1, `ab` -> -1. A task is found by name, or
written out as `aab -> 1 | aba -> -1` or `acbda -> c | acbdb -> d`.
"""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import combinations, permutations, product
from statistics import fmean, pstdev
from typing import Literal

from trained.config import require
from trained.errors import BadInput, unknown

from .template import (
    WILDCARDS,
    Template,
    canonical,
    common_instance,
    disjoint,
    is_wildcard,
    parse,
)

Label = float | str
Rule = tuple[str, Label]


@dataclass(frozen=True)
class Task:
    """Templates that a split draws from uniformly, and their labels."""

    name: str
    templates: tuple[Template, ...]
    labels: tuple[Label, ...]
    tokens: tuple[str, ...] = ()
    """Regular tokens that belong to it even if no template has them: the vocabulary of
    random templates does not depend on the draw."""

    def __post_init__(self) -> None:
        sizes = {len(template) for template in self.templates}
        require(len(sizes) == 1, f"task {self.name}: templates of unequal length")
        forms = [canonical(template) for template in self.templates]
        twice = [str(form) for form in forms if forms.count(form) > 1]
        require(not twice, f"task {self.name}: template '{(twice or [''])[0]}' twice")
        kinds = {isinstance(label, str) for label in self.labels}
        require(len(kinds) == 1, f"task {self.name}: numbers and symbols as labels")
        for template, label in zip(self.templates, self.labels, strict=True):
            self._check_label(template, label)
        constant = self.kind == "real" and len(set(self.labels)) == 1
        require(not constant, f"task {self.name}: every template has the same label")

    def _check_label(self, template: Template, label: Label) -> None:
        if isinstance(label, str):
            known = not is_wildcard(label) or label in template.wildcards
            choices = ", ".join(template.wildcards) or "it has none"
            message = f"task {self.name}: '{template}' has no wildcard '{label}'"
            require(known, f"{message}; choose from: {choices}")
        else:
            require(math.isfinite(label), f"task {self.name}: label {label}")

    @property
    def kind(self) -> Literal["real", "symbolic"]:
        """What the labels are."""
        return "symbolic" if isinstance(self.labels[0], str) else "real"

    @cached_property
    def values(self) -> tuple[float, ...]:
        """Real labels centred and scaled, so that a constant answer has MSE 1.

        >>> task("same_different").values
        (1.0, -1.0)
        """
        numbers = [float(label) for label in self.labels]
        centre, spread = fmean(numbers), pstdev(numbers)
        return tuple((number - centre) / spread for number in numbers)

    @property
    def labels_told(self) -> tuple[float, ...]:
        """The distinct values of a real-label task, rising; none of a symbolic one.

        >>> task("same_different").labels_told
        (-1.0, 1.0)
        """
        return tuple(sorted(set(self.values))) if self.kind == "real" else ()

    @property
    def length(self) -> int:
        """Symbols per string."""
        return len(self.templates[0])

    @cached_property
    def n_wildcards(self) -> int:
        """The largest number of wildcards of a template."""
        return max(len(template.wildcards) for template in self.templates)

    @cached_property
    def regular(self) -> tuple[str, ...]:
        """The regular tokens of all templates and labels, sorted."""
        found = {*self.tokens}
        found |= {token for template in self.templates for token in template.regular}
        words = {label for label in self.labels if isinstance(label, str)}
        return tuple(sorted(found | {w for w in words if not is_wildcard(w)}))


def make(name: str, rules: list[Rule], tokens: tuple[str, ...] = ()) -> Task:
    """A task from (template text, label) pairs."""
    return Task(
        name,
        tuple(parse(text) for text, _ in rules),
        tuple(label for _, label in rules),
        tokens,
    )


def majority(k: int) -> list[Rule]:
    """`a{a,b}^(k-1)`: +1 if most of positions 2 to k hold a, else -1; k is even.

    >>> majority(2)
    [('aa', 1.0), ('ab', -1.0)]
    """
    require(k >= 2 and k % 2 == 0, f"majority-{k}: k must be even, at least 2")
    tails = ["".join(tail) for tail in product("ab", repeat=k - 1)]
    return [("a" + t, 1.0 if 2 * t.count("a") > k - 1 else -1.0) for t in tails]


def majority_symbol(k: int = 3) -> list[Rule]:
    """Strings of two symbols, k odd; the answer is the more frequent one, a."""
    words = ("".join(word) for word in product("ab", repeat=k))
    return [(word, "a") for word in words if 2 * word.count("a") > k]


def distribution_of_3() -> list[Rule]:
    """`abc`, two of a permutation of it, four options; which option completes it."""
    rules: list[Rule] = []
    for row in permutations("abc"):
        for options in permutations("abcd"):
            text = "abc" + "".join(row[:2]) + "".join(options)
            rules.append((text, float(options.index(row[2]) + 1)))
    return rules


def match_to_sample() -> list[Rule]:
    """Three slots, two options: +1 if the first repeats the source's equalities."""
    partitions = ["aaa", "aab", "aba", "abb", "abc"]
    rules: list[Rule] = []
    for source, other in permutations(partitions, 2):
        for first, second, label in ((source, other, 1.0), (other, source, -1.0)):
            parts = [source, _shifted(first, "def"), _shifted(second, "ghi")]
            rules.append(("".join(parts), label))
    return rules


def raven() -> list[Rule]:
    """One attribute of a matrix: two rows of a permutation, then two of a third."""
    rows = ["".join(row) for row in permutations("abc")]
    rules: list[Rule] = [
        ("abc" + second + third[:2], third[2]) for second in rows for third in rows
    ]
    return [*rules, ("aaabbbcc", "c")]


def random_task(
    count: int,
    length: int = 5,
    n_wildcards: int = 2,
    n_regular: int = 0,
    *,
    seed: int = 0,
) -> Task:
    """Uniform draws from (W u R)^length with Gaussian labels, pairwise disjoint.

    A seed draws templates and labels; the regular tokens are A, B, ... in every draw.
    """
    name = f"random-{count}-{length}-{n_wildcards}-{n_regular}"
    source = random.Random(f"{name}, seed {seed}")
    require(count >= 2 and length >= 1, f"{name}: at least 2 templates of length 1")
    require(1 <= n_wildcards <= 26, f"{name}: 1 to 26 wildcards")
    require(0 <= n_regular <= 26, f"{name}: 0 to 26 regular tokens")
    tokens = tuple(WILDCARDS[:n_regular].upper())
    symbols = (*WILDCARDS[:n_wildcards], *tokens)
    found: dict[Template, float] = {}
    for _ in range(200 * count):
        drawn = canonical(Template(tuple(source.choices(symbols, k=length))))
        if all(disjoint(drawn, other) for other in found):
            found[drawn] = source.gauss(0, 1)
        if len(found) == count:
            return Task(name, tuple(found), tuple(found.values()), tokens)
    raise BadInput(f"{name}: there are only {len(found)} such templates")


FIGURE_1: list[Rule] = [
    ("a = 1 ; b = -1 ; print ( a )", 1.0),
    ("a = 1 ; b = -1 ; print ( b )", -1.0),
]
FIGURE_2: list[Rule] = [
    ('a = " c " ; b = " d " ; print ( a )', "c"),
    ('a = " c " ; b = " d " ; print ( b )', "d"),
]

_NAMED: dict[str, Callable[[], list[Rule]]] = {
    "same_different": lambda: [("aa", 1.0), ("ab", -1.0)],
    "aba_abb": lambda: [("aba", 1.0), ("abb", -1.0)],
    "aabb_abab": lambda: [("aabb", 1.0), ("abab", -1.0)],
    "figure1": lambda: FIGURE_1,
    "figure2": lambda: FIGURE_2,
    # Figure 2 without its constant text.
    "recall": lambda: [("acbda", "c"), ("acbdb", "d")],
    "copy": lambda: [("a", "a")],
    "print": lambda: [("print ( a )", "a")],
    "majority_symbol": majority_symbol,
    "distribution_of_3": distribution_of_3,
    "match_to_sample": match_to_sample,
    "raven": raven,
}
NAMES = (*_NAMED, "majority-K", "random-R[-LENGTH[-WILDCARDS[-REGULAR]]]")
"""What can be asked for by name, besides a task that is written out."""


@cache
def task(name: str, seed: int = 0) -> Task:
    """The task of a name, or the one that the text writes out.

    A seed matters to random templates only.

    >>> len(task("majority-4").templates), task("aab -> 1 | aba -> -1").length
    (8, 3)
    """
    if "->" in name:
        return _written(name)
    if name in _NAMED:
        return make(name, _NAMED[name]())
    family, *numbers = name.split("-")
    if all(number.isdigit() for number in numbers):
        if family == "majority" and len(numbers) == 1:
            return make(name, majority(int(numbers[0])))
        if family == "random" and 1 <= len(numbers) <= 4:
            return random_task(*map(int, numbers), seed=seed)
    raise unknown("task", name, (*NAMES, "or rules such as 'aab -> 1 | aba -> -1'"))


def _written(text: str) -> Task:
    rules: list[Rule] = []
    for rule in text.split("|"):
        left, arrow, right = (part.strip() for part in rule.partition("->"))
        complete = bool(left and arrow and right)
        require(complete, f"rule '{rule.strip()}' is not of the form 'aab -> 1'")
        rules.append((left, _label(right)))
    found = make(text, rules)
    for first, second in combinations(found.templates, 2):
        both = common_instance(first, second)
        require(
            both is None,
            f"templates '{first}' and '{second}' overlap: '{both}' matches both",
        )
    return found


def _label(text: str) -> Label:
    try:
        return float(text)
    except ValueError:
        return text


def _shifted(word: str, letters: str) -> str:
    """A word in a, b, c spelled with three other letters."""
    return "".join(letters["abc".index(letter)] for letter in word)

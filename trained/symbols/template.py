"""The template language: strings of regular tokens and wildcards.

A single lower-case letter (Latin or Greek) is a wildcard, anything else a regular
token. With spaces the symbols are words, without them characters: `aabST` is
`a a b S T`, and `print ( a )` has one wildcard. A string x matches a template z if
x = sub(z, s) for an injective substitution s of the wildcards whose values avoid the
regular tokens of z. Section 2 of "When can transformers reason with abstract symbols?"
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from trained.config import require

WILDCARDS = "abcdefghijklmnopqrstuvwxyz"
"""The names that canonical forms use, in this order."""


def is_wildcard(symbol: str) -> bool:
    """Whether a symbol stands for any token: one lower-case letter."""
    return len(symbol) == 1 and symbol.isalpha() and symbol.islower()


@dataclass(frozen=True)
class Template:
    """A string of regular tokens and wildcards, at least one symbol long."""

    symbols: tuple[str, ...]

    def __post_init__(self) -> None:
        require(bool(self.symbols), "a template is empty: write for example 'aab'")

    def __str__(self) -> str:
        gap = "" if all(len(symbol) == 1 for symbol in self.symbols) else " "
        return gap.join(self.symbols)

    def __len__(self) -> int:
        return len(self.symbols)

    @cached_property
    def wildcards(self) -> tuple[str, ...]:
        """Its wildcards in the order of their first occurrence."""
        return tuple(dict.fromkeys(filter(is_wildcard, self.symbols)))

    @cached_property
    def regular(self) -> frozenset[str]:
        """Its regular tokens."""
        return frozenset(symbol for symbol in self.symbols if not is_wildcard(symbol))

    @property
    def pattern(self) -> tuple[int, ...]:
        """For every position the number of its symbol's first occurrence.

        >>> parse("abaS").pattern
        (0, 1, 0, 2)
        """
        order = {symbol: i for i, symbol in enumerate(dict.fromkeys(self.symbols))}
        return tuple(order[symbol] for symbol in self.symbols)


def parse(text: str) -> Template:
    """The template that a text describes.

    >>> parse("aabST").wildcards, sorted(parse("print ( a )").regular)
    (('a', 'b'), ['(', ')', 'print'])
    """
    return Template(tuple(text.split() if " " in text.strip() else text.strip()))


def substitute(template: Template, values: Mapping[str, str]) -> tuple[str, ...]:
    """sub(z, s): the string with every wildcard replaced by its value.

    >>> substitute(parse("aabST"), {"a": "Q", "b": "R"})
    ('Q', 'Q', 'R', 'S', 'T')
    """
    return tuple(values.get(symbol, symbol) for symbol in template.symbols)


def match(string: Sequence[str], template: Template) -> bool:
    """Whether a string of tokens matches a template.

    >>> [match(x, parse("aabST")) for x in ("QQRST", "QQQST", "QQSST")]
    [True, False, False]
    """
    if len(string) != len(template):
        return False
    values: dict[str, str] = {}
    for token, symbol in zip(string, template.symbols, strict=True):
        expected = values.setdefault(symbol, token) if is_wildcard(symbol) else symbol
        if token != expected:
            return False
    drawn = set(values.values())
    return len(drawn) == len(values) and not drawn & template.regular


def common_instance(first: Template, second: Template) -> Template | None:
    """The most general template whose strings match both, or None.

    A string that matches z has exactly the equalities of z, so a common one exists if
    both templates have the same equalities, agree wherever both are regular, and
    neither fixes at a wildcard of the other a token that the other has elsewhere.
    Tokens are taken to be unlimited.

    >>> str(common_instance(parse("aA"), parse("ab")))
    'aA'
    >>> common_instance(parse("aa"), parse("ab")) is None
    True
    """
    if len(first) != len(second) or first.pattern != second.pattern:
        return None
    merged = []
    for one, other in zip(first.symbols, second.symbols, strict=True):
        if is_wildcard(one) and is_wildcard(other):
            merged.append(one)
            continue
        token = other if is_wildcard(one) else one
        clash = token in (second.regular if is_wildcard(other) else frozenset())
        clash |= token in (first.regular if is_wildcard(one) else frozenset())
        if clash or (not is_wildcard(one) and not is_wildcard(other) and one != other):
            return None
        merged.append(token)
    return Template(tuple(merged))


def disjoint(first: Template, second: Template) -> bool:
    """Whether no string matches both templates.

    >>> disjoint(parse("aba"), parse("abb")), disjoint(parse("aA"), parse("ab"))
    (True, False)
    """
    return common_instance(first, second) is None


def canonical(template: Template) -> Template:
    """The same template with its wildcards renamed a, b, c, ... as they occur.

    >>> str(canonical(parse("yyxS")))
    'aabS'
    """
    names = dict(zip(template.wildcards, WILDCARDS, strict=False))
    return Template(substitute(template, names))

from itertools import product

import pytest

from trained.errors import BadInput
from trained.symbols.template import (
    canonical,
    common_instance,
    disjoint,
    is_wildcard,
    match,
    parse,
    substitute,
)


def test_symbols_are_letters_or_words():
    assert parse("aabST").symbols == ("a", "a", "b", "S", "T")
    program = parse("a = 1 ; print ( a )")
    assert program.wildcards == ("a",)
    assert program.regular == {"=", "1", ";", "print", "(", ")"}
    assert is_wildcard("α")
    assert not is_wildcard("A")
    with pytest.raises(BadInput, match="template is empty"):
        parse("  ")


def test_strings_that_match_by_hand():
    template = parse("aabST")
    assert match("QQRST", template)
    assert not match("QQQST", template)  # not injective
    assert not match("QQSST", template)  # b -> S, which the template has
    assert not match("QRRST", template)
    assert not match("QQRS", template)


def test_substitutions_match_their_template():
    template = parse("abaS")
    assert match(substitute(template, {"a": "X", "b": "Y"}), template)
    assert not match(substitute(template, {"a": "X", "b": "X"}), template)
    assert not match(substitute(template, {"a": "S", "b": "Y"}), template)


def test_common_instances_by_hand():
    assert str(common_instance(parse("aA"), parse("ab"))) == "aA"
    assert str(common_instance(parse("Ab"), parse("aB"))) == "AB"
    assert common_instance(parse("aA"), parse("Ab")) is None
    assert common_instance(parse("aab"), parse("aba")) is None
    assert common_instance(parse("ab"), parse("abc")) is None


def test_disjointness_agrees_with_brute_force():
    # Two regular tokens and two more: enough for two wildcards in two templates.
    tokens = "ABXYZ"
    templates = ["".join(symbols) for symbols in product("abAB", repeat=3)]
    strings = ["".join(string) for string in product(tokens, repeat=3)]
    matched = {
        text: {string for string in strings if match(string, parse(text))}
        for text in templates
    }
    for first, second in product(templates, repeat=2):
        expected = not matched[first] & matched[second]
        assert disjoint(parse(first), parse(second)) == expected, (first, second)


def test_a_common_instance_is_the_most_general():
    first, second = parse("aAb"), parse("abB")
    both = common_instance(first, second)
    assert both is not None
    for string in product("ABXYZ", repeat=3):
        each = match(string, first) and match(string, second)
        assert match(string, both) == each


def test_canonical_forms_forget_names():
    assert str(canonical(parse("yyxS"))) == "aabS"
    assert canonical(parse("ba")) == canonical(parse("ab"))
    assert canonical(canonical(parse("zxz"))) == canonical(parse("zxz"))
    assert canonical(parse("aS")) != canonical(parse("aT"))

from itertools import combinations, product
from statistics import fmean

import pytest

from trained.errors import BadInput
from trained.symbols.tasks import NAMES, task
from trained.symbols.template import (
    canonical,
    common_instance,
    disjoint,
    is_wildcard,
    match,
    parse,
    substitute,
)

PLAIN = [name for name in NAMES if not name.startswith(("majority-", "random-"))]


@pytest.mark.parametrize(
    ("name", "count", "length"),
    [
        ("same_different", 2, 2),
        ("aba_abb", 2, 3),
        ("aabb_abab", 2, 4),
        ("majority-2", 2, 2),
        ("majority-4", 8, 4),
        ("majority-6", 32, 6),
        ("figure1", 2, 12),
        ("figure2", 2, 16),
        ("recall", 2, 5),
        ("copy", 1, 1),
        ("print", 1, 4),
        ("majority_symbol", 4, 3),
        ("distribution_of_3", 144, 9),
        ("match_to_sample", 40, 9),
        ("raven", 37, 8),
        ("random-15", 15, 5),
        ("random-7-10-3-2", 7, 10),
    ],
)
def test_sizes_of_the_tasks(name, count, length):
    found = task(name)
    assert len(found.templates) == count
    assert found.length == length
    forms = {canonical(template) for template in found.templates}
    assert len(forms) == count


@pytest.mark.parametrize("name", PLAIN)
def test_no_string_matches_two_templates(name):
    templates = task(name).templates
    assert all(disjoint(a, b) for a, b in combinations(templates, 2))


def test_labels_by_hand():
    majority = task("majority-4")
    labels = {
        str(t): v for t, v in zip(majority.templates, majority.labels, strict=True)
    }
    assert labels["aaab"] == 1
    assert labels["abba"] == -1
    recall = task("recall")
    assert recall.labels == ("c", "d")
    assert recall.kind == "symbolic"
    three = task("distribution_of_3")
    answers = {
        str(t): label for t, label in zip(three.templates, three.labels, strict=True)
    }
    # The rows abc and bc?: a is missing, and it is the third option.
    assert answers["abcbcdbac"] == 3
    assert all(three.labels.count(float(index)) == 36 for index in (1, 2, 3, 4))


@pytest.mark.parametrize("name", ["same_different", "distribution_of_3", "random-6"])
def test_a_constant_answer_has_mean_squared_error_one(name):
    values = task(name).values
    assert fmean(values) == pytest.approx(0, abs=1e-9)
    assert fmean(value**2 for value in values) == pytest.approx(1)


def test_a_seed_draws_random_templates():
    assert task("random-5") == task("random-5")
    assert task("random-5").labels != task("random-6").labels[:5]
    drawn = [task("random-5-5-2-2", seed) for seed in range(6)]
    assert len({found.templates for found in drawn}) == 6
    assert len({found.labels for found in drawn}) == 6
    # The vocabulary is the same in every draw, so that seeds can be stacked.
    assert all(found.regular == ("A", "B") for found in drawn)
    for found in drawn:
        assert all(disjoint(a, b) for a, b in combinations(found.templates, 2))
    assert task("aba_abb", 0) == task("aba_abb", 1)


def test_labels_that_are_told_apart():
    assert task("same_different").labels_told == (-1.0, 1.0)
    assert len(task("distribution_of_3").labels_told) == 4
    assert task("recall").labels_told == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("aab -> c | aba -> a", "'aab' has no wildcard 'c'; choose from: a, b"),
        ("aab -> 1 | bba -> -1", "template 'aab' twice"),
        ("aA -> 1 | ab -> -1", "'aA' and 'ab' overlap: 'aA' matches both"),
        ("aab -> 1 | ab -> -1", "templates of unequal length"),
        ("aab -> 1 | aba -> a", "numbers and symbols as labels"),
        ("aab -> 1 | aba -> 1", "every template has the same label"),
        ("aab -> 1 | aba", "'aba' is not of the form"),
        ("sameness", "unknown task 'sameness'; choose from: same_different"),
        ("majority-3", "k must be even"),
        ("random-40", "only 16 such templates"),
    ],
)
def test_bad_tasks_are_one_clear_line(text, message):
    with pytest.raises(BadInput, match=message) as raised:
        task(text)
    assert "\n" not in str(raised.value)


def test_tasks_can_be_written_out():
    written = task("aba -> 1 | abb -> -1")
    assert written.templates == task("aba_abb").templates
    assert written.values == task("aba_abb").values


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

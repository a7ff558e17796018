"""Conditions and quantities of the claims, by hand and on labs that are made up."""

import pickle
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace

import pytest

from circuits.claims import Claim, judge
from circuits.conditions import Share
from circuits.studies.bridge import STUDY
from circuits.studies.bridge.claims.decline import retention, slope, slopes
from circuits.studies.bridge.claims.fisher import Contrast, Fisher
from trained.bridge.config import Config, Gpt, Recipe, gpt

CONFIG = Config(
    gpt=Gpt(regimes=("small", "standard", "decay"), compared=(3, 5), steps=1000)
)

Curve = dict[int, float]


@dataclass(frozen=True)
class Imagined:
    """A lab whose accuracies are given: arm -> ood by kappa; seeds add a little."""

    ood: Callable[[Recipe], Curve]
    task: str = ""

    def specimens(self, recipe: Recipe) -> list[SimpleNamespace]:
        asked = replace(recipe, task=self.task or recipe.task)
        value = self.ood(asked)[asked.complexity]
        found = []
        for seed in range(3):
            own = min(1.0, max(0.0, value + 0.01 * (seed - 1) * (0 < value < 1)))
            hits = Share(round(own * 20 * asked.complexity), 20 * asked.complexity)
            known = {"ood": own, "ood_hits": hits, "single_hops": 1.0}
            found.append(SimpleNamespace(**known, seen=1.0))
        return found

    def instead(self, **changes: str) -> "Imagined":
        return replace(self, task=changes["task"])

    def untrained(self) -> "Imagined":
        return Imagined(lambda _recipe: {1: 0.0, 3: 0.0, 5: 0.0})


def papers(recipe: Recipe) -> Curve:
    """What the paper says of every arm."""
    if recipe.task == "none":
        return {1: 0.0, 3: 0.0, 5: 0.0}
    if recipe.maps == "degenerate":
        return {3: 0.9, 5: 0.85}
    if recipe.model == "embedding":
        return {1: 1.0, 3: 0.4, 5: 0.1}
    if recipe.regime == "standard":
        return {1: 0.9, 3: 0.35, 5: 0.1}
    return {1: 1.0, 3: 0.9, 5: 0.8}


def found_here(recipe: Recipe) -> Curve:
    """What comes out here: standard fails, small composes a little without identity."""
    if recipe.regime != "small":
        return {1: 0.0, 3: 0.0, 5: 0.0}
    if recipe.model == "gpt" and recipe.task == "none":
        return {1: 0.3, 3: 0.3, 5: 0.3}
    return papers(recipe)


def claim(name: str, config: Config = CONFIG) -> Claim:
    return next(c for c in STUDY.claims_at(config) if c.id == f"bridge.{name}")


LEAVES = (
    *("ood.none-fails", "ood.nonzero", "ood.in-distribution"),
    *("decline.together", "decline.graceful", "decline.decay"),
    "decline.small-recovers",
)


@pytest.mark.parametrize("name", LEAVES)
def test_what_the_paper_says_is_confirmed(name: str) -> None:
    found = judge(claim(name), Imagined(papers))
    assert found.word == "confirmed", found.reason


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("ood.none-fails", "refuted"),
        ("ood.nonzero", "refuted"),
        ("ood.in-distribution", "refuted"),
        ("decline.together", "not tested"),
        ("decline.graceful", "not tested"),
        ("decline.decay", "refuted"),
        ("decline.small-recovers", "confirmed"),
    ],
)
def test_what_is_not_so_is_not_confirmed(name: str, word: str) -> None:
    found = judge(claim(name), Imagined(found_here))
    assert found.word == word, found.reason


def test_a_gain_without_identity_counts_against_the_leaf() -> None:
    """Small initialisation that composes as well without identity recovers nothing."""

    def alike(recipe: Recipe) -> Curve:
        return papers(replace(recipe, task="identity"))

    found = judge(claim("decline.small-recovers"), Imagined(alike))
    assert found.word == "refuted"
    found = judge(claim("decline.decay"), Imagined(alike))
    assert found.word == "inconclusive"
    assert "without identity" in found.reason


def test_a_map_of_complexity_one_must_not_decline() -> None:
    def slumping(recipe: Recipe) -> Curve:
        return {3: 0.3, 5: 0.1} if recipe.maps == "degenerate" else papers(recipe)

    found = judge(claim("decline.together"), Imagined(slumping))
    assert found.word == "inconclusive"


def test_slopes_and_retention_by_hand() -> None:
    assert slope([1, 3, 5], [0.9, 0.5, 0.1]) == pytest.approx(-0.2)
    lab = Imagined(papers)
    assert slopes(CONFIG, gpt())(lab) == pytest.approx([-0.0525, -0.05, -0.0475])
    assert retention(CONFIG, gpt())(lab)[1] == pytest.approx(0.85)
    nothing = lab.untrained()
    assert retention(CONFIG, gpt())(nothing) == [0, 0, 0]


def test_fisher_by_hand() -> None:
    condition = Fisher("x", "> 0", lambda _lab: [])
    all_or_none = [Contrast(Share(5, 5), Share(0, 5))]
    # One table of 10 choose 5 is as extreme.
    assert condition.p_value(all_or_none) == pytest.approx(1 / 252)
    assert condition.state(all_or_none) == "holds"
    one_hit = [Contrast(Share(1, 20), Share(0, 20))] * 3
    assert condition.state(one_hit) == "open"
    assert condition.state([Contrast(Share(2, 20), Share(2, 20))]) == "fails"
    # Pooled: three hits in each of three seeds.
    assert condition.state([Contrast(Share(3, 20), Share(0, 20))] * 3) == "holds"
    assert float(one_hit[0]) == pytest.approx(0.05)


def test_a_contrast_comes_whole_from_another_process() -> None:
    sent = Contrast(Share(3, 20), Share(1, 20))
    found = pickle.loads(pickle.dumps(sent))
    assert (found, found.one, found.other) == (sent, Share(3, 20), Share(1, 20))

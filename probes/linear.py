"""Can a linear map read a property off a representation, and not off noise?

A probe accuracy alone says little: a rich probe reads labels out of noise. Every result
therefore carries the majority baseline and a control task on the same split (Hewitt and
Liang 2019, "Designing and Interpreting Probes with Control Tasks"). Falsified by: an
accuracy no better than either.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupShuffleSplit, StratifiedShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits
from torch import Tensor

Integers = NDArray[np.int64]
Reals = NDArray[np.float64]


@dataclass(frozen=True)
class LinearProbe:
    """What a linear probe reached on held-out examples, beside its controls."""

    accuracy: float
    """Share of test examples labelled right, in [0, 1]."""
    control_accuracy: float
    """The same probe on the control task: labels the representation cannot know."""
    chance: float
    """Test accuracy of always answering the majority class of the training half."""
    n_train: int
    n_test: int
    n_classes: int
    seed: int

    @property
    def selectivity(self) -> float:
        """Accuracy minus control accuracy, in [-1, 1] (Hewitt and Liang 2019)."""
        return self.accuracy - self.control_accuracy


def linear_probe(
    representations: Float[Tensor, "example d_model"],
    labels: Int[Tensor, " example"],
    *,
    groups: Int[Tensor, " example"] | None = None,
    types: Int[Tensor, " example"] | None = None,
    test_share: float = 0.25,
    seed: int = 0,
) -> LinearProbe:
    """Train a multinomial logistic probe and its control on one seeded split.

    Features are standardised on the training half; the penalty is scikit-learn's
    default (L2, C = 1).

    Args:
        representations: One state per example.
        labels: The property to read.
        groups: Examples of one group stay on one side of the split, so that the test
            asks for unseen groups (subjects, entities); if None, it is stratified.
        types: The control task gives every type one random label, kept over the split
            (a word type of Hewitt and Liang); if None, labels are shuffled.
        test_share: Share of examples (or groups) held out.
        seed: Of the split and of the control labels.
    """
    features = representations.detach().cpu().double().numpy()
    wanted = labels.detach().cpu().long().numpy()
    control = _control_labels(wanted, _array(types), seed)
    train, test = _split(wanted, _array(groups), test_share, seed)
    classes, counts = np.unique(wanted[train], return_counts=True)
    if len(classes) < 2:
        raise ValueError(
            f"the training half holds only class {classes.tolist()}; a probe needs two"
        )
    majority = classes[counts.argmax()]
    return LinearProbe(
        accuracy=_accuracy(features, wanted, train, test),
        control_accuracy=_accuracy(features, control, train, test),
        chance=float((wanted[test] == majority).mean()),
        n_train=len(train),
        n_test=len(test),
        n_classes=len(np.unique(wanted)),
        seed=seed,
    )


def _array(labels: Int[Tensor, " example"] | None) -> Integers | None:
    return None if labels is None else labels.detach().cpu().long().numpy()


def _control_labels(wanted: Integers, types: Integers | None, seed: int) -> Integers:
    random = np.random.default_rng(seed)
    if types is None:
        return random.permutation(wanted)
    names, type_of = np.unique(types, return_inverse=True)
    return random.choice(wanted, size=len(names))[type_of]


def _split(
    wanted: Integers, groups: Integers | None, test_share: float, seed: int
) -> tuple[Integers, Integers]:
    if groups is not None:
        if len(np.unique(groups)) < 2:
            raise ValueError("a group-held-out split needs at least 2 groups, got 1")
        grouped = GroupShuffleSplit(1, test_size=test_share, random_state=seed)
        train, test = next(grouped.split(wanted, wanted, groups))
        return train, test
    classes, counts = np.unique(wanted, return_counts=True)
    if counts.min() < 2:
        raise ValueError(
            f"class {classes[counts.argmin()]} has 1 example; a stratified split "
            "needs 2"
        )
    stratified = StratifiedShuffleSplit(1, test_size=test_share, random_state=seed)
    train, test = next(stratified.split(wanted, wanted))
    return train, test


def _accuracy(
    features: Reals, wanted: Integers, train: Integers, test: Integers
) -> float:
    if len(np.unique(wanted[train])) < 2:
        # Control labels of few types can fall on one class: then the probe is constant.
        return float((wanted[test] == wanted[train][0]).mean())
    probe = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
    # Matrices this small only lose by threads, and much on a busy machine.
    with threadpool_limits(1):
        probe.fit(features[train], wanted[train])
    return float(probe.score(features[test], wanted[test]))

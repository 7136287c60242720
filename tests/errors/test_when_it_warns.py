"""Which standard situations a fit warns of, and which it must keep quiet about."""

import re
import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn import datasets

from nystrom import (
    KernelKMeans,
    KernelLogisticRegression,
    KernelPCA,
    KernelRidge,
    KernelRidgeClassifier,
    Nystroem,
    SpectralClustering,
)
from nystrom.exceptions import ApproximationWarning


def drawn(make, seed=0):
    return lambda: make(np.random.default_rng(seed))


def scaled(load):
    X, y = load(return_X_y=True)
    return (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-9), y


# Ordinary rows with a target: nothing is wrong with any of them at default settings.
ORDINARY: dict[str, Callable] = {
    "digits": lambda: datasets.load_digits(return_X_y=True),
    "iris": lambda: datasets.load_iris(return_X_y=True),
    "wine, columns of other units": lambda: datasets.load_wine(return_X_y=True),
    "cancer, scaled": lambda: scaled(datasets.load_breast_cancer),
    "diabetes": lambda: datasets.load_diabetes(return_X_y=True),
    "moons": lambda: datasets.make_moons(1000, noise=0.1, random_state=0),
    "swiss roll": lambda: datasets.make_swiss_roll(1500, random_state=0),
    "friedman": lambda: datasets.make_friedman1(1500, random_state=0),
    "blobs": lambda: datasets.make_blobs(1500, n_features=10, centers=8, random_state=0),
    "normal": drawn(lambda rng: (rng.normal(size=(2000, 20)), rng.integers(2, size=2000))),
    "lognormal": drawn(lambda rng: (np.exp(rng.normal(size=(2000, 8))), rng.normal(size=2000))),
    "ones and zeros": drawn(lambda rng: ((rng.random((1500, 40)) < 0.1) * 1.0, rng.normal(size=1500))),
}
MACHINES = {
    "Nystroem": lambda y: Nystroem(random_state=0),
    "KernelRidge": lambda y: KernelRidge(alpha=1.0, random_state=0),
    "KernelPCA": lambda y: KernelPCA(n_components=5, random_state=0),
    "a machine of classes": lambda y: KernelRidgeClassifier(random_state=0) if len(np.unique(y)) < 20 else None,
}


def caught_in(fit):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit()
    return [w for w in caught if issubclass(w.category, ApproximationWarning)]


@pytest.mark.parametrize("rows", ORDINARY)
@pytest.mark.parametrize("machine", MACHINES)
def test_a_default_fit_of_ordinary_rows_does_not_warn(rows, machine):
    X, y = ORDINARY[rows]()
    model = MACHINES[machine](y)
    if model is not None:
        assert [str(w.message) for w in caught_in(lambda: model.fit(X, y))] == []


class Situation(NamedTuple):
    """Rows on which the approximation fails, the machine, and the share, cause and step that the warning must name."""

    rows: Callable
    machine: Callable
    says: tuple[str, ...]


def rare_clusters(rng):
    X = rng.normal(size=(20_000, 20))
    centres = rng.normal(size=(6, 20))
    X[:60] = np.repeat(20 * centres / np.linalg.norm(centres, axis=1, keepdims=True), 10, axis=0)
    X[:60] += 0.1 * rng.normal(size=(60, 20))
    return X


def some_normal(rng):
    return rng.normal(size=(600, 10))


NARROW = (r"\d+% of the kernel of 600 rows", "bandwidth is so narrow", "a smaller gamma")
WARNS = {
    "narrow": Situation(some_normal, lambda: Nystroem(gamma=50.0, n_components=20), NARROW),
    "narrow, ridge": Situation(some_normal, lambda: KernelRidge(alpha=1.0, gamma=50.0, n_landmarks=40), NARROW),
    "narrow, components": Situation(some_normal, lambda: KernelPCA(gamma=50.0, n_components=3, n_landmarks=40), NARROW),
    "narrow, classes": Situation(
        some_normal, lambda: KernelLogisticRegression(C=1.0, gamma=50.0, n_landmarks=40), NARROW
    ),
    "narrow, clusters": Situation(some_normal, lambda: KernelKMeans(n_clusters=2, gamma=50.0, n_landmarks=40), NARROW),
    "narrow, graph": Situation(
        some_normal, lambda: SpectralClustering(n_clusters=2, gamma=50.0, n_landmarks=40), NARROW
    ),
    "few landmarks": Situation(
        lambda rng: rng.normal(size=(600, 40)),
        lambda: Nystroem(n_components=5, n_landmarks=12),
        (r"12 landmarks leave \d+%", "too few landmarks", "a larger n_landmarks"),
    ),
    "sparse text": Situation(
        lambda rng: sp.random(600, 5000, 0.005, format="csr", random_state=0),
        lambda: Nystroem(n_components=30),
        (r"leave \d+% of the kernel", "sparse rows of very many columns", "a linear model"),
    ),
    "a tolerance out of reach": Situation(
        lambda rng: rng.normal(size=(600, 10)),
        lambda: Nystroem(tol=0.01, n_landmarks=40),
        ("40 landmarks reach", "n_landmarks allows no more; it would take about", "Raise tol or the limit"),
    ),
    "rare clusters and a rank that is cut": Situation(
        rare_clusters,
        lambda: Nystroem(gamma=0.01, n_components=20, n_landmarks=60),
        (r"rank of 20 loses about \d+ rows or more", "directions that explain more", "n_components=None keeps"),
    ),
}


@pytest.mark.parametrize("name", WARNS)
def test_a_fit_that_fails_warns_once_with_the_share_the_cause_and_the_next_step(name):
    situation = WARNS[name]
    X = situation.rows(np.random.default_rng(0))
    y = np.arange(X.shape[0]) % 2
    model = situation.machine().set_params(random_state=0)
    caught = caught_in(lambda: model.fit(X, y))
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert re.search(".*".join(situation.says), str(caught[0].message))

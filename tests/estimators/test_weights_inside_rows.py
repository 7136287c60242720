"""Weights inside rows count as those given beside them, and as repeated rows."""

from __future__ import annotations

import numpy as np
import pytest

from nystrom import (
    GaussianProcessRegressor,
    KernelKMeans,
    KernelLogisticRegression,
    KernelPCA,
    KernelRidge,
    KernelRidgeClassifier,
    KernelSVC,
    KernelSVR,
    Nystroem,
    SpectralClustering,
    open_rows,
)
from nystrom.rows import as_blocks

rng = np.random.default_rng(3)
n = 240
X = rng.normal(size=(n, 3))
y = np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=n)
weight = rng.integers(0, 4, n).astype(float)
classes = np.digitize(y, [-0.5, 0.5])
repeated = np.repeat(np.arange(n), weight.astype(int))
SHARED = {"landmarks": X[weight > 0][:40], "gamma": 0.3}


def in_blocks(target, w=weight):
    """Return rows that hold target and weights, in blocks of other sizes than those of an array."""
    return open_rows(lambda: ((X[i : i + 70], target[i : i + 70], w[i : i + 70]) for i in range(0, n, 70)))


MACHINES = [
    (KernelRidge(0.1, fit_intercept=True, **SHARED), y, "predict"),
    (KernelRidge("auto", selection="gcv", **SHARED), y, "predict"),
    (KernelRidge(0.1, solver="cg", tol=1e-12, **SHARED), y, "predict"),
    (KernelRidge(0.1, solver="exact", fit_intercept=True, tol=1e-12, **SHARED), y, "predict"),
    (KernelRidgeClassifier(0.1, class_weight={0: 1, 1: 2, 2: 3}, **SHARED), classes, "decision_function"),
    (KernelRidgeClassifier(0.1, class_weight="balanced", **SHARED), classes, "decision_function"),
    (KernelLogisticRegression(C=1.0, tol=1e-10, **SHARED), classes, "predict_proba"),
    (KernelSVC(C=1.0, tol=1e-10, **SHARED), classes, "decision_function"),
    (KernelSVR(C=1.0, tol=1e-10, **SHARED), y, "predict"),
    (GaussianProcessRegressor(alpha=0.1, amplitude=1.0, landmarks=SHARED["landmarks"], gamma=0.3), y, "predict"),
]


@pytest.mark.parametrize(("machine", "target", "answer"), MACHINES, ids=lambda value: None)
def test_a_weight_is_a_number_of_repetitions(machine, target, answer):
    exact = getattr(machine, "solver", None) == "exact"  # it reads rows by number
    held = as_blocks(X, target, weight=weight) if exact else in_blocks(target)
    inside = getattr(machine.fit(held), answer)(X)
    twice = getattr(machine.fit(X[repeated], target[repeated]), answer)(X)
    np.testing.assert_allclose(inside, twice, rtol=1e-5, atol=1e-6)
    if not isinstance(machine, GaussianProcessRegressor):
        beside = getattr(machine.fit(X, target, sample_weight=weight), answer)(X)
        np.testing.assert_allclose(inside, beside, rtol=1e-6, atol=1e-8)
    alike = getattr(machine.fit(X, target), answer)(X)
    assert np.abs(alike - inside).max() > 1e-3


def test_components_and_cuts_count_repetitions():
    inside, twice = (KernelPCA(3, **SHARED).fit(rows) for rows in (in_blocks(y), X[repeated]))
    for name in ("eigenvalues_", "explained_variance_", "explained_variance_ratio_", "offset_"):
        np.testing.assert_allclose(getattr(inside, name), getattr(twice, name), rtol=1e-7, atol=1e-9)
    cuts = [
        SpectralClustering(3, random_state=0, **SHARED).fit(rows).cut_values_ for rows in (in_blocks(y), X[repeated])
    ]
    np.testing.assert_allclose(*cuts, rtol=1e-7)
    maps = [Nystroem(n_components=10, **SHARED).fit(rows) for rows in (in_blocks(y), X[repeated])]
    np.testing.assert_allclose(maps[0].eigenvalues_, maps[1].eigenvalues_, rtol=1e-9)


def test_inertia_counts_weights():
    heavy = np.where(X[:, 0] > 0, 1000.0, 1e-3)
    light, drawn = (KernelKMeans(4, random_state=0, **SHARED).fit(in_blocks(y, w)) for w in (np.ones(n), heavy))
    inertia = [
        float(np.sum(w * np.square(model.map_.features(X) - model.cluster_centers_[model.labels_]).sum(axis=1)))
        for model, w in ((light, np.ones(n)), (drawn, heavy))
    ]
    assert light.inertia_ == pytest.approx(inertia[0], rel=1e-6)
    assert drawn.inertia_ == pytest.approx(inertia[1], rel=1e-6)


@pytest.mark.parametrize("solver", ["factor", "cg"])
def test_a_metric_keeps_the_weights_of_blocks(solver):
    asked = {"metric": [1.0, 2.0, 3.0], "n_landmarks": 40, "landmarks": "kmeans++", "random_state": 0, "solver": solver}
    inside = KernelRidge(0.1, **asked).fit(in_blocks(y))
    beside = KernelRidge(0.1, **asked).fit(X, y, sample_weight=weight)
    assert inside.kernel_.kernel.gamma == pytest.approx(beside.kernel_.kernel.gamma, rel=1e-12)
    np.testing.assert_allclose(inside.predict(X), beside.predict(X), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("machine", [KernelRidge(0.1, **SHARED), KernelRidgeClassifier(0.1, **SHARED)])
def test_a_score_weighs_rows_as_they_say(machine):
    target = y if isinstance(machine, KernelRidge) else classes
    machine.fit(X, target)
    expected = machine.score(X, target, sample_weight=weight)
    assert machine.score(in_blocks(target)) == pytest.approx(expected, rel=1e-12)
    assert expected != pytest.approx(machine.score(X, target), rel=1e-6)

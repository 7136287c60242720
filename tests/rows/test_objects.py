"""Rows that are objects: every machine and selector takes words, graphs or series with a kernel that is a function."""

from __future__ import annotations

import operator
import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import cross_val_score

import nystrom
from nystrom import KernelRidge, KernelRidgeClassifier, Nystroem, kernel_eigh, select_landmarks
from nystrom.kernels import FromCallable, make_kernel
from nystrom.landmarks import SELECTORS
from nystrom.rows.objects import Objects, holds_objects

rng = np.random.default_rng(0)
LETTERS = np.array(list("abcde"))
WORDS = ["".join(rng.choice(LETTERS[i % 2 : i % 2 + 4], rng.integers(2, 7))) for i in range(120)]
CLASSES = np.arange(120) % 2
# As a matrix of counts, the same kernel is linear, plus the constant of equal words.
COUNTS = np.array([[word.count(letter) for letter in LETTERS] for word in WORDS], dtype=float)


def of_pair(a, b):
    return float(sum(a.count(letter) * b.count(letter) for letter in LETTERS))


def of_lists(left, right):
    return np.array([[of_pair(a, b) for b in right] for a in left])


@pytest.mark.parametrize("function", [of_pair, of_lists], ids=["pair", "lists"])
@pytest.mark.parametrize("solver", ["factor", "cg", "exact"])
def test_predictions_are_those_of_the_same_kernel_of_columns(function, solver):
    given = {"alpha": 0.5, "solver": solver, "landmarks": np.arange(40), "random_state": 0}
    found = KernelRidge(kernel=function, **given).fit(WORDS, CLASSES)
    expected = KernelRidge(kernel="linear", **given).fit(COUNTS, CLASSES)
    np.testing.assert_allclose(found.predict(WORDS), expected.predict(COUNTS), atol=1e-6)
    assert found.landmarks_.ravel().tolist() == WORDS[:40]


def test_sums_of_functions_and_every_container_are_the_same():
    kernel = FromCallable(of_pair) + 0.5 * FromCallable(of_lists)
    given = {"alpha": 0.5, "landmarks": np.arange(30)}
    first = KernelRidge(kernel=kernel, **given).fit(WORDS, CLASSES).predict(WORDS)
    for container in (tuple, np.array, pd.Series, lambda words: np.array(words, dtype=object)):
        other = KernelRidge(kernel=kernel, **given).fit(container(WORDS), CLASSES)
        np.testing.assert_array_equal(other.predict(container(WORDS)), first)
    expected = KernelRidge(kernel=1.5 * nystrom.kernels.Linear(), **given).fit(COUNTS, CLASSES).predict(COUNTS)
    np.testing.assert_allclose(first, expected, atol=1e-8)


@pytest.mark.parametrize("landmarks", sorted(SELECTORS))
def test_every_selector_finds_rows(landmarks):
    fitted = Nystroem(kernel=of_pair, landmarks=landmarks, n_landmarks=4, n_components=4, random_state=0).fit(WORDS)
    assert [word for (word,) in fitted.landmarks_] == [WORDS[i] for i in fitted.landmark_indices_]
    error = fitted.approximation_error(WORDS, "trace")
    assert 0 <= error.value < 0.6
    assert fitted.certificate_.trace.value == pytest.approx(error.value, rel=1e-6)


@pytest.mark.parametrize("name", ["KernelSVC", "KernelLogisticRegression", "KernelKMeans", "SpectralClustering"])
def test_other_machines_take_objects(name):
    machine = getattr(nystrom, name)(kernel=of_pair, n_landmarks=20, random_state=0)
    found = machine.fit(WORDS, CLASSES)
    labels = found.predict(WORDS) if hasattr(found, "predict") else found.labels_
    assert len(labels) == len(WORDS)


def test_regressors_and_components_take_objects():
    mean, deviation = (
        nystrom.GaussianProcessRegressor(kernel=of_pair, n_landmarks=20, random_state=0)
        .fit(WORDS, COUNTS[:, 0])
        .predict(WORDS, return_std=True)
    )
    np.testing.assert_allclose(mean, COUNTS[:, 0], atol=0.2)
    assert (deviation >= 0).all()
    assert nystrom.KernelSVR(kernel=of_pair, n_landmarks=20).fit(WORDS, COUNTS[:, 0]).score(WORDS, COUNTS[:, 0]) > 0.9
    assert nystrom.KernelPCA(3, kernel=of_pair, n_landmarks=20).fit_transform(WORDS).shape == (120, 3)
    assert len(kernel_eigh(WORDS, n_components=3, kernel=of_pair, n_landmarks=20)[0]) == 3
    assert select_landmarks(WORDS, 3, kernel=of_pair, random_state=0).indices.shape == (3,)


@pytest.mark.parametrize("name", [name for name in nystrom.estimators.__all__ if name[0].isupper()])
def test_a_fit_evaluates_each_object_with_each_landmark_once(name):
    calls = []

    def counted(left, right):
        calls.append(len(left) * len(right))
        return of_lists(left, right)

    getattr(nystrom, name)(kernel=counted, n_landmarks=30, random_state=0).fit(WORDS * 10, np.tile(CLASSES, 10))
    n, m = 10 * len(WORDS), 30
    # Above n × m: pairs of landmarks, the diagonal (again for graph cuts), the check of the kernel and of a few rows.
    assert n * m <= sum(calls) <= n * m + m * m + 3 * n + 4096 + 200


def test_models_are_pickled_with_their_landmarks_and_saved_if_these_are_text(tmp_path):
    fitted = KernelRidge(kernel=of_pair, n_landmarks=20, random_state=0).fit(WORDS, CLASSES)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict(WORDS), fitted.predict(WORDS))
    assert again.predict_interval(WORDS).shape == (120, 2)
    with pytest.raises(TypeError, match=r"cannot be saved.*imports=True"):
        nystrom.save(fitted, tmp_path / "model")
    equal = KernelRidge(kernel=operator.eq, n_landmarks=20, random_state=0).fit(WORDS, CLASSES)
    expected = equal.predict(WORDS)
    nystrom.save(equal, tmp_path / "model", imports=True)
    del equal
    with pytest.warns(UserWarning, match="imports _operator:eq"):
        again = nystrom.load(tmp_path / "model", imports=True)
    np.testing.assert_array_equal(again.predict(WORDS), expected)
    sets = KernelRidge(kernel=operator.eq, n_landmarks=5).fit([frozenset(word) for word in WORDS], CLASSES)
    with pytest.raises(TypeError, match="is a frozenset, and a model file holds numbers, text"):
        nystrom.save(sets, tmp_path / "model", imports=True)


def test_objects_are_let_go_when_nobody_reads_them():
    before = len(Objects._alive)
    KernelRidge(kernel=of_pair, n_landmarks=20, random_state=0).fit(WORDS, CLASSES).predict(WORDS)
    assert len(Objects._alive) == before


def test_series_of_any_length_are_objects_and_a_matrix_is_none():
    series = [np.arange(1.0 + i % 4) for i in range(40)]
    lengths = np.array([len(each) for each in series], dtype=float)

    def kernel(a, b):
        return float(np.exp(-abs(len(a) - len(b))))

    fitted = KernelRidge(kernel=kernel, alpha=1e-3, landmarks=np.arange(8)).fit(series, lengths)
    np.testing.assert_allclose(fitted.predict([np.zeros(3), np.zeros(3)]), 3.0, atol=0.1)
    assert holds_objects(series)
    assert not holds_objects([[1.0, 2.0], [3.0, 4.0]])
    assert not holds_objects(COUNTS)
    assert not holds_objects([])
    with pytest.raises(ValueError, match="give a sequence of objects"):
        fitted.predict(np.ones((3, 1)))


def test_it_crosses_validation_and_threads_change_nothing():
    machine = KernelRidgeClassifier(kernel=of_pair, n_landmarks=30, random_state=0)
    assert cross_val_score(machine, WORDS, CLASSES, cv=3).mean() > 0.7
    one, two = (machine.set_params(n_jobs=n).fit(WORDS, CLASSES).decision_function(WORDS) for n in (1, 2))
    np.testing.assert_array_equal(one, two)


def test_what_cannot_be_is_said():
    with pytest.raises(TypeError, match="must take two lists of objects and give a matrix, or take two objects"):
        KernelRidge(kernel=lambda a: 1.0).fit(WORDS, CLASSES)
    for kernel in ("gaussian", make_kernel(of_pair).on(0)):
        with pytest.raises(ValueError, match=r"X holds text.*whose kernel is a function of two objects"):
            KernelRidge(kernel=kernel).fit(WORDS, CLASSES)
    with pytest.raises(ValueError, match=f"gave nan for '.*' and '{WORDS[0]}'"):
        KernelRidge(kernel=lambda a, b: np.nan if WORDS[0] in (a, b) else float(a == b)).fit(WORDS, CLASSES)
    with pytest.raises(ValueError, match="engine='dask' cannot send objects"):
        KernelRidge(kernel=of_pair, engine="dask").fit(WORDS, CLASSES)
    with pytest.raises(ValueError, match="needs the coordinates"):
        Nystroem(kernel=of_pair, n_components=5, fit_inverse_transform=True).fit(WORDS)

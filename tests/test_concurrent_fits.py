"""Fits in threads at the same time give the bits that they give one after another, with the GIL and without it."""

import sys
import sysconfig
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.sparse as sp

from nystrom import KernelKMeans, KernelPCA, KernelRidge, KernelRidgeClassifier, Nystroem
from nystrom.loops import instruction_set

ROUNDS = 3


def _rows(seed, n=700, p=12):
    return np.random.default_rng(seed).normal(size=(n, p))


def _features(seed, **parameters):
    model = Nystroem(n_components=20, n_landmarks=40, random_state=seed, **parameters).fit(_rows(seed))
    return model.landmarks_, model.projection_


def _single(seed):
    model = Nystroem(n_components=20, n_landmarks=40, random_state=seed).fit(_rows(seed).astype(np.float32))
    return model.landmarks_, model.projection_


def _sparse(seed):
    X = sp.random(600, 80, density=0.05, format="csr", random_state=seed)
    return (Nystroem(n_components=15, n_landmarks=30, gamma=0.5, random_state=seed).fit_transform(X),)


def _ridge(seed):
    X = _rows(seed)
    model = KernelRidge(alpha=0.1, n_landmarks=50, random_state=seed, n_jobs=2).fit(X, np.sin(X[:, 0]))
    return (model.predict(X),)


def _classes(seed):
    X = _rows(seed)
    model = KernelRidgeClassifier(alpha=0.1, n_landmarks=50, random_state=seed).fit(X, X[:, 0] > X[:, 1])
    return (model.decision_function(X),)


def _components(seed):
    return (KernelPCA(n_components=5, n_landmarks=40, random_state=seed).fit_transform(_rows(seed)),)


def _clusters(seed):
    return (KernelKMeans(n_clusters=4, n_landmarks=40, n_components=10, random_state=seed).fit_predict(_rows(seed)),)


JOBS = [_features, _single, _sparse, _ridge, _classes, _components, _clusters]


def _together(jobs):
    """Run each job in a thread of its own, all started at the same moment."""
    start = threading.Barrier(len(jobs))

    def run(job):
        start.wait()
        return job[0](job[1])

    with ThreadPoolExecutor(len(jobs)) as pool:
        return list(pool.map(run, jobs))


def _assert_same_bits(found, wanted):
    for one, other in zip(found, wanted, strict=True):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_array_equal(a, b)


def test_different_models_at_the_same_time():
    jobs = [(job, seed) for seed in range(2) for job in JOBS]
    wanted = [job(seed) for job, seed in jobs]
    for _ in range(ROUNDS):
        _assert_same_bits(_together(jobs), wanted)


def test_one_fitted_model_in_many_threads():
    X = _rows(0)
    model = Nystroem(n_components=20, n_landmarks=40, random_state=0).fit(X)
    wanted = model.transform(X)
    for _ in range(ROUNDS):
        # Nothing that a transform makes on first use is there yet.
        fresh = Nystroem(n_components=20, n_landmarks=40, random_state=0).fit(X)
        for found in _together([(fresh.transform, X)] * 8):
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.skipif(not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this Python always has a GIL")
@pytest.mark.skipif(instruction_set() is None, reason="the loops are not in use")
def test_the_loops_do_not_turn_the_gil_on():
    assert not sys._is_gil_enabled()

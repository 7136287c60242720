"""Means of sparse clusters without the entries that hardly change the kernel."""

import numpy as np
import pytest
import scipy.sparse as sp

from nystrom import Nystroem, select_landmarks
from nystrom.engine import LocalEngine
from nystrom.kmeans import KMeansResult
from nystrom.landmarks.clustered import labelled_means, thin_means
from nystrom.rows import as_blocks


def zipf_rows(n=600, p=5000, seed=0):
    rng = np.random.default_rng(seed)
    frequency = 1 / np.arange(1, p + 1)
    columns = rng.choice(p, size=(n, 60), p=frequency / frequency.sum())
    X = sp.csr_matrix((rng.random(n * 60), columns.ravel(), np.arange(0, 60 * n + 1, 60)), shape=(n, p))
    X.sum_duplicates()
    return X


def clustering(n, m, seed=0):
    labels = np.random.default_rng(seed).integers(m, size=n).astype(np.int32)
    return KMeansResult(np.zeros((m, 1)), labels, np.bincount(labels, minlength=m), 0.0, 1, ())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("weighted", [False, True])
def test_no_mean_loses_more_than_allowed(dtype, weighted):
    X = zipf_rows().astype(dtype)
    rows, found = as_blocks(X), clustering(600, 7)
    weight = np.random.default_rng(1).random(600) if weighted else None
    whole = labelled_means(rows, LocalEngine(), found, weight)
    for lost in (0.0, 0.01, 0.1):
        thin = thin_means(rows, found, lost, weight)
        assert thin.dtype == dtype
        gone = np.asarray(sp.csr_matrix(whole).astype(np.float64).toarray() - sp.csr_matrix(thin).toarray())
        assert np.all((gone**2).sum(axis=1) <= lost + 1e-10)
    assert sp.csr_matrix(thin).nnz < 0.7 * sp.csr_matrix(whole).nnz


def test_the_default_takes_thin_means_that_are_as_good():
    X = zipf_rows(n=2000)
    points = select_landmarks(X, 40, random_state=0).points
    whole = select_landmarks(X, 40, method="sketched-kmeans", random_state=0).points
    assert sp.csr_matrix(points).nnz < sp.csr_matrix(whole).nnz
    ours = Nystroem(n_components=20, n_landmarks=40, random_state=0).fit(X).approximation_error(X).value
    paper = Nystroem(n_components=20, landmarks="sketched-kmeans", n_landmarks=40, random_state=0).fit(X)
    assert ours <= 1.02 * paper.approximation_error(X).value


def test_a_narrow_kernel_keeps_more_entries():
    X = zipf_rows()
    wide, narrow = (select_landmarks(X, 20, gamma=gamma, random_state=0).points for gamma in (0.01, 10.0))
    assert sp.csr_matrix(wide).nnz < sp.csr_matrix(narrow).nnz


@pytest.mark.parametrize("repeated", [False, True])
def test_as_many_landmarks_as_rows_stay_exact(repeated):
    X = zipf_rows(n=80)
    rows = sp.vstack([X, X[:40], X[:10]]).tocsr() if repeated else X
    fitted = Nystroem(n_landmarks=80, n_components=None, random_state=0).fit(rows)
    assert fitted.certificate_.trace.value < 1e-12


def test_thin_means_depend_on_weights_as_on_repetitions():
    X = zipf_rows(n=300)
    weight = np.random.default_rng(2).integers(0, 4, size=300)
    found = clustering(300, 9)
    twice = np.repeat(np.arange(300), weight)
    repeated = KMeansResult(found.centers, found.labels[twice], np.bincount(found.labels[twice]), 0.0, 1, ())
    one = thin_means(as_blocks(X), found, 0.05, weight.astype(float))
    other = thin_means(as_blocks(X[twice]), repeated, 0.05)
    np.testing.assert_allclose(sp.csr_matrix(one).toarray(), sp.csr_matrix(other).toarray(), rtol=0, atol=1e-12)

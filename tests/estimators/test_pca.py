"""Kernel principal components: scikit-learn's at m = n, centred, there and back."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn import decomposition
from sklearn.datasets import load_digits
from sklearn.utils.estimator_checks import parametrize_with_checks

from nystrom.estimators import KernelPCA
from nystrom.rows import as_blocks


@parametrize_with_checks([KernelPCA(), KernelPCA(n_components=2, fit_inverse_transform=True)])
def test_scikit_learn_accepts_the_estimator(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def X():
    return np.random.default_rng(0).normal(size=(200, 5))


KERNELS = [("rbf", 0.2), ("linear", None), ("polynomial", 0.1), ("cosine", None)]


@pytest.mark.parametrize(("kernel", "gamma"), KERNELS)
def test_all_rows_as_landmarks_give_scikit_learns_components(X, kernel, gamma):
    theirs = decomposition.KernelPCA(
        4, kernel="poly" if kernel == "polynomial" else kernel, gamma=gamma, eigen_solver="dense"
    ).fit(X)
    ours = KernelPCA(4, kernel=kernel, gamma=gamma, landmarks=X).fit(X)
    np.testing.assert_allclose(ours.eigenvalues_, theirs.eigenvalues_, rtol=1e-8)
    new = np.random.default_rng(1).normal(size=(30, 5))
    for rows in (X, new):
        mine, reference = ours.transform(rows), theirs.transform(rows)
        signs = np.sign(np.sum(mine * reference, axis=0))
        np.testing.assert_allclose(mine * signs, reference, atol=1e-8)


def test_the_way_back_is_scikit_learns(X):
    parameters = {"gamma": 0.2, "fit_inverse_transform": True, "alpha": 0.3}
    theirs = decomposition.KernelPCA(6, kernel="rbf", eigen_solver="dense", **parameters).fit(X)
    ours = KernelPCA(6, landmarks=X, **parameters).fit(X)
    reference = theirs.inverse_transform(theirs.transform(X))
    np.testing.assert_allclose(ours.inverse_transform(ours.transform(X)), reference, atol=1e-8)


def test_few_landmarks_find_the_way_back_nearly():
    X, _ = load_digits(return_X_y=True)
    X = X / 16
    model = KernelPCA(40, n_landmarks=200, fit_inverse_transform=True, alpha=1e-2, random_state=0).fit(X)
    back = model.inverse_transform(model.transform(X))
    assert np.mean((back - X) ** 2) < 0.15 * np.mean((X - X.mean(axis=0)) ** 2)


def test_components_are_centred_uncorrelated_and_of_the_stated_variance(X):
    model = KernelPCA(5, n_landmarks=40, random_state=0)
    scores = model.fit_transform(X)
    np.testing.assert_allclose(scores.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(scores.T @ scores / len(X), np.diag(model.explained_variance_), atol=1e-12)


def test_explained_shares_are_of_the_whole_variance(X):
    few = KernelPCA(gamma=0.2, n_landmarks=20, random_state=0).fit(X)
    all_of_them = KernelPCA(gamma=0.2, landmarks=X).fit(X)
    assert few.explained_variance_ratio_.sum() < 1 - 1e-3
    assert all_of_them.explained_variance_ratio_.sum() == pytest.approx(1.0, abs=1e-9)


def test_every_container_gives_the_same_components(X):
    model = KernelPCA(3, gamma=0.2, landmarks=X[:30])
    base = model.fit_transform(X)
    for form in (sp.csr_matrix(X), as_blocks(X, block_rows=32), np.asfortranarray(X)):
        np.testing.assert_allclose(model.fit(form).transform(form), base, atol=1e-9)
    np.testing.assert_allclose(model.fit_transform(X.astype(np.float32)), base, atol=1e-4)


def test_a_precomputed_kernel_serves(X):
    K = np.exp(-0.2 * ((X[:, None] - X[None]) ** 2).sum(axis=-1))
    ours = KernelPCA(3, kernel="precomputed", landmarks=np.arange(len(X))).fit_transform(K)
    reference = KernelPCA(3, gamma=0.2, landmarks=X).fit_transform(X)
    np.testing.assert_allclose(np.abs(ours), np.abs(reference), atol=1e-8)
    with pytest.raises(ValueError, match="needs the coordinates"):
        KernelPCA(3, kernel="precomputed", landmarks="uniform", fit_inverse_transform=True).fit(K)


def test_the_way_back_must_be_asked_for(X):
    model = KernelPCA(2, random_state=0).fit(X)
    with pytest.raises(AttributeError, match="set fit_inverse_transform=True"):
        model.inverse_transform(np.zeros((1, 2)))
    with pytest.raises(ValueError, match="X must have 2 columns"):
        model.set_params(fit_inverse_transform=True).fit(X).inverse_transform(np.zeros((1, 3)))


def test_the_residual_says_how_far_new_rows_are(X):
    model = KernelPCA(2, gamma=0.2, n_landmarks=100, random_state=0).fit(X)
    assert np.median(model.residual(X)) < 0.3
    np.testing.assert_allclose(model.residual(X[:3] + 100), 1.0)


@pytest.mark.parametrize("n", [178, 1000])
def test_each_of_a_few_rows_is_a_landmark(n):
    X = np.random.default_rng(n).normal(size=(n, 13))
    model = KernelPCA(3, gamma=10 / 13, random_state=0).fit(X)
    assert len(model.landmarks_) == n
    exact = decomposition.KernelPCA(3, kernel="rbf", gamma=10 / 13).fit(X)
    np.testing.assert_allclose(model.eigenvalues_, exact.eigenvalues_, rtol=1e-8)


def test_of_more_rows_more_are_landmarks_where_few_leave_much():
    X = np.random.default_rng(0).normal(size=(1500, 3))
    assert len(KernelPCA(2, gamma=0.01, random_state=0).fit(X).landmarks_) == 100
    narrow = KernelPCA(2, gamma=4.0, random_state=0).fit(X)
    assert len(narrow.landmarks_) == 1000
    assert len(KernelPCA(2, gamma=4.0, n_landmarks=150, random_state=0).fit(X).landmarks_) == 150

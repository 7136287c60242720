"""Parameters and attributes of scikit-learn's estimators: taken, or refused with advice."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from sklearn import cluster, decomposition, gaussian_process, kernel_approximation, kernel_ridge, svm
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

import nystrom

PAIRS = [
    (kernel_ridge.KernelRidge, nystrom.KernelRidge),
    (kernel_approximation.Nystroem, nystrom.Nystroem),
    (decomposition.KernelPCA, nystrom.KernelPCA),
    (gaussian_process.GaussianProcessRegressor, nystrom.GaussianProcessRegressor),
    (svm.SVC, nystrom.KernelSVC),
    (svm.SVR, nystrom.KernelSVR),
    (cluster.SpectralClustering, nystrom.SpectralClustering),
]
RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3))
y = X @ [1.0, 2.0, 3.0] + 1


@pytest.mark.parametrize(("theirs", "ours"), PAIRS)
def test_every_parameter_of_scikit_learns_estimator_is_taken_and_survives_clone(theirs, ours):
    given = theirs().get_params(deep=False)
    assert set(given) <= set(inspect.signature(ours).parameters)
    copy = clone(ours(**given)).get_params(deep=False)
    assert {name: copy[name] for name in given} == given


def test_solver_settings_of_scikit_learn_have_no_effect():
    plain = nystrom.KernelPCA(2, random_state=0).fit_transform(X)
    options = {"eigen_solver": "arpack", "tol": 0.1, "iterated_power": 3, "remove_zero_eig": True, "copy_X": False}
    assert np.array_equal(nystrom.KernelPCA(2, random_state=0, **options).fit_transform(X), plain)


def test_affinity_is_the_kernel_and_kernel_params_are_those_of_a_function():
    def kernel(A, B, width):
        return np.exp(-width * ((A[:, None] - B[None]) ** 2).sum(axis=2))

    found = nystrom.SpectralClustering(3, affinity=kernel, kernel_params={"width": 0.5}, random_state=0).fit(X)
    same = nystrom.SpectralClustering(3, kernel="rbf", gamma=0.5, random_state=0).fit(X)
    assert np.allclose(found.cut_values_, same.cut_values_)
    assert nystrom.SpectralClustering(affinity="precomputed").__sklearn_tags__().input_tags.pairwise


def test_optimizer_none_keeps_a_scikit_kernel_as_it_is():
    kernel = ConstantKernel(3.0) * RBF(2.0) + WhiteKernel(0.1)
    ours = nystrom.GaussianProcessRegressor(kernel, optimizer=None, alpha=1e-10, landmarks=X).fit(X, y)
    theirs = gaussian_process.GaussianProcessRegressor(kernel, optimizer=None).fit(X, y)
    assert ours.gamma_ == 1 / 8
    assert np.allclose(ours.predict(X), theirs.predict(X))
    assert not kernel.k1.k2.hyperparameter_length_scale.fixed


def test_probabilities_need_no_parameter():
    X = np.random.default_rng(0).normal(size=(200, 3))
    with_it, without = (
        nystrom.KernelSVC(C=1.0, probability=given, random_state=0).fit(X, X[:, 0] > 0) for given in (True, False)
    )
    assert np.array_equal(with_it.predict_proba(X), without.predict_proba(X))


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (nystrom.KernelSVC(C=1.0, decision_function_shape="ovo"), "OneVsOneClassifier"),
        (nystrom.SpectralClustering(affinity="nearest_neighbors"), "no landmarks"),
        (nystrom.GaussianProcessRegressor(optimizer=None), "give gamma a number"),
        (nystrom.GaussianProcessRegressor(optimizer=min), "must be 'fmin_l_bfgs_b' or None"),
        (nystrom.GaussianProcessRegressor(alpha=np.ones(50)), "same number of entries as y; got 50 for 60 rows"),
        (nystrom.KernelRidge(alpha=0), "not unique.*1e-8"),
    ],
)
def test_what_would_change_the_result_is_refused_with_advice(model, said):
    with pytest.raises(ValueError, match=said):
        model.fit(X, y > 0)


def test_another_way_to_assign_labels_is_noted():
    with pytest.warns(UserWarning, match="found by k-means"):
        nystrom.SpectralClustering(2, assign_labels="discretize", random_state=0).fit(X)


@pytest.mark.parametrize(
    "model",
    [
        nystrom.KernelRidge(1e-3, fit_intercept=True),
        nystrom.KernelRidge(1e-3, fit_intercept=True, solver="exact"),
        nystrom.KernelSVR(100.0),
        nystrom.KernelSVC(C=1.0),
        nystrom.KernelRidgeClassifier(),
        nystrom.KernelLogisticRegression(C=1.0),
    ],
)
def test_a_linear_kernel_has_coefficients_of_the_columns(model):
    classes = hasattr(model, "decision_function")
    model = clone(model).set_params(kernel="linear").fit(X, np.digitize(y, [0, 2]) if classes else y)
    found = model.decision_function(X) if classes else model.predict(X)[:, None]
    assert np.allclose(X @ model.coef_.T + model.intercept_, found)


def test_fitted_names_of_scikit_learn_lead_to_ours():
    features = nystrom.Nystroem(n_components=5, random_state=0).fit(X)
    values = features.kernel_(X, features.components_) @ features.normalization_.T
    assert np.allclose(values, features.transform(X))
    assert features.gamma_ == features.kernel_.gamma
    assert nystrom.KernelPCA(2, gamma=None).fit(X).gamma_ == 1 / 3
    assert nystrom.KernelRidge(alpha=1.0, metric="diagonal").fit(X, y).gamma_ > 0


@pytest.mark.parametrize(
    ("model", "name", "said"),
    [
        (nystrom.KernelPCA(2), "eigenvectors_", r"transform\(X\) / np.sqrt"),
        (nystrom.KernelSVR(C=1.0), "support_vectors_", "see landmarks_"),
        (nystrom.KernelSVR(C=1.0), "dual_coef_", "landmark_coef_"),
        (nystrom.KernelRidge(alpha=1.0), "dual_coef_", "compute_dual=True"),
        (nystrom.KernelRidge(alpha=1.0), "coef_", "kernel='linear'"),
        (nystrom.KernelRidge(alpha=1.0, kernel="linear"), "gamma_", "has no gamma"),
        (nystrom.KernelRidge(alpha=1.0), "nothing", "no attribute 'nothing'"),
    ],
)
def test_names_without_a_value_say_where_to_look(model, name, said):
    with pytest.raises(AttributeError, match=said):
        getattr(model.fit(X, y), name)


def test_eigenvectors_are_found_as_the_error_says():
    model = nystrom.KernelPCA(2, landmarks=X, gamma=0.5).fit(X)
    vectors = model.transform(X) / np.sqrt(model.eigenvalues_)
    theirs = decomposition.KernelPCA(2, kernel="rbf", gamma=0.5).fit(X).eigenvectors_
    assert np.allclose(abs((vectors * theirs).sum(axis=0)), 1)

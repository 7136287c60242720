"""Learning block by block, and merging what was learned apart, give the fit to all rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from nystrom import (
    GaussianProcessRegressor,
    KernelKMeans,
    KernelPCA,
    KernelRidge,
    KernelRidgeClassifier,
    Nystroem,
    SpectralClustering,
)

rng = np.random.default_rng(0)
X = rng.normal(size=(1200, 4))
y = np.sin(X[:, 0]) + X[:, 1]
w = rng.uniform(0.5, 2, size=1200)
PARTS = [slice(0, 500), slice(500, 501), slice(501, 1200)]


def _map(**more: Any) -> Nystroem:
    return Nystroem(gamma=0.3, n_components=12, landmarks=X[:40], **more)


@pytest.mark.parametrize("factor", ["optimal", "standard"])
def test_a_map_learned_in_parts_is_the_map_of_all_rows(factor: str) -> None:
    whole, parts = _map(factor=factor).fit(X), _map(factor=factor)
    for part in PARTS:
        assert parts.partial_fit(X[part]) is parts
    np.testing.assert_allclose(parts.eigenvalues_, whole.eigenvalues_, rtol=1e-10)
    np.testing.assert_allclose(parts.transform(X), whole.transform(X), atol=1e-9)
    np.testing.assert_allclose(parts.certificate_.trace.value, whole.certificate_.trace.value, rtol=1e-9)


def test_maps_learned_apart_merge_to_the_map_of_all_rows() -> None:
    whole = _map().fit(X)
    first, second = _map().fit(X[:500]), _map().fit(X[500:])
    before = first.eigenvalues_.copy()
    merged = first.merge(second)
    np.testing.assert_allclose(merged.transform(X), whole.transform(X), atol=1e-9)
    assert np.array_equal(first.eigenvalues_, before)


def test_maps_of_other_landmarks_do_not_merge() -> None:
    with pytest.raises(ValueError, match="share landmarks, kernel and factorisation"):
        _map().fit(X).merge(clone(_map()).set_params(landmarks=X[40:80]).fit(X))


@pytest.mark.parametrize(
    "settings", [{"alpha": 0.5}, {"alpha": "auto", "selection": "gcv"}, {"alpha": 1.0, "fit_intercept": True}]
)
@pytest.mark.parametrize("weighted", [False, True])
def test_a_ridge_learned_in_parts_or_merged_is_the_ridge_of_all_rows(settings: Any, weighted: bool) -> None:
    def weight(part: slice) -> Any:
        return w[part] if weighted else None

    model = KernelRidge(gamma=0.3, landmarks=X[:40], **settings)
    whole = clone(model).fit(X, y, weight(slice(None)))
    parts = clone(model)
    for part in PARTS:
        parts.partial_fit(X[part], y[part], weight(part))
    merged = clone(model).fit(X[:500], y[:500], weight(slice(0, 500)))
    merged = merged.merge(clone(model).fit(X[500:], y[500:], weight(slice(500, None))))
    for found in (parts, merged):
        assert found.alpha_ == pytest.approx(whole.alpha_)
        np.testing.assert_allclose(found.predict(X), whole.predict(X), atol=1e-7)


def test_without_the_earlier_rows_leave_one_out_is_replaced_by_gcv() -> None:
    model, judged = (KernelRidge(gamma=0.3, landmarks=X[:40], selection=by) for by in ("loo", "gcv"))
    for part in PARTS:
        model.partial_fit(X[part], y[part])
    whole = judged.fit(X, y)
    assert model.alpha_ == pytest.approx(whole.alpha_)
    np.testing.assert_allclose(model.alpha_scores_, whole.alpha_scores_, rtol=1e-6)


def test_what_needs_all_rows_again_is_refused() -> None:
    with pytest.raises(ValueError, match="solver='exact' needs all rows at once"):
        KernelRidge(alpha=1.0, solver="exact").partial_fit(X, y)
    model = KernelRidge(alpha=1.0, n_landmarks=20, random_state=0).partial_fit(X, y)
    with pytest.raises(ValueError, match="X has 3 features, but KernelRidge is expecting 4"):
        model.partial_fit(X[:, :3], y)


Z = X[:40]
classes = (y > 0).astype(int) + (y > 1)


def test_weighted_and_unweighted_fits_merge_to_the_fit_with_weights_of_one() -> None:
    model = KernelRidge(0.1, gamma=0.3, landmarks=Z)
    whole = clone(model).fit(X, y, np.concatenate([w[:500], np.ones(700)]))
    first, second = clone(model).fit(X[:500], y[:500], w[:500]), clone(model).fit(X[500:], y[500:])
    for merged in (first.merge(second), second.merge(first)):
        np.testing.assert_allclose(merged.predict(X), whole.predict(X), atol=1e-8)


@pytest.mark.parametrize("settings", [{}, {"normalize_y": True}, {"alpha": 0.01, "amplitude": 1.0}])
@pytest.mark.parametrize("target", [y, np.column_stack([y, y**2])], ids=["one", "two"])
def test_gaussian_processes_merge_to_that_of_all_rows(settings: Any, target: Any) -> None:
    model = GaussianProcessRegressor(gamma=0.3, landmarks=Z, **settings)
    whole = clone(model).fit(X, target + 3)
    merged = clone(model).fit(X[:500], target[:500] + 3).merge(clone(model).fit(X[500:], target[500:] + 3))
    assert merged.alpha_ == pytest.approx(whole.alpha_, rel=1e-4)
    for found, expected in zip(merged.predict(X, return_std=True), whole.predict(X, return_std=True), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-5)
    assert merged.log_marginal_likelihood_value_ == pytest.approx(whole.log_marginal_likelihood_value_, rel=1e-6)


def test_kernel_components_merge_to_those_of_all_rows() -> None:
    model = KernelPCA(5, gamma=0.3, landmarks=Z)
    whole, merged = clone(model).fit(X), clone(model).fit(X[:500]).merge(clone(model).fit(X[500:]))
    np.testing.assert_allclose(merged.explained_variance_ratio_, whole.explained_variance_ratio_, rtol=1e-9)
    np.testing.assert_allclose(merged.transform(X), whole.transform(X), atol=1e-8)


def test_classifiers_of_the_same_classes_merge_to_that_of_all_rows() -> None:
    model = KernelRidgeClassifier(gamma=0.3, landmarks=Z, class_weight={0: 1, 1: 2, 2: 3})
    whole = clone(model).fit(X, classes)
    merged = clone(model).fit(X[:500], classes[:500]).merge(clone(model).fit(X[500:], classes[500:]))
    np.testing.assert_allclose(merged.decision_function(X), whole.decision_function(X), atol=1e-6)


@pytest.mark.parametrize("machine", [KernelKMeans, SpectralClustering])
def test_machines_that_need_the_rows_refuse_to_merge(machine: Any) -> None:
    model = machine(3, gamma=0.3, n_components=10, landmarks=Z, random_state=0)
    with pytest.raises(ValueError, match=f"{machine.__name__} cannot be merged: it reads the rows again"):
        clone(model).fit(X[:500]).merge(clone(model).fit(X[500:]))


def test_fits_that_do_not_belong_together_do_not_merge() -> None:
    ridge = KernelRidge(alpha=1.0, gamma=0.3, landmarks=Z)
    one, three = clone(ridge).fit(X, y), clone(ridge).fit(X, np.column_stack([y, y, y]))
    with pytest.raises(ValueError, match="have 1 and 3 targets"):
        one.merge(three)
    with pytest.raises(ValueError, match="KernelRidge merges with another KernelRidge only; got Nystroem"):
        one.merge(_map().fit(X))  # type: ignore[arg-type]
    classifier = KernelRidgeClassifier(gamma=0.3, landmarks=Z)
    first = clone(classifier).fit(X, classes)
    with pytest.raises(ValueError, match=r"different classes, .*; to merge, both need the same"):
        first.merge(clone(classifier).fit(X, classes + 1))
    balanced = clone(classifier).set_params(class_weight="balanced").fit(X, classes)
    with pytest.raises(ValueError, match="class_weight='balanced' computes them from the rows of each"):
        balanced.merge(balanced)
    way_back = KernelPCA(2, gamma=0.3, landmarks=Z, fit_inverse_transform=True).fit(X)
    with pytest.raises(ValueError, match="fit_inverse_transform=True reads all rows again"):
        way_back.merge(way_back)
    with pytest.raises(ValueError, match="compute_dual=True needs all rows at once"):
        KernelRidge(alpha=1.0, compute_dual=True).partial_fit(X, y)


def test_landmarks_moved_by_a_constant_do_not_merge() -> None:
    grid = rng.integers(-8, 8, size=(400, 4)) / 4.0
    first, second = (Nystroem(gamma=0.5, landmarks=grid[:30] + shift, n_components=5) for shift in (0.0, 16.0))
    with pytest.raises(ValueError, match="share landmarks, kernel and factorisation"):
        first.fit(grid).merge(second.fit(grid + 16.0))


def test_precomputed_kernels_do_not_merge() -> None:
    K = np.exp(-0.3 * ((X[:60, None] - X[None, :60]) ** 2).sum(-1))
    fitted = Nystroem("precomputed", n_components=5, landmarks="uniform", random_state=0).fit(K)
    with pytest.raises(ValueError, match="merge needs rows with coordinates"):
        fitted.merge(fitted)


def test_partial_fit_refuses_another_number_of_targets_and_stays_as_it_was() -> None:
    three = np.column_stack([y, -y, 2 * y])
    model = KernelRidge(alpha=1.0, gamma=0.3, landmarks=Z).fit(X, three)
    before = model.predict(X)
    for wrong in (y, three[:, :2]):
        with pytest.raises(ValueError, match="but the fit so far has 3"):
            model.partial_fit(X, wrong)
    np.testing.assert_array_equal(model.predict(X), before)


@pytest.mark.parametrize("machine", [Nystroem, KernelRidge])
@pytest.mark.parametrize("columns", [list("bcda"), list("abcz"), list("abc")])
def test_partial_fit_refuses_other_columns_and_forgets_nothing(machine: Any, columns: list[str]) -> None:
    frame = pd.DataFrame(X, columns=list("abcd"))
    model = machine(gamma=0.3, landmarks=Z, random_state=0).fit(frame, y)
    before = model.map_
    with pytest.raises(ValueError, match="feature names should match"):
        model.partial_fit(frame.rename(columns={"d": "z"} if "z" in columns else {})[columns], y)
    assert list(model.feature_names_in_) == list("abcd")
    assert model.n_features_in_ == 4
    assert model.map_ is before

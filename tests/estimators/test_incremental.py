"""Learning block by block, and merging what was learned apart, give the fit to all rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from nystrom import KernelRidge, Nystroem

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


@pytest.mark.parametrize("settings", [{"alpha": 0.5}, {"alpha": "auto", "selection": "gcv"}, {"fit_intercept": True}])
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


def test_what_needs_all_rows_again_is_refused() -> None:
    with pytest.raises(ValueError, match="selection='loo' reads all rows again"):
        KernelRidge(alpha="auto").partial_fit(X, y)
    with pytest.raises(ValueError, match="solver='exact' needs all rows at once"):
        KernelRidge(solver="exact").partial_fit(X, y)
    model = KernelRidge(n_landmarks=20, random_state=0).partial_fit(X, y)
    with pytest.raises(ValueError, match="sample_weight in every call"):
        model.partial_fit(X, y, w)
    with pytest.raises(ValueError, match="X has 3 features, but KernelRidge is expecting 4"):
        model.partial_fit(X[:, :3], y)

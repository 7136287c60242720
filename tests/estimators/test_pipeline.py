"""One way of a fit for every machine: its stages, a metric in all of them, and results that are of one fit alone."""

from __future__ import annotations

import numpy as np
import pytest

from nystrom import (
    GaussianProcessRegressor,
    KernelRidge,
    KernelSVC,
    Nystroem,
    best_possible,
    kernel_eigh,
    select_landmarks,
)
from nystrom.estimators.pipeline import FitRequest, GivenSize, fit_map
from nystrom.kernels import Gaussian
from nystrom.landmarks import make_selector
from nystrom.rows import as_blocks


def columns_of_two_scales(n: int = 600) -> tuple[np.ndarray, np.ndarray]:
    """Rows whose second column is noise a hundred times as large as the first."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2)) * [1.0, 100.0]
    return X, np.sin(3 * X[:, 0])


# The second column hardly counts in this metric, and drowns the first one without it.
GAMMAS = np.array([1.0, 1e-8])


def test_a_request_is_all_that_a_fit_needs():
    X, _ = columns_of_two_scales()
    found = fit_map(as_blocks(X), FitRequest(Gaussian(0.5), make_selector("uniform"), GivenSize(40), seed=0))
    same = Nystroem(gamma=0.5, n_components=None, n_landmarks=40, landmarks="uniform", random_state=0).fit(X)
    np.testing.assert_array_equal(found.factored.projection, same.projection_)
    assert [stage.name for stage in found.stages] == ["landmarks", "factor"]
    assert found.certificate is not None
    assert found.certificate.trace.value == same.certificate_.trace.value


@pytest.mark.parametrize("asked", [{"tol": 0.01}, {"n_landmarks": "auto", "n_components": 10}])
def test_sizes_are_found_in_the_metric_of_the_kernel(asked):
    X, _ = columns_of_two_scales()
    scaled = Nystroem(gamma=1.0, random_state=0, **asked).fit(X * np.sqrt(GAMMAS))
    found = Nystroem(gamma=GAMMAS, random_state=0, **asked).fit(X)
    assert len(found.landmarks_) == len(scaled.landmarks_)
    assert found.certificate_.trace.value == pytest.approx(scaled.certificate_.trace.value, rel=1e-6)


def test_functions_of_rows_see_the_metric_of_the_kernel():
    X, _ = columns_of_two_scales()
    Z = X * np.sqrt(GAMMAS)
    values, _ = kernel_eigh(X, n_components=5, n_landmarks=20, gamma=GAMMAS, random_state=0)
    expected, _ = kernel_eigh(Z, n_components=5, n_landmarks=20, gamma=1.0, random_state=0)
    np.testing.assert_allclose(values, expected, rtol=1e-6)
    big = np.tile(X, (4, 1)) + np.random.default_rng(1).normal(size=(2400, 2)) * 1e-3
    least = best_possible(big, 5, gamma=GAMMAS)
    assert least.value == pytest.approx(best_possible(big * np.sqrt(GAMMAS), 5, gamma=1.0).value, rel=1e-3)
    points = select_landmarks(X, 20, kernel="gaussian", gamma=GAMMAS, random_state=0).points
    there = select_landmarks(Z, 20, kernel="gaussian", gamma=1.0, random_state=0).points
    np.testing.assert_allclose(points * np.sqrt(GAMMAS), there, atol=1e-9)


def test_a_fit_leaves_no_result_of_an_earlier_one():
    X, y = columns_of_two_scales(300)
    model = KernelRidge([0.1, 1.0], solver="exact", n_landmarks=50, random_state=0).fit(X, y)
    assert {"alpha_scores_", "training_rows_", "residuals_"} <= set(vars(model))
    model.set_params(alpha=1.0, solver="factor").fit(X, y)
    assert not {"alpha_scores_", "training_rows_", "residuals_"} & set(vars(model))
    fresh = KernelRidge(1.0, solver="factor", n_landmarks=50, random_state=0).fit(X, y)
    assert set(vars(model)) == set(vars(fresh))
    np.testing.assert_array_equal(model.predict(X), fresh.predict(X))


def test_a_tolerance_leaves_no_trace_in_a_fit_without_one():
    X, _ = columns_of_two_scales(300)
    features = Nystroem(tol=0.1, random_state=0).fit(X)
    assert features.error_.value <= 0.1
    features.set_params(tol=None).fit(X)
    assert not hasattr(features, "error_")
    assert not hasattr(features, "sizes_tried_")


@pytest.mark.parametrize("machine", [KernelSVC(C=[0.1, 1.0]), GaussianProcessRegressor()])
def test_a_fit_that_fails_changes_nothing(machine):
    X, y = columns_of_two_scales(200)
    y = (y > 0).astype(int)
    machine.set_params(n_landmarks=30, random_state=0).fit(X, y)
    before = dict(vars(machine))
    bad = X.copy()
    bad[17, 0] = np.nan
    with pytest.raises(ValueError, match="row 17"):
        machine.fit(bad, y)
    assert vars(machine).keys() == before.keys()
    assert all(vars(machine)[name] is value for name, value in before.items())

"""Predictions from many threads have the same bits; the arrays alone predict the same numbers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nystrom
from nystrom.kernels import Gaussian, Polynomial
from nystrom.models import to_numpy

rng = np.random.default_rng(0)
X = rng.normal(size=(1_500, 4))
Y = np.sin(X[:, 0]) + X[:, 1]
MACHINES: list[Any] = [
    nystrom.KernelRidge(alpha=0.1, n_landmarks=80, fit_intercept=True),
    nystrom.KernelRidgeClassifier(n_landmarks=80),
    nystrom.GaussianProcessRegressor(n_landmarks=80, gamma=0.2, alpha=0.1, amplitude=1.0, normalize_y=True),
    nystrom.KernelLogisticRegression(C=1.0, n_landmarks=80),
    nystrom.KernelSVC(C=1.0, n_landmarks=80),
    nystrom.KernelSVR(C=1.0, n_landmarks=80),
]


def fitted(machine: Any) -> Any:
    classes = np.digitize(Y, [-0.5, 0.5]) if hasattr(machine, "class_weight") else Y
    return machine.set_params(random_state=0).fit(X, classes)


@pytest.mark.parametrize("machine", [*MACHINES[:3], nystrom.KernelKMeans(n_clusters=3, n_init=1)])
def test_eight_threads_get_the_bits_of_one(machine: Any, tmp_path: Path) -> None:
    fitted(machine).save(tmp_path / "m")
    # Fresh from a file, so that what is prepared on first use is prepared by several threads at once.
    model = nystrom.load(tmp_path / "m")
    pieces = [X[i : i + size] for i, size in zip(range(0, 1_200, 20), [1, 2, 300] * 20, strict=True)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(model.predict, pieces))
    for rows, values in zip(pieces, found, strict=True):
        np.testing.assert_array_equal(values, machine.predict(rows))


@pytest.mark.parametrize("machine", MACHINES)
def test_the_arrays_predict_what_the_machine_does(machine: Any) -> None:
    model = fitted(machine)
    parts = to_numpy(model)
    assert parts["kernel"] == {"name": "Gaussian", "gamma": model.kernel_.gamma}
    squares = np.square(X[:, None, :] - parts["landmarks"]).sum(axis=2)
    values = np.exp(-parts["kernel"]["gamma"] * squares) @ parts["coef"] + parts["intercept"]
    if "classes" in parts:
        np.testing.assert_array_equal(parts["classes"][values.argmax(axis=1)], model.predict(X))
        np.testing.assert_allclose(values, model.decision_function(X), rtol=0, atol=1e-6 * np.abs(values).max())
    else:
        np.testing.assert_allclose(values[:, 0], model.predict(X), rtol=0, atol=1e-6 * np.abs(values).max())


def kernel_matrix(kernel: dict[str, Any], A: Any, B: Any) -> Any:
    """Evaluate what ``to_numpy`` says of a kernel, with NumPy alone."""
    match kernel["name"]:
        case "InMetric":
            root = kernel["root"]
            A, B = (A * root, B * root) if root.ndim == 1 else (A @ root, B @ root)
            return kernel_matrix(kernel["kernel"], A, B)
        case "OnColumns":
            return kernel_matrix(kernel["kernel"], A[:, kernel["columns"]], B[:, kernel["columns"]])
        case "Gaussian":
            return np.exp(-kernel["gamma"] * np.square(A[:, None, :] - B).sum(axis=2))
        case "Laplacian":
            return np.exp(-kernel["gamma"] * np.abs(A[:, None, :] - B).sum(axis=2))
        case "Polynomial":
            return (kernel["gamma"] * A @ B.T + kernel["coef0"]) ** kernel["degree"]
        case "Sum":
            return kernel_matrix(kernel["left"], A, B) + kernel_matrix(kernel["right"], A, B)
    raise AssertionError(kernel)


@pytest.mark.parametrize(
    "machine",
    [
        nystrom.KernelRidge(0.1, n_landmarks=40, metric=[1.0, 2.0, 0.5, 0.1]),
        nystrom.KernelRidge(0.1, n_landmarks=40, gamma=[0.1, 0.2, 0.3, 0.4]),
        nystrom.KernelRidge(0.1, n_landmarks=40, metric="full", solver="cg"),
        nystrom.KernelSVC(C=1.0, n_landmarks=40, metric="diagonal"),
        nystrom.KernelSVR(C=1.0, n_landmarks=40, kernel="polynomial", gamma=None),
        nystrom.KernelRidge(0.1, n_landmarks=40, metric=[1.0, 0.5, 2.0, 1.0], kernel="laplacian", gamma=None),
        nystrom.KernelRidge(0.1, n_landmarks=40, kernel=Gaussian(np.float64(0.1)) + Polynomial(2, 0.1, 1.0)),
        nystrom.KernelRidge(0.1, n_landmarks=40, kernel=Gaussian(None).on(slice(1, None)) + Polynomial(2).on([0, 3])),
    ],
)
def test_the_arrays_hold_all_of_a_kernel(machine: Any) -> None:
    model = fitted(machine)
    parts = to_numpy(model)
    values = kernel_matrix(parts["kernel"], X, parts["landmarks"]) @ parts["coef"] + parts["intercept"]
    expected = model.decision_function(X) if "classes" in parts else model.predict(X)
    np.testing.assert_allclose(values.reshape(expected.shape), expected, rtol=0, atol=1e-6 * np.abs(values).max())


def test_a_process_with_more_landmarks_for_its_mean_is_given_and_saved_whole(tmp_path: Path) -> None:
    rows = np.random.default_rng(1).normal(size=(2_000, 4))
    settings = {"gamma": 0.3, "alpha": 0.01, "amplitude": 1.0, "normalize_y": True, "random_state": 0}
    model = nystrom.GaussianProcessRegressor(n_landmarks=1_200, max_memory="210MB", **settings)
    model.fit(rows, np.sin(rows[:, :2]) + 1.0)
    assert len(model.landmark_coef_) > len(model.landmarks_)
    parts = to_numpy(model)
    values = kernel_matrix(parts["kernel"], rows[:50], parts["landmarks"]) @ parts["coef"] + parts["intercept"]
    np.testing.assert_allclose(values, model.predict(rows[:50]), rtol=0, atol=1e-6)
    for full in (False, True):
        model.save(tmp_path / "m", full=full)
        found = nystrom.load(tmp_path / "m").predict(rows[:50], return_std=True)
        np.testing.assert_array_equal(found, model.predict(rows[:50], return_std=True))


def test_machines_that_predict_otherwise_say_so() -> None:
    with pytest.raises(TypeError, match="KernelKMeans does not predict by"):
        to_numpy(fitted(nystrom.KernelKMeans(n_clusters=2)))

"""Predictions from many threads have the same bits; the arrays alone predict the same numbers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nystrom
from nystrom.models import to_numpy

rng = np.random.default_rng(0)
X = rng.normal(size=(1_500, 4))
Y = np.sin(X[:, 0]) + X[:, 1]
MACHINES: list[Any] = [
    nystrom.KernelRidge(alpha=0.1, n_landmarks=80, fit_intercept=True),
    nystrom.KernelRidgeClassifier(n_landmarks=80),
    nystrom.GaussianProcessRegressor(n_landmarks=80, gamma=0.2, alpha=0.1, amplitude=1.0, normalize_y=True),
    nystrom.KernelLogisticRegression(n_landmarks=80),
    nystrom.KernelSVC(n_landmarks=80),
    nystrom.KernelSVR(n_landmarks=80),
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


def test_machines_that_predict_otherwise_say_so() -> None:
    with pytest.raises(TypeError, match="KernelKMeans does not predict by"):
        to_numpy(fitted(nystrom.KernelKMeans(n_clusters=2)))

"""Predictions larger than memory: every machine writes what it would return, and goes on only with its own work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nystrom
from nystrom.output import describe_job

rng = np.random.default_rng(0)
X = rng.normal(size=(9_000, 3))
Y = np.sin(X[:, 0])
CASES: list[tuple[Any, str]] = [
    (nystrom.Nystroem(n_components=5), "transform"),
    (nystrom.KernelPCA(n_components=3), "transform"),
    (nystrom.KernelKMeans(n_clusters=3), "predict"),
    (nystrom.SpectralClustering(n_clusters=3, n_init=1), "predict"),
    (nystrom.KernelRidge(alpha=1.0, n_landmarks=20), "predict"),
    (nystrom.KernelRidge(alpha=1.0, n_landmarks=20), "residual"),
    (nystrom.KernelRidgeClassifier(n_landmarks=20), "predict"),
    (nystrom.KernelRidgeClassifier(n_landmarks=20), "decision_function"),
    (nystrom.KernelLogisticRegression(C=1.0, n_landmarks=20), "predict_proba"),
    (nystrom.KernelLogisticRegression(C=1.0, n_landmarks=20), "predict"),
    (nystrom.KernelSVC(C=1.0, n_landmarks=20), "predict"),
    (nystrom.KernelSVR(C=1.0, n_landmarks=20), "predict"),
    (nystrom.GaussianProcessRegressor(n_landmarks=20), "predict"),
]


@pytest.mark.parametrize(("machine", "method"), CASES)
def test_every_machine_writes_what_it_returns(machine: Any, method: str, tmp_path: Path) -> None:
    classes = hasattr(machine, "class_weight")
    machine.set_params(random_state=0).fit(X[:2000], (Y > 0).astype(int)[:2000] if classes else Y[:2000])
    call = getattr(machine, method)
    written = call(X, out=tmp_path / "out.npy")
    expected = call(X).reshape(len(X), -1)
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), expected)
    np.testing.assert_array_equal(written.take(np.arange(len(X))), expected)
    assert [path.name for path in tmp_path.iterdir()] == ["out.npy"]


def test_a_loaded_model_writes_too(tmp_path: Path) -> None:
    model = nystrom.KernelRidge(alpha=1.0, n_landmarks=20, random_state=0).fit(X[:2000], Y[:2000])
    model.save(tmp_path / "m")
    nystrom.load(tmp_path / "m").predict(X, out=tmp_path / "out.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy")[:, 0], model.predict(X))


def test_deviations_follow_the_means(tmp_path: Path) -> None:
    model = nystrom.GaussianProcessRegressor(n_landmarks=20, random_state=0, normalize_y=True)
    model.fit(X[:500], np.column_stack([Y, 2 * Y])[:500])
    model.predict(X, return_std=True, include_noise=True, out=tmp_path / "out.npy")
    mean, std = model.predict(X, return_std=True, include_noise=True)
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), np.hstack([mean, std]))


def test_two_targets_on_the_same_landmarks_are_two_jobs() -> None:
    models = [
        nystrom.KernelRidge(alpha=1.0, n_landmarks=20, random_state=0).fit(X[:500], sign * Y[:500]) for sign in (1, -1)
    ]
    jobs = {describe_job(model.map_, "predict", vars(model)) for model in models}
    assert len(jobs) == 2


def test_classes_of_text_are_refused_with_a_way_out(tmp_path: Path) -> None:
    model = nystrom.KernelRidgeClassifier(n_landmarks=20).fit(X[:500], np.where(Y[:500] > 0, "yes", "no"))
    with pytest.raises(ValueError, match=r"out= writes numbers.*decision_function\(X, out=\.\.\.\)"):
        model.predict(X, out=tmp_path / "out.npy")


def test_noise_is_added_on_request() -> None:
    rng = np.random.default_rng(0)
    rows = rng.uniform(-2, 2, size=(2_000, 1))
    y = np.sin(rows[:, 0]) + 0.5 * rng.normal(size=2_000)
    for normalize_y in (False, True):
        model = nystrom.GaussianProcessRegressor(n_landmarks=50, normalize_y=normalize_y, random_state=0).fit(rows, y)
        _, std = model.predict(rows, return_std=True)
        _, noisy = model.predict(rows, return_std=True, include_noise=True)
        scale = y.std() if normalize_y else 1.0
        np.testing.assert_allclose(noisy**2 - std**2, model.alpha_ * scale**2, rtol=1e-8)
        # Noise of deviation 0.5 was put in; 2,000 rows tell it to a few per cent.
        np.testing.assert_allclose(noisy, 0.5, rtol=0.1)
        _, covariance = model.predict(rows[:20], return_cov=True, include_noise=True)
        np.testing.assert_allclose(np.sqrt(np.diag(covariance)), noisy[:20], rtol=1e-6)

"""Every machine fits and predicts on Dask collections with the bits of a local fit; in threads, without a cluster."""

import numpy as np
import pytest

import nystrom.estimators as machines
from nystrom.rows import as_blocks

da = pytest.importorskip("dask.array")

CHUNK = 400
RNG = np.random.default_rng(0)
X = RNG.normal(size=(1500, 6))
VALUES = np.sin(X[:, 0]) + 0.1 * RNG.normal(size=1500)
NAMES = np.array(["ash", "birch", "cedar"])[np.digitize(X[:, 1], [-0.5, 0.5])]
CASES = [
    ("KernelRidge", {}, VALUES, "predict"),
    ("KernelRidge", {}, np.column_stack([VALUES, X[:, 2]]), "predict"),
    ("KernelRidgeClassifier", {}, NAMES, "predict"),
    ("KernelRidgeClassifier", {}, NAMES == "ash", "predict"),
    ("KernelRidgeClassifier", {}, NAMES, "decision_function"),
    ("GaussianProcessRegressor", {}, VALUES, "predict"),
    ("KernelPCA", {"n_components": 8}, None, "transform"),
    ("KernelKMeans", {"n_clusters": 3, "n_components": 8}, None, "predict"),
    ("SpectralClustering", {"n_clusters": 3, "n_components": 8}, None, "predict"),
]


@pytest.mark.parametrize("lazy_target", [False, True])
@pytest.mark.parametrize(("name", "options", "target", "method"), CASES)
def test_a_machine_on_dask_gives_lazy_results_with_the_bits_of_a_local_one(name, options, target, method, lazy_target):
    if target is None and lazy_target:
        pytest.skip("nothing to learn from")
    make = getattr(machines, name)
    lazy, rows = da.from_array(X, chunks=(CHUNK, -1)), as_blocks(X, block_rows=CHUNK)
    y = da.from_array(target, chunks=(CHUNK, *target.shape[1:])) if lazy_target else target
    local = make(n_landmarks=25, random_state=0, **options).fit(rows, target)
    remote = make(n_landmarks=25, random_state=0, **options).fit(lazy, y)
    np.testing.assert_array_equal(local.projection_, remote.projection_)
    expected, found = getattr(local, method)(rows), getattr(remote, method)(lazy)
    assert found.chunks[0] == lazy.chunks[0]
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    np.testing.assert_array_equal(expected, found.compute())


@pytest.mark.parametrize("solver", ["cg", "exact"])
def test_conjugate_gradients_run_on_the_cluster(solver):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=400)
    settings = {"gamma": 0.5, "landmarks": X[:60], "solver": solver, "tol": 1e-11, "fit_intercept": True}
    local = machines.KernelRidge(0.1, **settings).fit(X, y)
    lazy = da.from_array(X, chunks=(130, 3)), da.from_array(y, chunks=130)
    remote = machines.KernelRidge(0.1, **settings).fit(*lazy)
    assert remote.solver_ == solver
    np.testing.assert_allclose(remote.predict(X), local.predict(X), atol=1e-7)


def test_losses_on_many_landmarks_run_on_the_cluster(monkeypatch):
    monkeypatch.setattr("nystrom.estimators.loss.factor_takes_long", lambda *_: True)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    y = np.digitize(X[:, 0] + 0.3 * rng.normal(size=400), [-0.5, 0.5])
    local, remote = (
        machines.KernelLogisticRegression(C=2.0, gamma=0.5, landmarks=X[:60], tol=1e-10).fit(rows, y)
        for rows in (X, da.from_array(X, chunks=(130, 3)))
    )
    np.testing.assert_allclose(remote.predict_proba(X), local.predict_proba(X), atol=1e-5)

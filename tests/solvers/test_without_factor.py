"""Errors and residuals of machines without a factor, or with one that their file left out."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

import nystrom
from nystrom import KernelLogisticRegression, KernelPCA, KernelRidge, Nystroem
from nystrom.exceptions import NotInModelFileError


def make_rows(form):
    X = np.random.default_rng(0).normal(size=(300, 4))
    if form == "sparse":
        return sp.csr_matrix(np.where(np.abs(X) > 0.8, X, 0.0))
    return X.astype(form)


@pytest.mark.parametrize("form", ["float64", "float32", "sparse"])
@pytest.mark.parametrize("kernel", ["gaussian", "linear"])
def test_errors_are_those_of_features_with_all_directions(form, kernel):
    X = make_rows(form)
    y = np.arange(300.0)
    model = KernelRidge(alpha=1.0, kernel=kernel, landmarks=X[:40], solver="cg").fit(X, y)
    features = Nystroem(kernel=kernel, landmarks=X[:40], n_components=None).fit(X)
    tolerance = 1e-4 if form == "float32" else 1e-9
    for norm in ("trace", "fro", "spectral"):
        found, expected = (each.approximation_error(X, norm).value for each in (model, features))
        assert found == pytest.approx(expected, abs=tolerance)
    np.testing.assert_allclose(model.residual(X), features.residual(X), atol=100 * tolerance)
    assert np.array_equal(model.unexplained_rows(X), features.unexplained_rows(X))
    assert model.best_possible(X).value == pytest.approx(features.best_possible(X).value, abs=1e-6)


def test_saved_and_copied_machines_know_their_errors(tmp_path):
    X = make_rows("float64")
    model = KernelRidge(alpha=1.0, n_landmarks=30, solver="cg", random_state=0).fit(X, X[:, 0])
    model.save(tmp_path / "model")
    expected = model.approximation_error(X).value
    for again in (nystrom.load(tmp_path / "model"), pickle.loads(pickle.dumps(model))):
        assert again.approximation_error(X).value == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    "machine",
    [
        KernelRidge(alpha=1.0, n_landmarks=30, random_state=0),
        KernelRidge(alpha=1.0, n_landmarks=30, n_components=12, random_state=0),
        KernelLogisticRegression(C=1.0, n_landmarks=30, random_state=0),
        KernelPCA(3, n_landmarks=30, random_state=0),
    ],
    ids=["all directions", "rank cut", "loss", "components"],
)
def test_small_files_give_errors_and_residuals_unless_the_rank_was_cut(machine, tmp_path):
    X = make_rows("float64")
    fitted = clone(machine).fit(X, X[:, 0] > 0)
    fitted.save(tmp_path / "model")
    again = nystrom.load(tmp_path / "model")
    if isinstance(machine, KernelRidge) and machine.n_components:
        with pytest.raises(NotInModelFileError, match=r"save\(path, full=True\)"):
            again.approximation_error(X)
        return
    assert again.approximation_error(X).value == pytest.approx(fitted.approximation_error(X).value, rel=1e-9)
    np.testing.assert_allclose(again.residual(X), fitted.residual(X), atol=1e-9)
    assert again.best_possible(X).value == pytest.approx(fitted.best_possible(X).value, abs=1e-9)


def test_machines_of_a_loss_know_their_errors(monkeypatch):
    monkeypatch.setattr("nystrom.estimators.loss.factor_takes_long", lambda *_: True)
    X = make_rows("float64")
    model = KernelLogisticRegression(C=1.0, landmarks=X[:40]).fit(X, X[:, 0] > 0)
    expected = Nystroem(landmarks=X[:40], n_components=None).fit(X).approximation_error(X)
    assert model.approximation_error(X).value == pytest.approx(expected.value, abs=1e-9)


def test_there_is_no_line_on_quality_without_a_certificate():
    X = make_rows("float64")
    model = KernelRidge(alpha=1.0, n_landmarks=30, solver="cg", random_state=0).fit(X, X[:, 0])
    with pytest.raises(AttributeError, match="quality_ needs a factor"):
        _ = model.quality_

"""A fit says so when the approximation fails, and keeps quiet when it does not."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits

from nystrom import KernelRidge, Nystroem, load
from nystrom.errors import trace
from nystrom.exceptions import ApproximationWarning


def test_a_bandwidth_too_narrow_is_named():
    X = np.random.default_rng(0).normal(size=(500, 10))
    with pytest.warns(
        ApproximationWarning, match="100% of the kernel of 500 rows .*bandwidth is so narrow.*smaller gamma"
    ):
        Nystroem(gamma=50.0, n_components=20, random_state=0).fit(X)


def test_sparse_text_is_sent_to_a_linear_model():
    X = sp.random(600, 5000, 0.005, format="csr", random_state=0)
    with pytest.warns(ApproximationWarning, match="sparse rows of very many columns.*linear model"):
        KernelRidge(alpha=1.0, n_landmarks=60, random_state=0).fit(X, np.ones(600))


def test_too_few_landmarks_are_named():
    X = np.random.default_rng(0).normal(size=(600, 40))
    with pytest.warns(ApproximationWarning, match="12 landmarks leave .* too few landmarks.*tol="):
        Nystroem(n_components=5, n_landmarks=12, random_state=0).fit(X)


def test_the_warning_comes_once_and_from_the_callers_line():
    X = np.random.default_rng(0).normal(size=(300, 10))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Nystroem(gamma=50.0, n_components=20, random_state=0).fit(X)
    assert [w.category for w in caught] == [ApproximationWarning]
    assert caught[0].filename == __file__


def test_a_rank_that_the_user_cut_is_not_the_landmarks_fault():
    X, _ = load_digits(return_X_y=True)
    features = Nystroem(n_components=1, n_landmarks=200, random_state=0).fit(X)
    certificate = features.certificate_
    assert certificate.unexplained < certificate.trace.value
    assert "the rest to the rank" in str(certificate)
    assert "without the cut of the rank" in features.quality_


def test_rows_far_from_all_others_are_counted():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 3))
    X[::20] += 1e3 * rng.normal(size=(100, 3))
    features = Nystroem(gamma=0.1, n_components=50, landmarks=X[1::20][:50]).fit(X)
    certificate = features.certificate_
    assert certificate.n_looked == 125
    assert certificate.n_lost >= 1
    assert f"{certificate.n_lost} of 125 checked rows are explained to less than a tenth" in str(certificate)
    assert f"{certificate.n_lost} of 125 checked rows are lost" in features.quality_
    assert features.unexplained_rows(X).tolist() == sorted(np.flatnonzero(features.residual(X) > 0.9))


def test_the_quality_is_in_the_notebook_display():
    X, _ = load_digits(return_X_y=True)
    features = Nystroem(n_components=20, random_state=0).fit(X)
    assert "of the kernel explained" in features._repr_html_()


def test_the_certificate_prints_the_pieces_of_time_and_a_saved_one_does_not(tmp_path):
    X, _ = load_digits(return_X_y=True)
    features = Nystroem(n_components=20, random_state=0).fit(X)
    assert [name for name, _ in features.certificate_.stages] == ["landmarks", "factor"]
    assert "seconds: landmarks " in str(features.certificate_)
    searched = Nystroem(tol=0.1, random_state=0).fit(X)
    assert [name for name, _ in searched.certificate_.stages] == ["search", "factor"]
    features.save(tmp_path / "model.nystrom")
    assert "seconds" not in str(load(tmp_path / "model.nystrom").certificate_)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_components", [5, 20, 45])
def test_what_the_rank_cuts_is_counted_alike_by_a_quick_look_and_a_close_one(monkeypatch, dtype, n_components):
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(2000, 3)), rng.normal(size=(30, 3)) * 0.1 + 50]).astype(dtype)
    Z = X[:: len(X) // 50]
    model = Nystroem(gamma=0.5, n_components=n_components, landmarks=Z)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ApproximationWarning)
        quick = model.fit(X).certificate_.n_cut
        monkeypatch.setattr(trace, "_CLEARLY_KEPT", np.inf)
        assert model.fit(X).certificate_.n_cut == quick


@pytest.mark.parametrize("make", [np.asarray, sp.csr_matrix])
def test_rows_are_looked_at_in_the_kernel_values_that_the_fit_has_kept(make):
    X = make(np.random.default_rng(0).normal(size=(3000, 4)) * 3)
    model = Nystroem(gamma=1.0, n_components=20, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ApproximationWarning)
        model.fit(X)
        alone = model.certificate_
        model.fit_transform(X)
    assert alone.n_lost > 0
    assert (model.certificate_.n_looked, model.certificate_.n_lost) == (alone.n_looked, alone.n_lost)

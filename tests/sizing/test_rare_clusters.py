"""Rows that a sample does not show get landmarks where there are enough of them, and are counted where not."""

import numpy as np
import pytest

from nystrom import KernelRidge, Nystroem, open_rows


def hidden_clusters(n, seed, n_clusters=12, size=15, p=6):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    centres = rng.normal(size=(n_clusters, p))
    centres *= 20 / np.linalg.norm(centres, axis=1, keepdims=True)
    hidden = rng.choice(n, n_clusters * size, replace=False)
    X[hidden] = np.repeat(centres, size, axis=0) + 0.2 * rng.normal(size=(len(hidden), p))
    return X, hidden


@pytest.mark.parametrize("seed", [0, 1])
def test_no_row_of_a_hidden_cluster_is_lost(seed):
    X, hidden = hidden_clusters(60_000, seed)
    features = Nystroem(gamma=0.05, n_components=None, n_landmarks=100, random_state=seed).fit(X)
    assert len(features.landmarks_) == 100
    assert features.residual(X[hidden]).max() < 0.9


def test_hidden_clusters_are_seen_among_rows_that_resemble_no_landmark_much():
    X, hidden = hidden_clusters(30_000, 3, p=25)
    features = Nystroem(gamma=0.05, n_components=None, n_landmarks=80, random_state=0).fit(X)
    assert np.median(features.residual(X[:1000])) > 0.3
    assert features.residual(X[hidden]).max() < 0.9


def test_rows_alone_are_counted_and_take_no_landmarks():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 4))
    far = rng.choice(20_000, 30, replace=False)
    X[far] = 50 * rng.normal(size=(30, 4))
    features = Nystroem(gamma=0.1, n_components=None, n_landmarks=60, random_state=0).fit(X)
    lost = features.unexplained_rows(X)
    assert len(set(lost) & set(far)) >= 20
    near = np.linalg.norm(features.landmarks_, axis=1) < 10
    assert near.sum() >= 50


def test_files_and_machines_with_a_target_see_hidden_clusters_too(tmp_path):
    X, hidden = hidden_clusters(30_000, 2, n_clusters=6, size=12)
    np.save(tmp_path / "rows.npy", X)
    here = Nystroem(gamma=0.05, n_components=None, n_landmarks=60, random_state=0).fit(X)
    there = Nystroem(gamma=0.05, n_components=None, n_landmarks=60, random_state=0).fit(
        open_rows(tmp_path / "rows.npy")
    )
    np.testing.assert_array_equal(here.landmarks_, there.landmarks_)
    ridge = KernelRidge(alpha=1.0, gamma=0.05, n_landmarks=60, random_state=0, solver="factor").fit(X, X[:, 0])
    assert ridge.residual(X[hidden]).max() < 0.9


def test_what_fit_transform_keeps_is_of_the_landmarks_that_were_taken():
    X, _ = hidden_clusters(30_000, 3, n_clusters=6, size=12)
    features = Nystroem(gamma=0.05, n_components=20, n_landmarks=60, random_state=0)
    np.testing.assert_allclose(features.fit_transform(X), features.transform(X), atol=1e-9)


def far_rows(n=20_000, count=30, p=4):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, p))
    X[rng.choice(n, count, replace=False)] = 50 * rng.normal(size=(count, p))
    return X


def test_the_certificate_counts_every_row_that_no_landmark_explains(tmp_path):
    X = far_rows()
    np.save(tmp_path / "rows.npy", X)
    da = pytest.importorskip("dask.array")
    for rows in (X, open_rows(tmp_path / "rows.npy"), da.from_array(X, chunks=(5000, 4))):
        features = Nystroem(gamma=0.1, n_components=None, n_landmarks=60, random_state=0).fit(rows)
        lost = features.unexplained_rows(X)
        certificate = features.certificate_
        assert certificate.n_apart >= certificate.n_apart_lost == len(lost) >= 20
        assert f"{len(lost)} of {certificate.n_apart} isolated rows are lost" in str(certificate)
        assert f"{len(lost)} of {certificate.n_apart} isolated rows are lost" in features.quality_


def test_a_tolerance_counts_them_too():
    X = far_rows()
    features = Nystroem(tol=0.1, gamma=0.1, random_state=0).fit(X)
    assert features.certificate_.n_apart_lost == pytest.approx(len(features.unexplained_rows(X)), abs=3)


@pytest.mark.filterwarnings("ignore::nystrom.exceptions.ApproximationWarning")
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("rank", [20, 40])
def test_rows_that_the_cut_of_the_rank_loses_are_counted(rank, seed):
    X, hidden = hidden_clusters(40_000, seed, p=20)
    features = Nystroem(gamma=0.02, n_components=rank, n_landmarks=100, random_state=seed).fit(X)
    lost = set(features.unexplained_rows(X))
    assert set(hidden) & lost
    certificate = features.certificate_
    assert 0.5 * len(lost) <= certificate.n_cut + certificate.n_apart_lost <= 1.2 * len(lost)
    assert "or more are lost by the cut of the rank" in features.quality_
    whole = Nystroem(gamma=0.02, n_components=None, n_landmarks=100, random_state=seed).fit(X)
    assert whole.certificate_.n_cut == 0


def test_a_rank_that_loses_no_row_counts_none():
    X = np.random.default_rng(0).normal(size=(5000, 4))
    assert Nystroem(n_components=40, random_state=0).fit(X).certificate_.n_cut == 0


def test_heavy_tails_take_no_landmarks_from_the_bulk(monkeypatch):
    X = np.random.default_rng(1).standard_t(3, size=(20_000, 3))
    features = Nystroem(gamma=1 / 3, n_components=None, n_landmarks=100, random_state=0)
    values = features.fit_transform(X)
    error = features.approximation_error(X).value
    # The kernel values kept were those of the landmarks given up.
    np.testing.assert_allclose(values[:50], features.transform(X[:50]), atol=1e-10)
    monkeypatch.setattr("nystrom.estimators.pipeline.with_rare_rows", lambda *_: None)
    assert error == pytest.approx(features.fit(X).approximation_error(X).value)
    assert features.certificate_.n_apart_lost > 0


@pytest.mark.parametrize("seed", [1, 5])
def test_hidden_clusters_get_landmarks_though_the_bulk_loses_more_than_a_fifth(seed, monkeypatch):
    rng = np.random.default_rng([seed, 5])
    bulk, centres = rng.normal(size=(100_000, 5)), rng.normal(size=(30, 5))
    centres *= 3.5 * np.sqrt(5) / np.linalg.norm(centres, axis=1, keepdims=True)
    hidden = np.repeat(centres, 40, axis=0) + 0.15 * rng.normal(size=(1200, 5))
    features = Nystroem(n_components=None, n_landmarks=100, random_state=seed)
    X = np.concatenate([bulk, hidden])
    assert (features.fit(X).residual(hidden) > 0.9).mean() < 0.01
    explained = features.certificate_.trace.value
    monkeypatch.setattr("nystrom.estimators.pipeline.with_rare_rows", lambda *_: None)
    assert explained > 1.2 * features.fit(X).certificate_.trace.value

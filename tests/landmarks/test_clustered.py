"""Landmarks that are means: Algorithm 3 to the letter, k-means, and what "auto" does with odd rows."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp

from nystrom.engine import LocalEngine
from nystrom.engine.passes import Passes
from nystrom.kernels import Gaussian
from nystrom.kmeans import assign, kmeans
from nystrom.landmarks import Auto, KMeans, RPCholesky, SketchedKMeans, select_landmarks
from nystrom.landmarks.auto import spent_on_outliers
from nystrom.landmarks.clustered import lloyd
from nystrom.rows import as_blocks
from nystrom.sketch import SignSketch


def passes_of(X, **options):
    return Passes(as_blocks(X, **options), LocalEngine(2))


def groups(n=600, p=40, k=6, seed=0):
    rng = np.random.default_rng(seed)
    return 8 * rng.standard_normal((k, p))[rng.integers(k, size=n)] + rng.standard_normal((n, p))


def quantization(X, Z):
    return np.square(X[:, None] - Z[None]).sum(axis=2).min(axis=1).sum()


@pytest.mark.parametrize("compression", [None, 0.2])
def test_sketched_kmeans_is_algorithm_3_step_by_step(compression):
    X = groups()
    dim = 10 if compression is None else 8
    found = SketchedKMeans(compression=compression).select(passes_of(X), 5, Gaussian(), np.random.default_rng(3))
    rng = np.random.default_rng(3)
    sketched = SignSketch().fit(40, dim, rng)(X)
    centers = kmeans(as_blocks(sketched), 5, engine=LocalEngine(), rng=rng).centers
    labels = assign(sketched, centers)
    literal = np.stack([X[labels == j].mean(axis=0) for j in range(5)])
    np.testing.assert_allclose(found.points, literal, rtol=1e-12)


def test_a_sketch_as_wide_as_the_rows_is_no_sketch():
    X = groups(p=2)
    for seed in range(4):
        by_sketch = SketchedKMeans(sketch_dim=10).select(passes_of(X), 6, Gaussian(), np.random.default_rng(seed))
        by_rows = KMeans().select(passes_of(X), 6, Gaussian(), np.random.default_rng(seed))
        assert quantization(X, by_sketch.points) < 1.5 * quantization(X, by_rows.points)


@pytest.mark.parametrize(
    "selector", [KMeans(), KMeans(sample=200), SketchedKMeans(), SketchedKMeans(sample=200), Auto()]
)
def test_well_separated_groups_are_found(selector):
    X = groups()
    found = select_landmarks(X, 6, method=selector.set_params(n_iter=10), random_state=0)
    assert quantization(X, found.points) < 1.05 * 600 * 40


def test_more_lloyd_steps_never_raise_the_quantization_error():
    X = groups(k=30)
    points = X[:12]
    values = [quantization(X, lloyd(passes_of(X), points, steps)) for steps in range(5)]
    assert all(after <= before * (1 + 1e-12) for before, after in pairwise(values))


@pytest.mark.parametrize("container", [np.asarray, sp.csr_matrix])
def test_a_landmark_that_loses_all_rows_stays(container):
    X = container(np.array([[0.0, 1.0], [0.0, 2.0], [5.0, 0.0]]))
    start = container(np.array([[0.0, 1.5], [5.0, 0.0], [90.0, 90.0]]))
    moved = lloyd(passes_of(X), start, 1)
    moved = moved.toarray() if sp.issparse(moved) else moved
    np.testing.assert_allclose(sorted(moved.tolist()), [[0.0, 1.5], [5.0, 0.0], [90.0, 90.0]])


def test_cholesky_followed_by_lloyd_starts_at_the_pivots():
    X = groups()
    pivots = RPCholesky().select(passes_of(X), 8, Gaussian(), np.random.default_rng(0))
    moved = RPCholesky(lloyd=2).select(passes_of(X), 8, Gaussian(), np.random.default_rng(0))
    np.testing.assert_allclose(moved.points, lloyd(passes_of(X), pivots.points, 2), rtol=1e-12)


def test_sparse_and_dense_rows_give_the_same_kmeans_landmarks():
    X = groups()
    X[np.abs(X) < 3] = 0
    dense = select_landmarks(X, 6, method="kmeans", random_state=0).points
    sparse = select_landmarks(sp.csr_matrix(X), 6, method="kmeans", random_state=0).points
    sparse = sparse.toarray() if sp.issparse(sparse) else sparse
    np.testing.assert_allclose(quantization(X, sparse), quantization(X, dense), rtol=0.05)


@pytest.mark.parametrize(("p", "dim"), [(3, 3), (64, 64), (65, 20)])
def test_auto_sketches_only_rows_of_many_columns(p, dim):
    sample = np.random.default_rng(0).standard_normal((300, p))
    for X in (sample, sp.csr_matrix(sample)):
        drawn = Auto()._sketched_sample(passes_of(X), 200, np.random.default_rng(0))
        assert drawn.rows.shape == (200, p)
        assert drawn.sketched.shape == (200, dim)
        assert not drawn.sketched.is_sparse


def test_clusters_of_next_to_no_rows_are_seen_only_where_an_even_share_is_many():
    assert spent_on_outliers(np.array([1, 1, 500, 498]))
    assert not spent_on_outliers(np.array([240, 260, 250, 250]))
    assert not spent_on_outliers(np.ones(10, dtype=int))
    assert not spent_on_outliers(np.array([1] + 39 * [100]))


def error(X, kernel, Z):
    K = kernel(X, X)
    C = kernel(X, Z)
    return np.linalg.norm(K - C @ np.linalg.pinv(kernel(Z, Z), rcond=1e-10, hermitian=True) @ C.T) / np.linalg.norm(K)


def test_auto_is_not_misled_by_outliers():
    rng = np.random.default_rng(7)
    X = rng.standard_normal((1500, 6))
    X[:40] *= rng.lognormal(4, 1, size=(40, 1))
    kernel = Gaussian(1 / 6)

    def mean_error(method):
        return np.mean(
            [
                error(X, kernel, select_landmarks(X, 40, method=method, kernel=kernel, random_state=s).points)
                for s in range(3)
            ]
        )

    assert mean_error("auto") < 0.85 * mean_error("kmeans")
    assert mean_error("auto") < 1.1 * mean_error("rpcholesky+lloyd")


@pytest.mark.parametrize("make", [np.asarray, sp.csr_matrix], ids=["dense", "sparse"])
@pytest.mark.parametrize("seed", [41, 42, 43])
def test_auto_spends_its_landmarks_where_the_kernel_is_if_rows_differ_in_scale(make, seed):
    # Half the rows are nearer to the middle than the kernel is wide, and hold nearly all of it; the others are alone.
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((2000, 12)) * rng.lognormal(0, 1, size=(2000, 1))
    kernel = Gaussian(1 / np.median(np.square(X).sum(axis=1)))

    def of(method):
        Z = select_landmarks(make(X), 60, method=method, kernel=kernel, random_state=seed).points
        return error(X, kernel, Z.toarray() if sp.issparse(Z) else Z)

    assert of("auto") < of("uniform")


@pytest.mark.parametrize("seed", [45, 46])
def test_auto_spends_its_landmarks_where_the_kernel_is_if_no_row_is_far_out(seed):
    # The wide cloud has no tiny clusters, but the kernel is nearly zero between its rows.
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((2000, 10)) * rng.choice([1.0, 5.0], size=(2000, 1))
    kernel = Gaussian(1 / np.median(np.square(X).sum(axis=1)))
    ours, theirs = (
        error(X, kernel, select_landmarks(X, 60, method=name, kernel=kernel, random_state=seed).points)
        for name in ("auto", "uniform")
    )
    assert ours < theirs


def test_auto_counts_weights_as_repetitions_where_it_looks_for_what_the_kernel_feels():
    rng = np.random.default_rng(44)
    X = rng.standard_normal((900, 8)) * rng.lognormal(0, 1, size=(900, 1))
    weight = rng.integers(1, 4, size=900)
    kernel = Gaussian(1 / np.median(np.square(X).sum(axis=1)))
    repeated = np.repeat(X, weight, axis=0)

    def of(X, weight, seed):
        passes = Passes(as_blocks(X).with_target(None, weight), LocalEngine(2))
        return error(repeated, kernel, Auto().select(passes, 50, kernel, np.random.default_rng(seed)).points)

    by_weight, by_rows = (
        np.mean([of(rows, counts, s) for s in range(5)])
        for rows, counts in ((X, weight.astype(float)), (repeated, None))
    )
    np.testing.assert_allclose(by_weight, by_rows, rtol=0.05)


@pytest.mark.parametrize("p", [4, 100])
def test_auto_is_as_good_as_kmeans_on_ordinary_rows(p):
    X = groups(n=1200, p=p, k=50) / 10
    kernel = Gaussian(1 / p)
    ours, theirs = (
        np.mean(
            [
                error(X, kernel, select_landmarks(X, 25, method=name, kernel=kernel, random_state=s).points)
                for s in range(3)
            ]
        )
        for name in ("auto", "kmeans")
    )
    assert ours < 1.1 * theirs


@pytest.mark.parametrize("make", [np.asarray, sp.csr_matrix], ids=["dense", "sparse"])
def test_auto_has_all_landmarks_although_clusters_lost_their_rows(make):
    rng = np.random.default_rng(7)
    X = rng.standard_normal((1500, 6))
    X[:40] *= rng.lognormal(4, 1, size=(40, 1))
    for seed in range(8):
        found = select_landmarks(make(X), 40, kernel=Gaussian(1 / 6), random_state=seed)
        assert len(distinct(found.points)) == 40


def distinct(points):
    return np.unique(points.toarray() if sp.issparse(points) else points, axis=0)

"""K-means: the same result however it is run, never worse by another iteration, and sane on rows that repeat."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import KMeans

from nystrom.engine import LocalEngine
from nystrom.exceptions import FewerLandmarksWarning
from nystrom.kernels.pairwise import squared_norms
from nystrom.kmeans import KMeansResult, Nearest, _Clustering, assign, cluster_sums, kmeans, seed
from nystrom.loops import draw_weighted
from nystrom.rows import ArrayRows, Block, RowBlocks, as_blocks


def blobs(n: int = 600, p: int = 5, k: int = 8, spread: float = 0.3, random: int = 0) -> np.ndarray:
    rng = np.random.default_rng(random)
    return rng.standard_normal((k, p))[rng.integers(k, size=n)] * 3 + spread * rng.standard_normal((n, p))


def run(X, k: int, *, random: int = 0, n_jobs: int = 1, block_rows: int | None = None, **options) -> KMeansResult:
    rows = X if isinstance(X, RowBlocks) else as_blocks(X, block_rows=block_rows)
    return kmeans(rows, k, engine=LocalEngine(n_jobs), rng=np.random.default_rng(random), **options)


def literal_inertia(X: np.ndarray, centers: np.ndarray) -> float:
    X, centers = X.astype(np.float64), centers.astype(np.float64)
    return float(np.min(((X[:, None] - centers[None]) ** 2).sum(axis=2), axis=1).sum())


class StreamedRows(ArrayRows):
    """Rows that can only be read from the beginning."""

    random_access = False

    def block(self, index: int) -> Block:
        raise AssertionError("a stream has no random access")

    def iterate(self):
        return (super(StreamedRows, self).block(index) for index in range(self.n_blocks))

    def widened(self, block_rows: int) -> RowBlocks:
        return self


# Assignment and sums


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_every_row_goes_to_its_nearest_centre(dtype, offset):
    X = (blobs(500) + offset).astype(dtype)
    centers = X[:40]
    squares = ((X[:, None].astype(np.float64) - centers[None]) ** 2).sum(axis=2)
    labels = assign(X, centers)
    assert labels.dtype == np.int32
    np.testing.assert_allclose(
        squares[np.arange(500), labels], squares.min(axis=1), atol=1e-4 if dtype == np.float32 else 1e-9
    )
    np.testing.assert_array_equal(labels[:40], np.arange(40))


def test_of_equal_centres_the_first_is_taken():
    assert assign(np.zeros((3, 2)), np.zeros((4, 2))).tolist() == [0, 0, 0]


@pytest.mark.parametrize("make_centers", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("container", [sp.csr_matrix, sp.csr_array])
def test_sparse_rows_go_where_dense_rows_go(make_centers, container):
    X = blobs(300) * (np.random.default_rng(1).random((300, 5)) < 0.5)
    centers = X[:20]
    np.testing.assert_array_equal(assign(container(X), make_centers(centers)), assign(X, centers))


def test_more_centres_than_a_tile_holds_are_all_looked_at():
    X = np.arange(5000.0)[:, None]
    np.testing.assert_array_equal(assign(X, X), np.arange(5000))


def test_the_search_for_the_nearest_survives_pickling():
    X = blobs(50)
    nearest = Nearest(X[:5] - X.mean(axis=0), X.mean(axis=0), X.dtype)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(nearest))(X), nearest(X))


@pytest.mark.parametrize("make", [np.asarray, sp.csr_matrix, sp.csr_array])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("p", [3, 200])
def test_merged_sums_of_blocks_are_the_sums_of_all_rows(make, dtype, p):
    X = blobs(200, p=p).astype(dtype)
    labels = np.random.default_rng(0).integers(7, size=200)
    merged = cluster_sums(labels[:90], make(X[:90]), 9)
    merged = merged.merge(cluster_sums(labels[90:150], make(X[90:150]), 9))
    merged = merged.merge(cluster_sums(labels[150:], make(X[150:]), 9))
    means = merged.means()
    means = means.toarray() if sp.issparse(means) else means
    assert means.dtype == np.float64
    expected = [X[labels == j].astype(np.float64).mean(axis=0) for j in range(7)]
    np.testing.assert_allclose(means, expected, atol=1e-5 if dtype == np.float32 else 1e-12)
    np.testing.assert_array_equal(merged.counts, np.bincount(labels, minlength=9))


def test_sums_and_means_of_sparse_rows_stay_sparse_while_that_is_smaller():
    X = sp.random(400, 50_000, density=1e-3, format="csr", random_state=0)
    found = cluster_sums(np.arange(400) % 10, X, 10)
    assert sp.issparse(found.sums)
    assert sp.issparse(found.means())
    full = cluster_sums(np.zeros(400, dtype=int), sp.csr_matrix(blobs(400)), 1)
    assert isinstance(full.means(), np.ndarray)


def test_float32_sums_are_added_up_in_float64():
    big, small = np.full((1, 100), 2.0**25, dtype=np.float32), np.ones((1, 100), dtype=np.float32)
    label = np.zeros(1, dtype=int)
    merged = cluster_sums(label, big, 1).merge(cluster_sums(label, small, 1)).merge(cluster_sums(label, small, 1))
    np.testing.assert_array_equal(merged.sums, 2.0**25 + 2)


# Seeding


def test_numbers_are_drawn_in_proportion_to_their_weights():
    rng = np.random.default_rng(0)
    weights = np.zeros(512)
    weights[[3, 130, 131, 500]] = [1, 2, 3, 4]
    drawn = draw_weighted(weights, rng.random(40_000))
    shares = np.bincount(drawn, minlength=512) / 40_000
    np.testing.assert_allclose(shares[[3, 130, 131, 500]], [0.1, 0.2, 0.3, 0.4], atol=0.015)
    assert shares[[3, 130, 131, 500]].sum() == 1.0


def test_the_ends_of_the_unit_interval_draw_a_number_that_has_weight():
    weights = np.zeros(384, dtype=np.float32)
    weights[130:140] = 0.1
    assert draw_weighted(weights, np.array([0.0, 1.0])).tolist() == [130, 139]
    assert draw_weighted(np.zeros(128), np.array([0.5])) is None


@pytest.mark.parametrize("init", ["kmeans++", "greedy"])
@pytest.mark.parametrize("make", [np.asarray, sp.csr_matrix])
def test_seeds_are_distinct_rows_even_if_most_rows_repeat(init, make):
    X = np.repeat(np.arange(12.0).reshape(6, 2), 50, axis=0)
    found = seed(make(X), 6, init, np.random.default_rng(0))
    found = found.toarray() if sp.issparse(found) else found
    np.testing.assert_array_equal(found[np.argsort(found[:, 0])], np.arange(12.0).reshape(6, 2))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_row_is_taken_twice_because_of_rounding(dtype):
    X = np.repeat(np.random.default_rng(0).standard_normal((3, 40)), 100, axis=0).astype(dtype)
    assert len(seed(X, 10, "greedy", np.random.default_rng(0))) == 3


def test_greedy_seeding_begins_lower_than_plain_seeding_on_average():
    X = blobs(2000, k=30)
    plain, greedy = (
        np.mean([run(X, 30, random=i, init=init, n_iter=1).history[0] for i in range(10)])
        for init in ("kmeans++", "greedy")
    )
    assert greedy < plain


# Lloyd


@pytest.mark.parametrize("container", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("random", range(3))
def test_no_iteration_raises_the_inertia(container, random):
    X = blobs(900, k=40, spread=1.0, random=random)
    found = run(container(X), 25, random=random, n_iter=20, tol=0.0)
    assert len(found.history) > 3
    assert np.all(np.diff([*found.history, found.inertia]) <= 1e-9 * found.inertia)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("container", [np.asarray, sp.csr_matrix])
def test_the_result_has_the_same_bits_for_any_number_of_threads(dtype, container):
    X = container(blobs(3000, k=30, spread=1.0).astype(dtype))
    one = run(X, 20, n_jobs=1, block_rows=128)
    for n_jobs in (2, 8):
        other = run(X, 20, n_jobs=n_jobs, block_rows=128)
        np.testing.assert_array_equal(one.centers, other.centers)
        np.testing.assert_array_equal(one.labels, other.labels)
        assert one.inertia == other.inertia


def test_the_result_follows_from_the_seed_and_other_seeds_give_others():
    X = blobs(500, spread=2.0)
    np.testing.assert_array_equal(run(X, 9, random=1).centers, run(X, 9, random=1).centers)
    assert not np.allclose(run(X, 9, random=1).centers, run(X, 9, random=2).centers)


def test_dense_and_sparse_rows_have_the_same_clusters():
    X = blobs(700, k=10) * (np.random.default_rng(1).random((700, 5)) < 0.7)
    dense, sparse = run(X, 10), run(sp.csr_matrix(X), 10)
    assert sparse.inertia == pytest.approx(dense.inertia, rel=1e-9)
    np.testing.assert_array_equal(dense.labels, sparse.labels)


def test_streamed_rows_have_the_clusters_of_rows_in_memory():
    X = blobs(700, spread=1.0)
    found = run(StreamedRows(X, block_rows=64), 12, n_jobs=2)
    in_memory = run(X, 12)
    np.testing.assert_allclose(found.centers, in_memory.centers, atol=1e-12)
    np.testing.assert_array_equal(found.labels, in_memory.labels)


@pytest.mark.parametrize("container", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_result_is_consistent_and_in_the_dtype_of_the_rows(dtype, container):
    X = (blobs(800, spread=1.0) + 20).astype(dtype)
    found = run(container(X), 15)
    centers = found.centers.toarray() if sp.issparse(found.centers) else found.centers
    assert centers.dtype == dtype
    assert found.counts.sum() == 800
    assert found.counts.min() > 0
    np.testing.assert_array_equal(np.bincount(found.labels, minlength=15), found.counts)
    rel = 1e-4 if dtype == np.float32 else 1e-9
    assert found.inertia == pytest.approx(literal_inertia(X, centers), rel=rel)


def test_at_convergence_every_centre_is_the_mean_of_its_rows():
    X = blobs(500)
    found = run(X, 6, n_iter=300, tol=0.0)
    assert found.n_iter < 300
    for j in range(6):
        np.testing.assert_allclose(found.centers[j], X[found.labels == j].mean(axis=0), atol=1e-12)


@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_the_clusters_do_not_depend_on_the_scale_of_the_rows(scale):
    X = blobs(500, spread=1.0)
    np.testing.assert_array_equal(run(X, 9).labels, run(scale * X, 9).labels)


def test_the_clusters_do_not_depend_on_where_the_origin_is():
    X = np.round(blobs(500, spread=1.0) * 64) / 64
    assert run(X + 4096.0, 9).inertia == pytest.approx(run(X, 9).inertia, rel=1e-9)


def test_the_inertia_is_that_of_scikit_learn_within_a_few_percent():
    X = blobs(4000, p=8, k=100, spread=1.0).astype(np.float32)
    ours = np.mean([run(X, 50, random=i).inertia for i in range(4)])
    theirs = np.mean([KMeans(50, n_init=1, max_iter=10, random_state=i).fit(X).inertia_ for i in range(4)])
    assert ours < 1.03 * theirs


def test_more_starts_are_not_worse_and_the_best_is_kept():
    X = blobs(400, k=12)
    assert run(X, 12, n_init=8, init="kmeans++").inertia <= run(X, 12, n_init=1, init="kmeans++").inertia * (1 + 1e-9)


def test_clustering_a_sample_still_labels_all_rows():
    X = blobs(5000, k=10)
    found = run(X, 10, sample=640)
    assert len(found.labels) == 5000
    assert found.inertia == pytest.approx(literal_inertia(X, found.centers), rel=1e-9)
    assert found.inertia < 1.1 * run(X, 10).inertia


def test_labels_are_left_out_if_not_wanted_and_nothing_else_changes():
    X = blobs()
    without, with_labels = run(X, 5, want_labels=False), run(X, 5)
    assert without.labels is None
    np.testing.assert_array_equal(without.centers, with_labels.centers)
    assert without.inertia == with_labels.inertia


def test_no_iterations_leave_the_seeds():
    X = blobs()
    found = run(X, 7, n_iter=0)
    assert found.n_iter == 0
    assert np.abs(X[:, None] - found.centers[None]).max(axis=2).min(axis=0).max() < 1e-12


def test_the_rows_are_not_written_to():
    X = blobs()
    X.flags.writeable = False
    run(X, 5)


# Empty clusters, and rows that repeat


@pytest.mark.parametrize("make_centers", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("container", [np.asarray, sp.csr_matrix])
def test_an_empty_cluster_is_given_the_farthest_row(container, make_centers):
    X = np.array([[0.0], [0.1], [0.2], [5.0], [5.1], [90.0]])
    rows = as_blocks(container(X), block_rows=2)
    centers = np.array([[0.1], [5.0], [-1000.0]])
    clustering = _Clustering(rows, LocalEngine(1), None if rows.is_sparse else np.zeros(1), want_labels=True)
    seen = clustering.settle(make_centers(centers) if rows.is_sparse else centers, 3)
    found = seen.centers.toarray() if sp.issparse(seen.centers) else seen.centers
    assert sorted(found.ravel()) == [0.1, 5.0, 90.0]
    assert sorted(seen.totals.clusters.counts) == [1, 2, 3]


def test_an_empty_cluster_never_takes_the_only_row_of_another():
    X = np.array([[0.0], [0.4], [1.0], [100.0]])
    # Row 3 is the farthest from its centre, and the only one there.
    clustering = _Clustering(as_blocks(X), LocalEngine(1), np.zeros(1), want_labels=True)
    seen = clustering.settle(np.array([[0.3], [80.0], [-1000.0]]), 3)
    assert sorted(seen.centers.ravel()) == [0.3, 1.0, 80.0]


def test_several_empty_clusters_are_filled_though_the_farthest_rows_repeat():
    X = np.concatenate([np.zeros(50), np.full(50, 9.0), [5.0, 6.0, 7.0]])[:, None]
    clustering = _Clustering(as_blocks(X, block_rows=16), LocalEngine(1), np.zeros(1))
    seen = clustering.settle(np.array([[0.0], [500.0], [600.0], [700.0], [800.0]]), 5)
    assert sorted(seen.centers.ravel()) == [0.0, 5.0, 6.0, 7.0, 9.0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("container", [np.asarray, sp.csr_matrix])
def test_fewer_distinct_rows_than_clusters_give_fewer_clusters_and_a_warning(dtype, container):
    distinct = np.random.default_rng(0).standard_normal((7, 4)).astype(dtype)
    X = distinct[np.random.default_rng(1).permutation(np.arange(700) % 7)]
    with pytest.warns(FewerLandmarksWarning, match="have only 7 distinct values"):
        found = run(container(X), 20, block_rows=64)
    centers = found.centers.toarray() if sp.issparse(found.centers) else found.centers
    np.testing.assert_allclose(centers[np.lexsort(centers.T)], distinct[np.lexsort(distinct.T)], rtol=1e-6)
    np.testing.assert_array_equal(found.counts, 100)


def test_a_rare_row_outside_the_seeding_sample_still_gets_its_cluster():
    X = np.zeros((3000, 2))
    X[[17, 1800]] = [[1.0, 1.0], [2.0, -3.0]]
    found = run(X, 3, seed_rows=20)
    assert sorted(found.counts) == [1, 1, 2998]
    assert found.inertia < 1e-12


@pytest.mark.parametrize("value", [0.0, 0.1, 1e6])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_constant_rows_are_one_cluster(value, dtype):
    X = np.full((300, 3), value, dtype=dtype)
    with pytest.warns(FewerLandmarksWarning, match="have only 1 distinct values"):
        found = run(X, 4)
    np.testing.assert_allclose(found.centers, X[:1], rtol=1e-6)
    assert found.counts.tolist() == [300]


def test_one_row_is_its_own_cluster():
    found = run(np.array([[3.0, 4.0]]), 1)
    np.testing.assert_array_equal(found.centers, [[3.0, 4.0]])
    assert found.labels.tolist() == [0]


def test_fewer_rows_than_clusters_are_all_centres():
    X = blobs(5)
    with pytest.warns(FewerLandmarksWarning, match="8 clusters were asked for, but the 5 rows of X"):
        found = run(X, 8)
    np.testing.assert_allclose(np.sort(found.centers, axis=0), np.sort(X, axis=0))
    assert found.inertia < 1e-13 * squared_norms(X).sum()


def test_as_many_clusters_as_distinct_rows_leave_no_inertia():
    X = blobs(120)
    found = run(X, 120)
    assert found.inertia < 1e-13 * squared_norms(X).sum()
    np.testing.assert_array_equal(found.counts, 1)


@given(
    n=st.integers(1, 60),
    p=st.integers(1, 4),
    k=st.integers(1, 30),
    levels=st.integers(1, 6),
    random=st.integers(0, 99),
    sparse=st.booleans(),
)
def test_rows_on_a_grid_always_give_full_clusters_and_the_right_inertia(n, p, k, levels, random, sparse):
    X = np.random.default_rng(random).integers(levels, size=(n, p)).astype(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FewerLandmarksWarning)
        found = run(sp.csr_matrix(X) if sparse else X, k, random=random, block_rows=16)
    centers = found.centers.toarray() if sp.issparse(found.centers) else found.centers
    assert len(centers) == min(k, len(np.unique(X, axis=0)))
    assert found.counts.min() > 0
    assert found.counts.sum() == n
    assert found.inertia == pytest.approx(literal_inertia(X, centers), abs=1e-4 * max(1, n))


# What is refused


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_clusters": 0}, "n_clusters must be a whole number of at least 1; got 0"),
        ({"n_clusters": 2.5}, "n_clusters must be a whole number"),
        ({"n_iter": -1}, "n_iter must be a whole number of at least 0"),
        ({"n_init": 0}, "n_init must be a whole number of at least 1"),
        ({"init": "random"}, "init must be 'kmeans\\+\\+' or 'greedy'; got 'random'"),
        ({"sample": 2}, "sample must be at least the number of clusters, 3; got 2"),
    ],
)
def test_wrong_values_are_refused_by_name(options, message):
    with pytest.raises(ValueError, match=message):
        run(blobs(50), options.pop("n_clusters", 3), **options)


def test_no_rows_are_refused():
    with pytest.raises(ValueError, match="at least one row"):
        run(ArrayRows(np.empty((0, 3))), 2)
